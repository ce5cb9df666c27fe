import BLESecNoise
import BLESecPrimitives
import Testing

@Suite struct StatelessTransportTests {
    @Test(
        "messages decrypt in any order, also twice, and a message with a wrong nonce changes nothing"
    )
    func anyOrder() throws {
        let (left, right) = try ends()
        let messages = try (0..<4).map { try left.value.seal([$0], nonce: UInt64($0)) }
        for index in [2, 0, 3, 1, 1] {
            #expect(try right.value.open(messages[index], nonce: UInt64(index)) == [UInt8(index)])
        }
        #expect(throws: NoiseError.authenticationFailed) {
            try right.value.open(messages[0], nonce: 1)
        }
        #expect(try right.value.open(messages[1], nonce: 1) == [1])
    }

    @Test("the nonce that is reserved for rekey is refused")
    func reserved() throws {
        let (left, right) = try ends()
        #expect(throws: NoiseError.nonceExhausted) { try left.value.seal([1], nonce: .max) }
        let message = try left.value.seal([1], nonce: .max - 1)
        #expect(throws: NoiseError.nonceExhausted) { try right.value.open(message, nonce: .max) }
        #expect(try right.value.open(message, nonce: .max - 1) == [1])
    }

    @Test("nonces that were used before the session became stateless are refused for sending")
    func usedBefore() throws {
        var pair = try TransportPair("Noise_NN_25519_ChaChaPoly_SHA256")
        for _ in 0..<3 { _ = try pair.initiator.encrypt([1]) }
        let (left, right) = pair.stateless()
        #expect(throws: NoiseError.nonceUsed) { try left.value.seal([1], nonce: 2) }
        #expect(try right.value.open(left.value.seal([2], nonce: 3), nonce: 3) == [2])
        #expect(try left.value.open(right.value.seal([3], nonce: 0), nonce: 0) == [3])
    }

    @Test("messages that arrived before the session became stateless are refused afterwards")
    func receivedBefore() throws {
        var pair = try TransportPair("Noise_NN_25519_ChaChaPoly_SHA256")
        var messages: [[UInt8]] = []
        for byte: UInt8 in 0..<3 { messages.append(try pair.initiator.encrypt([byte])) }
        for message in messages.prefix(2) { _ = try pair.responder.decrypt(message) }
        let (_, right) = pair.stateless()
        #expect(right.value.firstReceivingNonce == 2)
        for index in 0..<2 {
            #expect(throws: NoiseError.nonceUsed) {
                try right.value.open(messages[index], nonce: UInt64(index))
            }
        }
        #expect(try right.value.open(messages[2], nonce: 2) == [2])
    }

    @Test("a message after the sender's rekey decrypts only after the receiver's rekey")
    func rekey() throws {
        let (left, right) = try ends()
        try left.value.rekeySend()
        let message = try left.value.seal([7], nonce: 40)
        #expect(throws: NoiseError.authenticationFailed) {
            try right.value.open(message, nonce: 40)
        }
        try right.value.rekeyReceive()
        #expect(try right.value.open(message, nonce: 40) == [7])
    }

    @Test("messages that are too short or too long are refused")
    func lengths() throws {
        let (left, right) = try ends()
        #expect(throws: NoiseError.messageTooShort(15)) {
            try right.value.open([UInt8](repeating: 0, count: 15), nonce: 0)
        }
        #expect(throws: NoiseError.messageTooLong(65_536)) {
            try right.value.open([UInt8](repeating: 0, count: 65_536), nonce: 0)
        }
        #expect(throws: NoiseError.messageTooLong(65_536)) {
            try left.value.seal([UInt8](repeating: 0, count: 65_520), nonce: 0)
        }
        var buffer = [UInt8](repeating: 0, count: 64)
        var span = buffer.mutableSpan
        #expect(throws: NoiseError.messageTooLong(.max)) {
            try left.value.encrypt(inPlace: &span, count: .max, nonce: 0)
        }
    }

    @Test(
        "a range that cannot be a message is refused, and changes nothing",
        arguments: TransportTests.impossibleRanges)
    func impossibleRange(_ range: (offset: Int, count: Int, error: NoiseError)) throws {
        let (left, right) = try ends()
        var buffer = [UInt8](repeating: 7, count: 64)
        var span = buffer.mutableSpan
        #expect(throws: range.error) {
            try right.value.decrypt(inPlace: &span, at: range.offset, count: range.count, nonce: 0)
        }
        #expect(buffer == [UInt8](repeating: 7, count: 64))
        #expect(try right.value.open(left.value.seal([1], nonce: 0), nonce: 0) == [1])
    }

    /// Both ends of a session: the initiator's, then the responder's.
    private func ends() throws -> (End, End) {
        let name = try ProtocolName("Noise_NN_25519_ChaChaPoly_SHA256")
        var pair = try Pair(name, Parties(.x25519))
        try pair.run()
        let transports = try pair.split()
        return transports.stateless()
    }
}

/// A class around a noncopyable value, since a tuple cannot hold noncopyable values.
private final class End {
    var value: StatelessTransport
    init(_ value: consuming StatelessTransport) { self.value = value }
}

extension TransportPair {
    fileprivate consuming func stateless() -> (End, End) {
        let left = End(StatelessTransport(initiator))
        let right = End(StatelessTransport(responder))
        return (left, right)
    }
}

extension StatelessTransport {
    fileprivate mutating func seal(_ plaintext: [UInt8], nonce: UInt64) throws -> [UInt8] {
        var buffer = plaintext + [UInt8](repeating: 0, count: 16)
        var span = buffer.mutableSpan
        try encrypt(inPlace: &span, count: plaintext.count, nonce: nonce)
        return buffer
    }

    fileprivate mutating func open(_ message: [UInt8], nonce: UInt64) throws -> [UInt8] {
        var buffer = message
        var span = buffer.mutableSpan
        let count = try decrypt(inPlace: &span, count: message.count, nonce: nonce)
        return Array(buffer.prefix(count))
    }
}
