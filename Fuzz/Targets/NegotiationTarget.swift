@testable internal import BLESecChannelCore

extension FuzzTarget {
    /// Hello and answer, and their common frame.
    static let negotiation = FuzzTarget(name: "negotiation") { input in
        var script = Script(input)
        let offerCount = script.number(below: 18)
        let bytes = script.takeRest()
        if let hello = try? Hello(prefixOf: bytes.span) {
            precondition(bytes.starts(with: hello.encoded))
            let again = must { try Hello(offers: hello.offers, extensions: hello.extensions) }
            precondition(again == hello, "a hello has two encodings")
            // Bytes after the hello are ignored, and an incomplete hello is not accepted.
            let shorter = Array(hello.encoded.dropLast())
            precondition(must { try Hello(prefixOf: shorter.span) } == nil)
        }
        if let answer = try? Answer(prefixOf: bytes.span, offerCount: offerCount) {
            precondition(bytes.starts(with: answer.encoded))
            precondition(answer.index == 0 || answer.index < offerCount)
            let again = must { try Answer(prefixOf: answer.encoded.span, offerCount: offerCount) }
            precondition(again == answer, "an answer has two encodings")
            guard answer.extensions.isEmpty else { return }
            precondition(Answer(answer.status, index: answer.index) == answer)
        }
    } seeds: {
        let names = ["Noise_XX_25519_ChaChaPoly_SHA256", "TLS", "x"]
        let hellos = try [
            Hello(offers: names),
            Hello(
                offers: Array(names.prefix(1)),
                extensions: [
                    HelloExtension(type: 1, value: [1, 2]), HelloExtension(type: 2, value: []),
                ]),
            Hello(offers: (0..<16).map { "\($0)" }),
        ].map(\.encoded)
        let answers = [
            Answer(.accept), Answer(.refused), Answer(.busy), Answer(.switch, index: 1),
            Answer(.fallback, index: 2),
        ].map(\.encoded)
        return (hellos + answers).map { [3] + $0 }
    }
}
