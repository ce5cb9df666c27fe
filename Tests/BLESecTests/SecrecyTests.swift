import BLESecChannelCore
import BLESecNoise
import BLESecPrimitives
import Testing

@testable import BLESec

/// What an eavesdropper does not learn, and what SECURITY.md says an eavesdropper does learn.
@Suite("What an eavesdropper learns")
struct SecrecyTests {
    static let offers = [CertificateFixture.noise, CertificateFixture.tls]

    /// All bytes that the dialer has sent, and then all bytes that the acceptor has sent.
    static func bytesOnLink(of pair: MachinePair) -> [UInt8] {
        [ChannelRole.dialer, .acceptor].flatMap { pair.sent[$0, default: []].flatMap(\.self) }
    }

    @Test("no plaintext of a message appears on the link; the offers do", arguments: offers)
    func ciphertext(offer: String) throws {
        let pair = try CertificateFixture.shared().pair(dialer: [offer], acceptor: [offer])
        pair.run()
        let message = Array("a message that nobody else may read".utf8)
        for _ in 0..<3 {
            _ = try pair.dialer.queue(message)
            _ = try pair.acceptor.queue(message)
            pair.run()
            #expect(pair.acceptor.nextMessage() == message)
            #expect(pair.dialer.nextMessage() == message)
        }
        let bytesOnLink = Self.bytesOnLink(of: pair)
        for start in 0...message.count - 8 {
            #expect(!bytesOnLink.contains(Array(message[start..<start + 8])))
        }
        // The dialer has sent the same message three times, as three different ciphertexts.
        let lengths = pair.sent[.dialer, default: []].suffix(3).map(\.count)
        #expect(
            Set(lengths).count == 1, "an eavesdropper sees that the messages have the same length")
        #expect(Set(pair.sent[.dialer, default: []].suffix(3)).count == 3)
        #expect(
            bytesOnLink.contains(Array(offer.utf8)), "an eavesdropper sees the offers in the hello")
    }

    @Test("with XX neither side's public key appears in clear on the link")
    func keys() throws {
        let pinned = try PinnedPeers()
        let pair = try pinned.pair()
        pair.run()
        #expect(pair.isReady)
        let bytesOnLink = Self.bytesOnLink(of: pair)
        #expect(!bytesOnLink.contains(pinned.dialer.publicKey))
        #expect(!bytesOnLink.contains(pinned.acceptor.publicKey))
    }

    @Test("every protocol offered by default mixes in ee, the DH result of two ephemeral keys")
    func forwardSecrecy() throws {
        let configuration = ChannelConfiguration(identity: try .generate(), trust: .anyone)
        for offer in configuration.protocols {
            let tokens = try ProtocolName(offer).pattern.messages.flatMap(\.tokens)
            #expect(tokens.contains(.ee), "\(offer)")
        }
    }

    @Test(
        "two sessions between the same peers differ in first flights, keys and handshake hashes",
        arguments: offers
    )
    func fresh(offer: String) throws {
        let fixture = try CertificateFixture.shared()
        let pairs = try (0..<2).map { _ in try fixture.pair(dialer: [offer], acceptor: [offer]) }
        for pair in pairs {
            pair.run()
            #expect(pair.isReady)
        }
        #expect(pairs[0].dialer.handshakeHash != pairs[1].dialer.handshakeHash)
        #expect(pairs[0].sent[.dialer]?.first != pairs[1].sent[.dialer]?.first)
        #expect(pairs[0].sent[.acceptor]?.first != pairs[1].sent[.acceptor]?.first)
        let key = try pairs[0].dialer.export(label: "k", context: [], count: 32)
        #expect(try !pairs[1].dialer.export(label: "k", context: [], count: 32).isEqual(to: key))
    }

    @Test("a direct Noise stream that is cut between two messages looks as if it had ended")
    func directNoiseIsCut() throws {
        var configurations = try PinnedPeers().configurations(CertificateFixture.noise)
        (configurations.dialer.mode, configurations.acceptor.mode) = (.direct, .direct)
        let pair = try MachinePair(dialer: configurations.dialer, acceptor: configurations.acceptor)
        pair.run()
        _ = try pair.dialer.queue([1])
        pair.run()
        // The second message is sent, but does not arrive.
        _ = try pair.dialer.queue([2])
        _ = pair.take(.dialer)
        pair.acceptor.linkEnded(nil, now: pair.now)
        #expect(pair.acceptor.nextMessage() == [1])
        #expect(pair.acceptor.outcome?.code == nil && pair.acceptor.outcome != nil)
    }
}

extension [UInt8] {
    /// Whether the array contains `part`.
    fileprivate func contains(_ part: [UInt8]) -> Bool { firstRange(of: part) != nil }
}
