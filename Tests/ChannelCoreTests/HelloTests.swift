import BLESecChannelCore
import Testing

@Suite("Hello")
struct HelloTests {
    @Test("random hellos are decoded unchanged, and not before they are complete")
    func roundTrip() throws {
        var random = Random(seed: 1)
        for _ in 0..<200 {
            let hello = try Self.randomHello(&random)
            let bytes = hello.encoded + random.bytes(random.number(0...40))
            #expect(try Hello(prefixOf: bytes.span) == hello)
            for length in 0..<hello.encoded.count {
                #expect(try Hello(prefixOf: bytes.span.extracting(first: length)) == nil)
            }
        }
    }

    @Test("a hello has exactly one encoding")
    func canonical() throws {
        var random = Random(seed: 2)
        var accepted = 0
        for _ in 0..<4_000 {
            var bytes = try Self.randomHello(&random).encoded
            for _ in 0..<random.number(1...2) {
                // Changes a byte near the beginning, where most of the structured fields are.
                let position = min(bytes.count - 1, random.number(0...80))
                bytes[position] = random.number(0...1) == 0 ? 1 : UInt8(random.number(0...255))
            }
            guard let hello = try? Hello(prefixOf: bytes.span) else { continue }
            accepted += 1
            let rebuilt = try Hello(offers: hello.offers, extensions: hello.extensions)
            #expect(rebuilt.encoded == hello.encoded)
            #expect(bytes.starts(with: hello.encoded))
        }
        #expect(accepted > 200)
    }

    @Test("decoding random bytes after the magic never traps")
    func randomBytes() {
        var random = Random(seed: 3)
        for _ in 0..<4_000 {
            let body = random.bytes(random.number(0...60))
            let length = random.number(0...60)
            let bytes = Hello.magic + [0, UInt8(length)] + body
            _ = try? Hello(prefixOf: bytes.span)
        }
    }

    @Test(
        "a hello that is complete but malformed is refused",
        arguments: [
            ("no offers", [0]),
            ("17 offers", [17] + (0..<17).flatMap { [1, UInt8(0x41 + $0)] }),
            ("255 offers", [255, 1, 0x41]),
            ("a name of no bytes", [1, 0]),
            ("a name beyond the end", [1, 5, 0x41]),
            ("a missing name", [2, 1, 0x41]),
            ("a name with a space", [1, 3, 0x41, 0x20, 0x42]),
            ("a name with a control character", [1, 1, 0x1F]),
            ("a name with DEL", [1, 1, 0x7F]),
            ("a name outside ASCII", [1, 2, 0xC3, 0xA9]),
            ("the same name twice", [2, 1, 0x41, 1, 0x41]),
            ("the same name again after another", [3, 1, 0x41, 1, 0x42, 1, 0x41]),
            ("a trailing byte", [1, 1, 0x41, 0]),
            ("an extension beyond the end", [1, 1, 0x41, 9, 2, 0]),
            ("an extension twice", [1, 1, 0x41, 9, 0, 9, 0]),
        ] as [(String, [UInt8])])
    func malformed(fault: String, body: [UInt8]) {
        let bytes = Hello.magic + [0, UInt8(body.count)] + body
        #expect(throws: ChannelError(.protocolViolation, ""), "\(fault)") {
            try Hello(prefixOf: bytes.span)
        }
    }

    @Test("a length of 0 or above 1,024 is refused before the body arrives")
    func length() {
        for length in [0, 1_025, 65_535] {
            let bytes = Hello.magic + [UInt8(length >> 8), UInt8(length & 0xFF)]
            #expect(throws: ChannelError(.protocolViolation, "")) {
                try Hello(prefixOf: bytes.span)
            }
        }
    }

    @Test("a wrong byte in the magic is refused as soon as it arrives", arguments: 0..<4)
    func magic(position: Int) {
        var bytes = Array(Hello.magic.prefix(position + 1))
        bytes[position] ^= 0x20
        #expect(throws: ChannelError(.protocolViolation, "")) { try Hello(prefixOf: bytes.span) }
    }

    @Test("the largest hello is accepted, and an extension added to it is a configuration error")
    func largest() throws {
        // One byte of count, and four names with their lengths; the last name takes the remaining
        // bytes.
        let longNames = (0..<3).map { String(repeating: "\($0)", count: 255) }
        let lastLength = Hello.maximumBodyLength - 1 - 3 * 256 - 1
        #expect(lastLength <= 255)
        let offers = longNames + [String(repeating: "x", count: lastLength)]
        let hello = try Hello(offers: offers)
        #expect(hello.encoded.count == 6 + Hello.maximumBodyLength)
        #expect(try Hello(prefixOf: hello.encoded.span) == hello)
        #expect(throws: ChannelError(.configuration, "")) {
            try Hello(offers: offers, extensions: [HelloExtension(type: 0, value: [])])
        }
    }

    @Test(
        "no offers, too many offers, and repeated or invalid names are a configuration error",
        arguments: [
            [], ["A", "A"], [""], ["with space"], ["é"], [String(repeating: "A", count: 256)],
            (0..<17).map { "Offer\($0)" },
        ])
    func unsendable(offers: [String]) {
        #expect(throws: ChannelError(.configuration, "")) { try Hello(offers: offers) }
    }

    static func randomHello(_ random: inout Random) throws -> Hello {
        var offers: [String] = []
        for index in 0..<random.number(1...16) {
            let length = random.number(0...20)
            let name = (0..<length).map { _ in UInt8(random.number(0x21...0x7D)) }
            offers.append(String(decoding: name, as: UTF8.self) + "~\(index)")
        }
        let types = Set((0..<random.number(0...4)).map { _ in UInt8(random.number(0...255)) })
        let extensions = types.sorted().map {
            HelloExtension(type: $0, value: random.bytes(random.number(0...50)))
        }
        return try Hello(offers: offers, extensions: extensions)
    }
}
