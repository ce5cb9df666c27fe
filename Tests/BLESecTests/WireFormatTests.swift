import BLESecChannelCore
import BLESecPrimitives
import FoundationEssentials
import Testing

@testable import BLESec

/// The worked examples of `docs/wire-format.md`, compared with the output of channel machines with
/// fixed keys.
///
/// The test reads the hex blocks from that page. It fails if the page and the code do not have the
/// same examples, or if a byte differs.
@Suite("The wire format's worked examples")
struct WireFormatTests {
    @Test("every hex block of the page equals what the code produces")
    func examples() throws {
        let documented = try Self.documentedExamples()
        let produced = try Self.producedExamples()
        #expect(documented.map(\.name).sorted() == produced.map(\.name).sorted())
        for example in produced {
            let documentedBytes = documented.first { $0.name == example.name }?.bytes
            #expect(
                documentedBytes == example.bytes,
                "the code makes \(Self.hex(example.bytes)) for \(example.name); the page differs")
        }
    }

    struct Example {
        let name: String
        let bytes: [UInt8]
    }

    static func producedExamples() throws -> [Example] {
        let offers = ["Noise_XX_25519_ChaChaPoly_SHA256", "Noise_XX_25519_AESGCM_SHA256"]
        let pair = try MachinePair(
            dialer: configuration(.dialer, offers), acceptor: configuration(.acceptor, offers))
        pair.run()
        _ = try pair.dialer.queue(Array("hello".utf8))
        pair.step(.dialer)
        #expect(pair.acceptor.takeMessage(now: pair.now) == Array("hello".utf8))
        pair.passTime(.milliseconds(50))
        pair.acceptor.end()
        pair.run()
        let dialer = pair.sent[.dialer] ?? []
        let acceptor = pair.sent[.acceptor] ?? []
        let transcript = try pair.transcript(context: Array("example".utf8))
        return [
            Example(name: "hello", bytes: transcript.hello),
            Example(name: "prologue", bytes: transcript.prologue(for: .accept)),
            Example(name: "flight 1", bytes: dialer[0]),
            Example(name: "answer", bytes: transcript.answer),
            Example(name: "flight 2", bytes: acceptor[0]),
            Example(name: "ready of the dialer", bytes: transcript.ready(from: .dialer)),
            Example(name: "flight 3", bytes: dialer[1]),
            Example(name: "ready of the acceptor", bytes: transcript.ready(from: .acceptor)),
            Example(name: "flight 4", bytes: acceptor[1]),
            Example(name: "data", bytes: dialer[2]),
            Example(name: "ack and end", bytes: acceptor[2]),
            Example(name: "handshake hash", bytes: pair.dialer.handshakeHash),
            Example(name: "exported key", bytes: try export(pair)),
            Example(name: "refused", bytes: Answer(.refused).encoded),
            Example(name: "switch", bytes: Answer(.switch, index: 1).encoded),
            Example(name: "direct flight 1", bytes: try directFlight()),
        ]
    }

    private static func export(_ pair: MachinePair) throws -> [UInt8] {
        let dialerKey = try pair.dialer.export(label: "example", context: [1, 2, 3], count: 32)
        let acceptorKey = try pair.acceptor.export(label: "example", context: [1, 2, 3], count: 32)
        let isSame = dialerKey.isEqual(to: acceptorKey)
        #expect(isSame)
        return dialerKey.span.array
    }

    private static func directFlight() throws -> [UInt8] {
        var configuration = try configuration(.dialer, ["Noise_XX_25519_ChaChaPoly_SHA256"])
        configuration.mode = .direct
        var machine = ChannelMachine(
            role: .dialer, configuration: configuration, maximumSDU: 8_192, now: 0)
        try machine.begin()
        return machine.transmit(now: 0)
    }

    /// A key pair of the page: the private key is 32 bytes that count up from `first`.
    private static func key(from first: UInt8) throws -> DHKeyPair {
        let bytes = (0..<32).map { first + UInt8($0) }
        return try DHKeyPair(curve: .x25519, privateKey: SecretBytes(copying: bytes.span))
    }

    private static func configuration(
        _ role: ChannelRole, _ offers: [String]
    ) throws -> ChannelConfiguration {
        let isDialer = role == .dialer
        let peer = try key(from: isDialer ? 0x20 : 0x00).publicKey
        var configuration = ChannelConfiguration(
            identity: IdentityKey(try key(from: isDialer ? 0x00 : 0x20)),
            trust: .pinned([try PeerKey(publicKey: peer)]))
        configuration.protocols = offers
        configuration.context = Array("example".utf8)
        // The example of direct mode has one offer and no context.
        if offers.count == 1 { configuration.context = [] }
        configuration.fixedEphemeral = try key(from: isDialer ? 0x40 : 0x60)
        return configuration
    }

    /// The fenced blocks of the page that begin with "```hex" and a name.
    private static func documentedExamples() throws -> [Example] {
        let page = URL(filePath: #filePath).deletingLastPathComponent()
            .deletingLastPathComponent().deletingLastPathComponent()
            .appending(path: "docs/wire-format.md")
        let text = try String(contentsOf: page, encoding: .utf8)
        var examples: [Example] = []
        var name: String?
        var digits = ""
        for line in text.split(separator: "\n", omittingEmptySubsequences: false) {
            if line.hasPrefix("```hex ") {
                name = String(line.dropFirst(7))
            } else if line == "```", let blockName = name {
                examples.append(Example(name: blockName, bytes: try bytes(digits)))
                (name, digits) = (nil, "")
            } else if name != nil {
                // Text after a "#" is a comment.
                digits += line.prefix { $0 != "#" }.filter { !$0.isWhitespace }
            }
        }
        return examples
    }

    private static func bytes(_ digits: String) throws -> [UInt8] {
        try #require(digits.count.isMultiple(of: 2))
        return try stride(from: 0, to: digits.count, by: 2).map { index in
            let start = digits.index(digits.startIndex, offsetBy: index)
            return try #require(UInt8(digits[start..<digits.index(start, offsetBy: 2)], radix: 16))
        }
    }

    static func hex(_ bytes: [UInt8]) -> String {
        bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }
}
