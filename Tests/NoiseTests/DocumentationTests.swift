import FoundationEssentials
import Noise
import Primitives
import Testing

@Suite struct DocumentationTests {
    @Test("the example of the module's page is this code, and it runs")
    func example() throws {
        try greet()
        let page = try String(
            contentsOf: source("Sources/Noise/Noise.docc/Noise.md"), encoding: .utf8)
        let test = try String(contentsOf: URL(filePath: #filePath), encoding: .utf8)
        let begin = try #require(page.firstRange(of: "func greet() throws {\n"))
        let end = try #require(page[begin.lowerBound...].firstRange(of: "\n}\n"))
        #expect(test.contains(page[begin.lowerBound..<end.upperBound]))
    }

    private func source(_ path: String) -> URL {
        URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appending(path: path)
    }
}

func greet() throws {
    let name = try ProtocolName("Noise_XX_25519_ChaChaPoly_SHA256")
    var alice = try HandshakeState(
        protocolName: name, role: .initiator, localStatic: .generate(.x25519))
    var bob = try HandshakeState(
        protocolName: name, role: .responder, localStatic: .generate(.x25519))
    while !alice.isFinished {
        if alice.isMyTurn {
            let message = try [UInt8](capacity: 256) { try alice.writeMessage(into: &$0) }
            _ = try [UInt8](capacity: 256) { try bob.readMessage(message.span, payload: &$0) }
        } else {
            let message = try [UInt8](capacity: 256) { try bob.writeMessage(into: &$0) }
            _ = try [UInt8](capacity: 256) { try alice.readMessage(message.span, payload: &$0) }
        }
    }
    var session = try alice.split()
    var buffer: [UInt8] = Array("hello".utf8) + [UInt8](repeating: 0, count: 16)
    var span = buffer.mutableSpan
    try session.encrypt(inPlace: &span, count: 5)
}
