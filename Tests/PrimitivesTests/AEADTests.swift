import BLESecPrimitives
import Testing

@Suite struct AEADTests {
    static let key = hex("1c9240a5eb55d38af333888604f6b5f0473917c1402b80099dca5cbc207075c0")
    static let additionalData = hex("f33388860000000000004e91")

    @Test(
        "sealed bytes can be opened, whether libsodium or OpenSSL is used for their length",
        arguments: AEADAlgorithm.allCases)
    func roundTrip(_ algorithm: AEADAlgorithm) throws {
        for count in [0, 1, 15, 16, 17, 64, 255, 256, 257, 383, 384, 385, 1024, 65_519] {
            let plaintext = [UInt8]((0..<count).map { UInt8(truncatingIfNeeded: $0 * 7) })
            let sealed = try seal(algorithm, plaintext, nonce: UInt64(count))
            #expect(try open(algorithm, sealed, nonce: UInt64(count)) == plaintext)
        }
    }

    @Test(
        "libsodium and OpenSSL give the same bytes, for messages from 0 to 65,519 bytes",
        arguments: AEADAlgorithm.allCases)
    func libraries(_ algorithm: AEADAlgorithm) throws {
        // OpenSSL is used for messages of at least `crossover` bytes, libsodium for shorter ones.
        let key = SecretBytes(copying: Self.key.span)
        var sodium = AEAD(algorithm, key: key, crossover: .max)
        var openSSL = AEAD(algorithm, key: key, crossover: 0)
        for count in [0, 1, 15, 16, 17, 255, 1_000, 65_519] {
            for additionalData in [[], Self.additionalData] {
                let plaintext = [UInt8](repeating: UInt8(truncatingIfNeeded: count), count: count)
                var sealedBySodium = plaintext + [UInt8](repeating: 0, count: 16)
                var sealedByOpenSSL = sealedBySodium
                try sodium.sealWhole(&sealedBySodium, additionalData)
                try openSSL.sealWhole(&sealedByOpenSSL, additionalData)
                #expect(sealedBySodium == sealedByOpenSSL)
                try sodium.openWhole(&sealedByOpenSSL, additionalData)
                try openSSL.openWhole(&sealedBySodium, additionalData)
                #expect(Array(sealedBySodium.prefix(count)) == plaintext)
                #expect(Array(sealedByOpenSSL.prefix(count)) == plaintext)
            }
        }
    }

    @Test(
        "encryption into another buffer gives the same bytes as in place, also if the plaintext is in two parts",
        arguments: AEADAlgorithm.allCases, [0, Int.max])
    func appended(_ algorithm: AEADAlgorithm, _ crossover: Int) throws {
        var aead = AEAD(
            algorithm, key: SecretBytes(copying: Self.key.span), crossover: crossover)
        let leadingBytes: [UInt8] = [0xAA, 0xBB]
        for count in [0, 1, 15, 383, 1_000, 8_190, 8_191, 8_192, 8_193, 16_384, 65_518] {
            let message = (0..<count).map { UInt8(truncatingIfNeeded: $0 * 13) }
            for headCount in [0, 1, 25, 1_024] {
                let head = [UInt8](repeating: 0x5C, count: headCount)
                var expected = head + message + [UInt8](repeating: 0, count: 16)
                var span = expected.mutableSpan
                try aead.seal(&span, count: span.count - 16, nonce: 7)
                let appended = try [UInt8](
                    capacity: leadingBytes.count + expected.count
                ) { output in
                    output.append(copying: leadingBytes.span)
                    try aead.seal(head.span, message.span, into: &output, nonce: 7)
                }
                #expect(appended == leadingBytes + expected)
            }
        }
    }

    @Test(
        "a changed bit, nonce or additional data is refused, and the ciphertext is wiped",
        arguments: AEADAlgorithm.allCases, [20, 600])
    func tampering(_ algorithm: AEADAlgorithm, _ count: Int) throws {
        let sealed = try seal(algorithm, [UInt8](repeating: 1, count: count), nonce: 3)
        for index in [0, count / 2, count, sealed.count - 1] {
            var changed = sealed
            changed[index] ^= 0x10
            #expect(throws: CryptoError.authenticationFailed) {
                try open(algorithm, changed, nonce: 3)
            }
        }
        #expect(throws: CryptoError.authenticationFailed) {
            try open(algorithm, sealed, nonce: 4)
        }
        #expect(throws: CryptoError.authenticationFailed) {
            try open(algorithm, sealed, nonce: 3, additionalData: [])
        }
        var changed = sealed
        changed[0] ^= 1
        var aead = AEAD(algorithm, key: SecretBytes(copying: Self.key.span))
        #expect(throws: CryptoError.authenticationFailed) {
            var span = changed.mutableSpan
            try aead.open(
                &span, count: span.count, nonce: 3, additionalData: Self.additionalData.span)
        }
        #expect(changed.prefix(count).allSatisfy { $0 == 0 })
    }

    @Test("a message that is shorter than a tag is refused", arguments: AEADAlgorithm.allCases)
    func short(_ algorithm: AEADAlgorithm) {
        for count in 0..<16 {
            #expect(throws: CryptoError.authenticationFailed) {
                try open(algorithm, [UInt8](repeating: 0, count: count), nonce: 0)
            }
        }
    }

    @Test(
        "sealing inside a larger buffer changes no byte around the message",
        arguments: AEADAlgorithm.allCases, [10, 1000])
    func offset(_ algorithm: AEADAlgorithm, _ count: Int) throws {
        var aead = AEAD(algorithm, key: SecretBytes(copying: Self.key.span))
        var buffer = [UInt8](repeating: 0xEE, count: count + 16 + 8)
        var span = buffer.mutableSpan
        try aead.seal(&span, at: 5, count: count, nonce: 1)
        #expect(buffer.prefix(5).allSatisfy { $0 == 0xEE })
        #expect(buffer.suffix(3).allSatisfy { $0 == 0xEE })
        var sealed = buffer.mutableSpan
        try aead.open(&sealed, at: 5, count: count + 16, nonce: 1)
        #expect(buffer[5..<5 + count].allSatisfy { $0 == 0xEE })
    }

    @Test(
        "a context opens what it has sealed, and after a change of key seals as a new context does",
        arguments: AEADAlgorithm.allCases)
    func keyReplacement(_ algorithm: AEADAlgorithm) throws {
        var context = AEAD(algorithm, key: SecretBytes(copying: Self.key.span))
        for round in 0..<4 {
            for count in [40, 2000] {
                var buffer = [UInt8](repeating: UInt8(round), count: count + 16)
                var span = buffer.mutableSpan
                try context.seal(&span, count: count, nonce: UInt64(round))
                try context.open(&span, count: count + 16, nonce: UInt64(round))
                #expect(buffer.prefix(count).allSatisfy { $0 == UInt8(round) })
            }
            let nextKey = SecretBytes(copying: [UInt8](repeating: UInt8(round), count: 32).span)
            context.replaceKey(nextKey)
            for count in [40, 2000] {
                var newContext = AEAD(algorithm, key: nextKey)
                #expect(
                    try context.sealed([UInt8](repeating: 7, count: count))
                        == newContext.sealed([UInt8](repeating: 7, count: count)))
            }
        }
    }

    private func seal(
        _ algorithm: AEADAlgorithm, _ plaintext: [UInt8], nonce: UInt64
    ) throws -> [UInt8] {
        var aead = AEAD(algorithm, key: SecretBytes(copying: Self.key.span))
        var buffer = plaintext + [UInt8](repeating: 0, count: 16)
        var span = buffer.mutableSpan
        try aead.seal(
            &span, count: plaintext.count, nonce: nonce, additionalData: Self.additionalData.span)
        return buffer
    }

    @discardableResult private func open(
        _ algorithm: AEADAlgorithm, _ sealed: [UInt8], nonce: UInt64,
        additionalData: [UInt8] = additionalData
    ) throws -> [UInt8] {
        var aead = AEAD(algorithm, key: SecretBytes(copying: Self.key.span))
        var buffer = sealed
        var span = buffer.mutableSpan
        try aead.open(
            &span, count: sealed.count, nonce: nonce, additionalData: additionalData.span)
        return Array(buffer.dropLast(16))
    }
}

extension AEAD {
    /// Seals the buffer; its last 16 bytes are the space for the tag.
    fileprivate mutating func sealWhole(
        _ buffer: inout [UInt8], _ additionalData: [UInt8]
    ) throws {
        var span = buffer.mutableSpan
        try seal(
            &span, count: span.count - 16, nonce: 1 << 40, additionalData: additionalData.span)
    }

    fileprivate mutating func openWhole(
        _ buffer: inout [UInt8], _ additionalData: [UInt8]
    ) throws {
        var span = buffer.mutableSpan
        try open(&span, count: span.count, nonce: 1 << 40, additionalData: additionalData.span)
    }

    fileprivate mutating func sealed(_ plaintext: [UInt8]) throws -> [UInt8] {
        var buffer = plaintext + [UInt8](repeating: 0, count: 16)
        var span = buffer.mutableSpan
        try seal(&span, count: plaintext.count, nonce: 77)
        return buffer
    }
}
