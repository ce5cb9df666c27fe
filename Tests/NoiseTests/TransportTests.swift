import BLESecNoise
import BLESecPrimitives
import FoundationEssentials
import Testing

@Suite struct TransportTests {
    static let xx = "Noise_XX_25519_ChaChaPoly_SHA256"

    @Test(
        "a repeated, early or changed message ends only the receiving direction",
        arguments: ["repeated", "early", "changed"])
    func order(_ fault: String) throws {
        var pair = try TransportPair(Self.xx)
        let first = try pair.initiator.encrypt([1])
        let second = try pair.initiator.encrypt([2])
        let wrong: [UInt8]
        switch fault {
        case "repeated":
            _ = try pair.responder.decrypt(first)
            wrong = first
        case "early": wrong = second
        default: wrong = first.dropLast() + [first[first.count - 1] ^ 1]
        }
        #expect(throws: NoiseError.authenticationFailed) { try pair.responder.decrypt(wrong) }
        #expect(throws: NoiseError.failed) { try pair.responder.decrypt(second) }
        #expect(try pair.initiator.decrypt(pair.responder.encrypt([3])) == [3])
    }

    @Test("2^64 − 2 is the last nonce, in both directions")
    func nonceLimit() throws {
        var pair = try TransportPair(Self.xx)
        pair.initiator.setSendingNonce(.max - 1)
        pair.responder.setReceivingNonce(.max - 1)
        #expect(try pair.responder.decrypt(pair.initiator.encrypt([1])) == [1])
        #expect(throws: NoiseError.nonceExhausted) { try pair.initiator.encrypt([2]) }
        let message = [UInt8](repeating: 0, count: 20)
        #expect(throws: NoiseError.nonceExhausted) { try pair.responder.decrypt(message) }
        #expect(throws: NoiseError.failed) { try pair.initiator.encrypt([2]) }
    }

    @Test("rekey changes the key of one direction, but not the nonce")
    func rekey() throws {
        var pair = try TransportPair(Self.xx)
        _ = try pair.responder.decrypt(pair.initiator.encrypt([1]))
        try pair.initiator.rekeySend()
        try pair.responder.rekeyReceive()
        let nonces = (pair.initiator.sendingNonce, pair.responder.receivingNonce)
        #expect(nonces == (1, 1))
        #expect(try pair.responder.decrypt(pair.initiator.encrypt([2])) == [2])
        #expect(try pair.initiator.decrypt(pair.responder.encrypt([3])) == [3])
        try pair.initiator.rekeySend()
        let message = try pair.initiator.encrypt([4])
        #expect(throws: NoiseError.authenticationFailed) { try pair.responder.decrypt(message) }
    }

    @Test("rekey gives the same keys as an independent implementation")
    func rekeyVectors() throws {
        struct File: Decodable {
            struct Vector: Decodable {
                var cipher, key, ciphertext, plaintext: String
                var nonce: UInt64
            }
            var vectors: [Vector]
        }
        let data = try TestVectors.data("rekey.json")
        let vectors = try JSONDecoder().decode(File.self, from: data).vectors
        #expect(vectors.map(\.cipher) == ["ChaChaPoly", "AESGCM"])
        for vector in vectors {
            var state = CipherState(
                vector.cipher == "AESGCM" ? .aesGCM : .chaChaPoly,
                key: SecretBytes(copying: hex(vector.key).span))
            state.setNonce(vector.nonce)
            try state.rekey()
            let plaintext = hex(vector.plaintext)
            var buffer = plaintext + [UInt8](repeating: 0, count: 16)
            var span = buffer.mutableSpan
            try state.encryptWithAd([], &span, count: plaintext.count)
            #expect(buffer == hex(vector.ciphertext))
        }
    }

    @Test("in a one-way session only the initiator sends")
    func oneWay() throws {
        var pair = try TransportPair("Noise_X_25519_AESGCM_BLAKE2b")
        #expect(try pair.responder.decrypt(pair.initiator.encrypt([1])) == [1])
        #expect(throws: NoiseError.oneWay) { try pair.responder.encrypt([2]) }
        #expect(throws: NoiseError.oneWay) {
            try pair.initiator.decrypt([UInt8](repeating: 0, count: 17))
        }
    }

    @Test("the longest plaintext has 65,519 bytes; a longer one is refused and changes nothing")
    func longest() throws {
        var pair = try TransportPair(Self.xx)
        let longest = [UInt8](repeating: 9, count: TransportState.maximumPlaintextLength)
        #expect(try pair.responder.decrypt(pair.initiator.encrypt(longest)) == longest)
        #expect(throws: NoiseError.messageTooLong(65_536)) {
            try pair.initiator.encrypt(longest + [1])
        }
        #expect(try pair.responder.decrypt(pair.initiator.encrypt([1])) == [1])
    }

    @Test(
        "a message too short for a tag, or too long, ends the receiving direction",
        arguments: [0, 15, 65_536])
    func impossibleLength(_ count: Int) throws {
        var pair = try TransportPair(Self.xx)
        #expect(throws: count < 16 ? NoiseError.messageTooShort(count) : .messageTooLong(count)) {
            try pair.responder.decrypt([UInt8](repeating: 0, count: count))
        }
        let message = try pair.initiator.encrypt([1])
        #expect(throws: NoiseError.failed) { try pair.responder.decrypt(message) }
    }

    @Test(
        "a plaintext near Int.max is refused, and changes nothing",
        arguments: [Int.max - 15, Int.max])
    func plaintextNearMax(_ count: Int) throws {
        var pair = try TransportPair(Self.xx)
        var buffer = [UInt8](repeating: 7, count: 64)
        var span = buffer.mutableSpan
        #expect(throws: NoiseError.messageTooLong(.max)) {
            try pair.initiator.encrypt(inPlace: &span, count: count)
        }
        #expect(buffer == [UInt8](repeating: 7, count: 64))
        #expect(try pair.responder.decrypt(pair.initiator.encrypt([1])) == [1])
    }

    /// Ranges that cannot be a message in a buffer of 64 bytes, each with the error.
    static let impossibleRanges: [(offset: Int, count: Int, error: NoiseError)] = [
        (8, -5, NoiseError.messageTooShort(-5)),
        (0, Int.min, NoiseError.messageTooShort(Int.min)),
        (8, Int.max, NoiseError.messageTooLong(Int.max)),
        (48, 17, NoiseError.messageTooShort(16)),
        (65, 16, NoiseError.messageTooShort(0)),
        (Int.max, 16, NoiseError.messageTooShort(0)),
        (-1, 16, NoiseError.messageTooShort(0)),
        (Int.min, 16, NoiseError.messageTooShort(0)),
    ]

    @Test(
        "a range that cannot be a message is refused, and ends the receiving direction",
        arguments: impossibleRanges)
    func impossibleRange(_ range: (offset: Int, count: Int, error: NoiseError)) throws {
        var pair = try TransportPair(Self.xx)
        var buffer = [UInt8](repeating: 7, count: 64)
        var span = buffer.mutableSpan
        #expect(throws: range.error) {
            try pair.responder.decrypt(inPlace: &span, at: range.offset, count: range.count)
        }
        #expect(buffer == [UInt8](repeating: 7, count: 64))
        let message = try pair.initiator.encrypt([1])
        #expect(throws: NoiseError.failed) { try pair.responder.decrypt(message) }
    }

    @Test("encryption and decryption in place change no byte outside the message")
    func inPlace() throws {
        var pair = try TransportPair(Self.xx)
        var buffer: [UInt8] = [0xAA, 0xAA, 1, 2, 3] + [UInt8](repeating: 0, count: 16) + [0xBB]
        var span = buffer.mutableSpan
        try pair.initiator.encrypt(inPlace: &span, at: 2, count: 3)
        #expect(throws: NoiseError.outputTooSmall(needed: 23)) {
            try pair.initiator.encrypt(inPlace: &span, at: 2, count: 5)
        }
        let length = try pair.responder.decrypt(inPlace: &span, at: 2, count: 19)
        #expect(length == 3)
        #expect(Array(buffer.prefix(5)) == [0xAA, 0xAA, 1, 2, 3])
        #expect(buffer.last == 0xBB)
    }

    @Test("a wiped session refuses to encrypt, decrypt and rekey")
    func wipe() throws {
        var pair = try TransportPair(Self.xx)
        pair.initiator.wipe()
        #expect(throws: NoiseError.failed) { try pair.initiator.encrypt([1]) }
        #expect(throws: NoiseError.failed) {
            try pair.initiator.decrypt([UInt8](repeating: 0, count: 16))
        }
        #expect(throws: NoiseError.failed) { try pair.initiator.rekeySend() }
    }
}
