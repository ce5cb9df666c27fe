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

    @Test(
        "if a reflected hello parses as an answer, the index is the length of the hello's first name"
    )
    func reflected() throws {
        var random = Random(seed: 4)
        for _ in 0..<500 {
            let hello = try HelloTests.random(&random)
            let answer = try? Answer(prefixOf: hello.encoded.span, offerCount: hello.offers.count)
            // A random hello may happen to have the form of an answer. Its number of offers is then
            // read as the status, and the length of its first name as the index.
            if let answer {
                #expect(answer.index == hello.offers[0].utf8.count)
            }
        }
    }
}
