import BLESecChannelCore
import BLESecPrimitives
import CBLESecOpenSSL
import TestSupport
import Testing

@testable import BLESecTLSEngine

@Suite("Established TLS engines")
struct EstablishedTests {
    static let authority = Result { try TestAuthority() }
    static let contexts = Result {
        try (
            dialer: authority.get().context("dialer"), acceptor: authority.get().context("acceptor")
        )
    }

    static func pair(isNegotiated: Bool = true) throws -> EnginePair {
        let contexts = try contexts.get()
        var pair = try EnginePair(contexts.dialer, contexts.acceptor, isNegotiated: isNegotiated)
        try pair.shakeHands()
        return pair
    }

    @Test("both sides agree on the session and know each other", arguments: [true, false])
    func agreement(isNegotiated: Bool) throws {
        let pair = try Self.pair(isNegotiated: isNegotiated)
        let contexts = try Self.contexts.get()
        #expect(
            pair.dialer.established
                == .certificate(
                    subjectPublicKeyInfo: contexts.acceptor.identity.subjectPublicKeyInfo,
                    uri: "blesec://devices/acceptor"))
        #expect(
            pair.acceptor.established
                == .certificate(
                    subjectPublicKeyInfo: contexts.dialer.identity.subjectPublicKeyInfo,
                    uri: "blesec://devices/dialer"))
        #expect(pair.dialer.handshakeHash.count == 32)
        #expect(pair.dialer.handshakeHash == pair.acceptor.handshakeHash)
    }

    @Test("a handshake with Ed25519 takes at most 1,450 bytes in both directions together")
    func handshakeBytes() throws {
        let pair = try Self.pair()
        let total = pair.sentCounts.values.reduce(0, +)
        #expect(total <= 1_450, "\(pair.sentCounts)")
    }

    @Test("a handshake works in pieces of any size", arguments: [1, 2, 7, 100])
    func pieces(piece: Int) throws {
        let contexts = try Self.contexts.get()
        var pair = try EnginePair(contexts.dialer, contexts.acceptor)
        try pair.shakeHands(piece: piece)
        #expect(pair.dialer.established != nil && pair.acceptor.established != nil)
    }

    @Test(
        "records of 0 to 65,518 bytes are read unchanged",
        arguments: [0, 1, 100, 16_380, 16_381, 16_382, 16_384, 32_768, 65_518])
    func records(count: Int) throws {
        var pair = try Self.pair()
        let payload = (0..<count).map { UInt8(truncatingIfNeeded: $0 * 7) }
        let length = pair.dialer.sealedLength(count + 1)
        let record = try pair.dialer.sealed(9, payload)
        #expect(record.count == length)
        #expect(try pair.acceptor.opened(record) == [[9] + payload])
        #expect(try pair.dialer.opened(pair.acceptor.sealed(9, payload)) == [[9] + payload])
    }

    /// `code` stands for records of 512, 1,024, 2,048 or 4,096 bytes of content.
    @Test(
        "a dialer that asks for short TLS records gets them, in a resumed session too",
        arguments: 1...4)
    func shortRecords(code: Int) throws {
        let authority = try TestAuthority()
        var options = TLSOptions()
        options.resumes = true
        let dialer = try authority.context("dialer", options: options)
        let acceptor = try authority.context("acceptor", options: options)
        #expect(
            unsafe SSL_CTX_set_tlsext_max_fragment_length(dialer.pointer, UInt8(code)) == 1)
        let longest = 256 << code
        var handshakeCounts: [Int] = []
        for _ in 0..<2 {
            var pair = try EnginePair(dialer, acceptor)
            try pair.shakeHands()
            handshakeCounts.append(pair.sentCounts.values.reduce(0, +))
            try pair.readTickets()
            // blesec adds a length of two bytes and a type of one byte to the payload.
            #expect(pair.acceptor.bulkPayload == longest - 3)
            for count in [0, longest - 3, longest - 2, 20_000, 65_518] {
                let payload = (0..<count).map { UInt8(truncatingIfNeeded: $0 * 7) }
                try pair.acceptor.rekeySending()
                let length = pair.acceptor.sealedLength(count + 1)
                let record = try pair.acceptor.sealed(9, payload)
                #expect(record.count == length)
                #expect(try pair.dialer.opened(record) == [[9] + payload])
                #expect(
                    try pair.acceptor.opened(pair.dialer.sealed(9, payload)) == [[9] + payload])
            }
        }
        // The second handshake has resumed the session of the first.
        #expect(handshakeCounts[1] < handshakeCounts[0] - 500)
    }

    @Test("a record of more than 65,518 bytes is refused before it is sent")
    func tooLong() throws {
        var pair = try Self.pair()
        #expect(throws: ChannelError.self) {
            _ = try pair.dialer.sealed(0, [UInt8](repeating: 0, count: 65_519))
        }
    }

    @Test(
        "records are opened, whether a piece of the stream has part of a record or several records",
        arguments: [1, 3, 50, 5_000])
    func recordPieces(piece: Int) throws {
        var pair = try Self.pair()
        var wire: [UInt8] = []
        var expected: [[UInt8]] = []
        for size in [0, 20, 40_000, 1, 16_381, 300] {
            let payload = [UInt8](repeating: UInt8(size & 0xFF), count: size)
            expected.append([0] + payload)
            wire += try pair.dialer.sealed(0, payload)
        }
        var buffer: [UInt8] = []
        var opened: [[UInt8]] = []
        for start in stride(from: 0, to: wire.count, by: piece) {
            buffer += wire[start..<min(start + piece, wire.count)]
            opened += try pair.acceptor.opened(&buffer)
        }
        #expect(opened == expected)
        #expect(buffer.isEmpty)
    }

    @Test("after a rekey sealedLength includes the key update that comes before the next record")
    func keyUpdate() throws {
        var pair = try Self.pair()
        let lengthWithoutUpdate = pair.dialer.sealedLength(2)
        try pair.dialer.rekeySending()
        let length = pair.dialer.sealedLength(2)
        #expect(length > lengthWithoutUpdate)
        #expect(try pair.dialer.sealed(1, [5]).count == length)
        #expect(pair.dialer.sealedLength(2) == lengthWithoutUpdate)
    }

    @Test("records of both sides are opened after a change of key, 40 times in a row")
    func afterKeyUpdate() throws {
        var pair = try Self.pair()
        for round in 0..<40 as Range<UInt8> {
            try pair.dialer.rekeySending()
            if round % 2 == 0 { try pair.acceptor.rekeySending() }
            #expect(try pair.acceptor.opened(pair.dialer.sealed(1, [round])) == [[1, round]])
            #expect(try pair.dialer.opened(pair.acceptor.sealed(2, [round])) == [[2, round]])
        }
    }

    @Test("exported keys are equal on both sides, differ by label and context, and survive a rekey")
    func export() throws {
        var pair = try Self.pair()
        let first = try pair.dialer.export(label: "a", context: [1], count: 48)
        #expect(try pair.acceptor.export(label: "a", context: [1], count: 48).isEqual(to: first))
        #expect(try !pair.dialer.export(label: "a", context: [2], count: 48).isEqual(to: first))
        #expect(try !pair.dialer.export(label: "b", context: [1], count: 48).isEqual(to: first))
        try pair.dialer.rekeySending()
        _ = try pair.acceptor.opened(pair.dialer.sealed(0, []))
        #expect(try pair.dialer.export(label: "a", context: [1], count: 48).isEqual(to: first))
        for count in [0, -1, 8_161] {
            #expect(throws: ChannelError(.configuration, "")) {
                _ = try pair.dialer.export(label: "a", context: [], count: count)
            }
        }
        #expect(try pair.dialer.export(label: "a", context: [], count: 8_160).count == 8_160)
    }

    /// What an attacker does to the dialer's records.
    enum Attack: CaseIterable { case replay, skip, reflect, change }

    @Test(
        "a record does not open if it is replayed, reflected, changed, or follows a skipped record",
        arguments: Attack.allCases)
    func attacks(attack: Attack) throws {
        var pair = try Self.pair()
        let first = try pair.dialer.sealed(0, [1])
        let second = try pair.dialer.sealed(0, [1])
        #expect(throws: ChannelError(.authenticationFailed, "")) {
            switch attack {
            case .replay:
                #expect(try pair.acceptor.opened(first) == [[0, 1]])
                _ = try pair.acceptor.opened(first)
            case .skip: _ = try pair.acceptor.opened(second)
            case .reflect: _ = try pair.dialer.opened(first)
            case .change:
                _ = try pair.acceptor.opened(first.dropLast() + [first[first.count - 1] ^ 1])
            }
        }
    }

    @Test("direct mode carries bytes unchanged, and authenticates the end")
    func direct() throws {
        var pair = try Self.pair(isNegotiated: false)
        #expect(try pair.acceptor.opened(pair.dialer.sealed(nil, [1, 2, 3])) == [[1, 2, 3]])
        let length = pair.dialer.sealedLength(0)
        let end = try pair.dialer.sealed(nil, [])
        #expect(end.count == length)
        #expect(try pair.acceptor.opened(end) == [[]])
        // The other direction stays open.
        #expect(try pair.dialer.opened(pair.acceptor.sealed(nil, [4])) == [[4]])
        #expect(throws: ChannelError.self) { _ = try pair.acceptor.opened(end) }
    }
}
