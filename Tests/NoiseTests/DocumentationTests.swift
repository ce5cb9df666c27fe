import BLESecNoise
import FoundationEssentials
import Testing

@Suite struct DocumentationTests {
    @Test("the example on the module's page is the function greet of this file, and greet runs")
    func example() throws {
        try greet()
        let page = try String(
            contentsOf: source("Sources/BLESecNoise/BLESecNoise.docc/BLESecNoise.md"),
            encoding: .utf8)
        let test = try String(contentsOf: URL(filePath: #filePath), encoding: .utf8)
        let begin = try #require(page.firstRange(of: "func greet() throws {\n"))
        let end = try #require(page[begin.lowerBound...].firstRange(of: "\n}\n"))
        #expect(test.contains(page[begin.lowerBound..<end.upperBound]))
    }

    @Test(
        "docs/noise.md's datagram example is DatagramPeer of this file, which refuses replays and forgeries"
    )
    func datagrams() throws {
        let page = try page()
        let test = try String(contentsOf: URL(filePath: #filePath), encoding: .utf8)
        let begin = try #require(page.firstRange(of: "struct DatagramPeer: ~Copyable {\n"))
        let end = try #require(page[begin.lowerBound...].firstRange(of: "\n}\n"))
        #expect(test.contains(page[begin.lowerBound..<end.upperBound]))

        var pair = try TransportPair("Noise_NN_25519_AESGCM_SHA256")
        // A message before the conversion uses nonce 0, so the first datagram has nonce 1.
        _ = try pair.initiator.encrypt([0])
        let ends = pair.datagrams()
        let sent = try (1...3).map { try ends.left.value.seal([$0]) }
        #expect(sent[0].prefix(8) == [0, 0, 0, 0, 0, 0, 0, 1])
        #expect(ends.right.value.open(sent[2]) == [3])
        #expect(ends.right.value.open(sent[0]) == [1])
        #expect(ends.right.value.open(sent[0]) == nil)
        var forged = sent[1]
        forged[8] ^= 1
        #expect(ends.right.value.open(forged) == nil)
        #expect(ends.right.value.open([]) == nil)
        #expect(ends.right.value.open(sent[1]) == [2])
    }

    @Test(
        "docs/noise.md states for every pattern who sees which key, who is proven and who speaks first"
    )
    func exposures() throws {
        let rows = try page().split(separator: "\n").filter { $0.hasPrefix("| `") }
            .map { $0.split(separator: "|").map { $0.trimmingPrefix(" ") } }
            .filter { HandshakePattern.named(Self.name($0)) != nil }
        #expect(rows.map(Self.name) == HandshakePattern.all.map(\.name))
        // The columns after the name: both keys, who is proven, opt-in, who speaks first.
        for row in rows {
            let pattern = try #require(HandshakePattern.named(Self.name(row)))
            #expect(row[1].hasPrefix(pattern.staticKeyExposure(of: .initiator).words), "\(row)")
            #expect(row[2].hasPrefix(pattern.staticKeyExposure(of: .responder).words), "\(row)")
            for role in Role.allCases {
                #expect(row[3].contains("\(role)") == pattern.authenticates(role), "\(row)")
                // A role still unproven after the handshake has to send the first transport
                // message.
                let isUnproven = !pattern.isProven(role, after: pattern.messages.count)
                #expect(
                    row[5].contains("\(role)") == (isUnproven && !pattern.isOneWay), "\(row)")
            }
        }
    }

    private static func name(_ row: [Substring]) -> String {
        String(row[0].drop { $0 == "`" }.prefix { $0 != "`" })
    }

    @Test("the comment of every public or internal type names a section of Noise or an RFC")
    func sections() throws {
        let folder = source("Sources/BLESecNoise").path(percentEncoded: false)
        let files = try FileManager.default.contentsOfDirectory(atPath: folder)
        var types = 0
        for file in files where file.hasSuffix(".swift") {
            let text = try String(
                contentsOf: source("Sources/BLESecNoise/\(file)"), encoding: .utf8)
            var comment = ""
            for line in text.split(separator: "\n", omittingEmptySubsequences: false) {
                let line = line.drop { $0 == " " }
                if line.hasPrefix("///") {
                    comment += line
                } else {
                    let isType = ["struct", "enum", "final class"].contains {
                        line.hasPrefix($0 + " ") || line.hasPrefix("public \($0) ")
                    }
                    if isType {
                        types += 1
                        #expect(
                            comment.contains("§") || comment.contains("RFC"), "\(file): \(line)")
                    }
                    comment = ""
                }
            }
        }
        #expect(types > 15)
    }

    private func page() throws -> String {
        try String(contentsOf: source("docs/noise.md"), encoding: .utf8)
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

struct DatagramPeer: ~Copyable {
    private var session: StatelessTransport
    private var window = ReplayWindow()
    private var nonce: UInt64

    init(_ transport: consuming TransportState) {
        session = StatelessTransport(transport)
        nonce = session.firstNonce
    }

    /// Returns the datagram: eight bytes of nonce, then the sealed message.
    mutating func seal(_ plaintext: [UInt8]) throws -> [UInt8] {
        var datagram = (0..<8).map { UInt8(truncatingIfNeeded: nonce >> (56 - 8 * $0)) }
        datagram += plaintext + [UInt8](repeating: 0, count: TransportState.overhead)
        var span = datagram.mutableSpan
        try session.encrypt(inPlace: &span, at: 8, count: plaintext.count, nonce: nonce)
        nonce += 1
        return datagram
    }

    /// Returns the message; nil if the datagram is forged, repeated or too old. Anybody can send such
    /// a datagram, but it changes nothing.
    mutating func open(_ datagram: [UInt8]) -> [UInt8]? {
        guard datagram.count >= 8 else { return nil }
        let nonce = datagram.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
        guard window.isNew(nonce) else { return nil }
        var bytes = datagram
        var span = bytes.mutableSpan
        let count = try? session.decrypt(
            inPlace: &span, at: 8, count: datagram.count - 8, nonce: nonce)
        guard let count, window.accept(nonce) else { return nil }
        return Array(bytes[8..<8 + count])
    }
}

/// A class around a noncopyable value, since a tuple cannot hold noncopyable values.
private final class Box {
    var value: DatagramPeer
    init(_ value: consuming DatagramPeer) { self.value = value }
}

extension TransportPair {
    fileprivate consuming func datagrams() -> (left: Box, right: Box) {
        let left = Box(DatagramPeer(initiator))
        let right = Box(DatagramPeer(responder))
        return (left, right)
    }
}

extension HandshakePattern.StaticKeyExposure {
    /// What docs/noise.md writes for this exposure.
    fileprivate var words: String {
        switch self {
        case .unused: "none"
        case .known: "known"
        case .clear(let message): "clear, message \(message)"
        case .anyPeer(let message): "any peer, message \(message)"
        case .protected(let message): "protected, message \(message)"
        }
    }
}
