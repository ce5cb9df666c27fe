import BLESecChannelCore
import Testing

@Suite("Answer")
struct AnswerTests {
    @Test(
        "of all statuses and indexes, exactly the pairs in the wire format's table are accepted"
    )
    func exhaustive() throws {
        for offerCount in [1, 2, 16] {
            for code in UInt8.min...255 {
                for index in UInt8.min...255 {
                    let bytes = Hello.magic + [0, 2, code, index]
                    let answer = try? Answer(prefixOf: bytes.span, offerCount: offerCount)
                    #expect(
                        (answer != nil) == Self.isAllowed(code, Int(index), offerCount),
                        "status \(code), index \(index) of \(offerCount)")
                    if let answer { #expect(answer.encoded == bytes) }
                }
            }
        }
    }

    /// Whether the table of the wire format allows the combination.
    private static func isAllowed(_ code: UInt8, _ index: Int, _ offerCount: Int) -> Bool {
        switch code {
        case 0, 3, 4: index == 0
        case 1, 2: index > 0 && index < offerCount
        default: false
        }
    }

    @Test("an encoded answer is decoded unchanged, and not before it is complete")
    func roundTrip() throws {
        let all =
            [Answer(.accept), Answer(.refused), Answer(.busy)]
            + (1..<16).flatMap { [Answer(.switch, index: $0), Answer(.fallback, index: $0)] }
        for answer in all {
            let bytes = answer.encoded + [9, 9]
            #expect(try Answer(prefixOf: bytes.span, offerCount: 16) == answer)
            for length in 0..<answer.encoded.count {
                let prefix = bytes.span.extracting(first: length)
                #expect(try Answer(prefixOf: prefix, offerCount: 16) == nil)
            }
        }
    }

    @Test("extensions are kept byte for byte, because the hash in the ready record covers them")
    func extensions() throws {
        let bytes = Hello.magic + [0, 9, 0, 0, 7, 1, 0xAA, 8, 0, 9, 0]
        let answer = try #require(try Answer(prefixOf: bytes.span, offerCount: 1))
        #expect(answer.encoded == bytes)
        #expect(answer.extensions.map(\.type) == [7, 8, 9])
        #expect(answer.extensions[0].value == [0xAA])
    }

    @Test(
        "a malformed answer is refused",
        arguments: [
            [0], [0, 0, 1], [0, 0, 1, 1], [0, 0, 1, 0, 1, 0],
            [0, 0, 1, 2, 3],
        ] as [[UInt8]])
    func malformed(body: [UInt8]) {
        let bytes = Hello.magic + [0, UInt8(body.count)] + body
        #expect(throws: ChannelError(.protocolViolation, "")) {
            try Answer(prefixOf: bytes.span, offerCount: 4)
        }
    }

    @Test("a reflected hello whose first name is longer than one byte is refused as an answer")
    func reflected() throws {
        var random = Random(seed: 4)
        var hellos = try (0..<500).map { _ in try HelloTests.randomHello(&random) }
        // Read as an answer, a hello has its number of offers as the status, and the length of its
        // first name as the index. In the hellos that follow, everything after these two bytes has
        // the form of one extension: the name's first character is the extension's type, and the
        // second is the extension's length. So only status and index are wrong.
        let valueLength = 100
        let lengthCharacter = String(decoding: [UInt8(valueLength)], as: UTF8.self)
        for count in 1...16 {
            // If a hello has only one name, this name is the whole extension.
            let onlyLength = valueLength + 2
            for firstLength in count == 1 ? onlyLength...onlyLength : 2...20 {
                let padding = String(repeating: "x", count: firstLength - 2)
                var offers = ["A" + lengthCharacter + padding]
                var bytesLeft = valueLength - (firstLength - 2)
                for number in 1..<max(count - 1, 1) {
                    offers.append("\(number)")
                    bytesLeft -= 1 + offers[number].utf8.count
                }
                if count > 1 { offers.append(String(repeating: "y", count: bytesLeft - 1)) }
                hellos.append(try Hello(offers: offers))
            }
        }
        for hello in hellos {
            #expect(throws: ChannelError(.protocolViolation, ""), "\(hello.offers)") {
                try Answer(prefixOf: hello.encoded.span, offerCount: hello.offers.count)
            }
        }
    }

    @Test("a hello has the form of an answer only with two offers and a first name of one byte")
    func reflectedShortNames() throws {
        var random = Random(seed: 6)
        var accepted = 0
        for _ in 0..<4_000 {
            let offers = (0..<random.number(1...5)).map { _ in
                let length = random.number(1...3)
                let name = (0..<length).map { _ in UInt8(random.number(0x21...0x7E)) }
                return String(decoding: name, as: UTF8.self)
            }
            let types = Set((0..<random.number(0...2)).map { _ in random.number(0x20...0x40) })
            let extensions = types.sorted().map {
                HelloExtension(type: UInt8($0), value: random.bytes(random.number(0...3)))
            }
            // Two random names may be the same, which a hello does not permit.
            guard let hello = try? Hello(offers: offers, extensions: extensions) else { continue }
            let answer = try? Answer(prefixOf: hello.encoded.span, offerCount: offers.count)
            // The number of offers is read as the status, and the length of the first name as the
            // index. The first name is then the type of an extension, and the second name is the
            // extension's value.
            let firstName = Array(offers[0].utf8)
            let hasForm =
                offers.count == 2 && firstName.count == 1
                && !extensions.contains { $0.type == firstName[0] }
            #expect((answer != nil) == hasForm, "\(hello)")
            guard let answer else { continue }
            accepted += 1
            #expect(answer.status == .switch && answer.index == 1)
            #expect(answer.extensions.first?.value == Array(offers[1].utf8))
        }
        #expect(accepted > 100)
    }
}
