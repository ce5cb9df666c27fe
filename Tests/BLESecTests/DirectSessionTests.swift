import BLESecChannelCore
import BLESecTesting
import Testing

@testable import BLESec

@Suite("The end of a direct channel")
struct DirectSessionTests {
    /// Two ready sides of a direct channel over TLS or Noise. `change` adapts the dialer's
    /// configuration.
    private static func pair(
        _ offer: String, change: (inout ChannelConfiguration) -> Void = { _ in }
    ) throws -> MachinePair {
        var configurations = try CertificateFixture.shared().configurations(
            dialer: [offer], acceptor: [offer])
        (configurations.dialer.mode, configurations.acceptor.mode) = (.direct, .direct)
        change(&configurations.dialer)
        let pair = try MachinePair(dialer: configurations.dialer, acceptor: configurations.acceptor)
        pair.run()
        #expect(pair.isReady)
        return pair
    }

    @Test("over direct Noise, receive returns nil after the peer's end, while the link stays open")
    func endOfOneSide() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels { _, configuration in
            configuration.mode = .direct
        }
        try await acceptor.send([1])
        try await acceptor.finish()
        await fixture.clock.settle()
        #expect(try await dialer.receive() == [1])
        let canReceive = await dialer.canReceive
        try #require(canReceive, "the next call returns without waiting")
        #expect(try await dialer.receive() == nil)
        try await dialer.send([2])
        #expect(try await acceptor.receive() == [2])
        let closings = [dialer, acceptor].map { channel in
            Task(executorPreference: fixture.loop) { try await channel.close() }
        }
        for closing in closings { await fixture.advance(until: closing) }
        await fixture.finish()
    }

    @Test(
        "an empty message ends the peer's direction only; after both ends the link may be closed",
        arguments: [CertificateFixture.noise, CertificateFixture.tls])
    func endsOfBothSides(offer: String) throws {
        let pair = try Self.pair(offer)
        _ = try pair.acceptor.queue([1])
        pair.acceptor.end()
        pair.run()
        #expect(pair.dialer.hasPeerEnded && !pair.acceptor.hasPeerEnded)
        #expect(pair.dialer.takeMessage(now: pair.now) == [1])
        _ = try pair.dialer.queue([2])
        pair.dialer.end()
        pair.run()
        #expect(pair.acceptor.takeMessage(now: pair.now) == [2])
        #expect(
            pair.dialer.permittedLinkShutdown(canHalfClose: false, now: pair.now)
                == .closeWhenDrained)
        pair.dialer.didCloseLink()
        pair.acceptor.linkEnded(nil, now: pair.now)
        #expect(pair.dialer.outcome != nil && pair.dialer.outcome?.code == nil)
        #expect(pair.acceptor.outcome != nil && pair.acceptor.outcome?.code == nil)
    }

    @Test("a Noise message after the peer's end breaks the protocol", arguments: [0, 9])
    func messageAfterEnd(length: Int) throws {
        let pair = try Self.pair(CertificateFixture.noise)
        pair.acceptor.end()
        pair.run()
        let message = [UInt8](repeating: 1, count: length)
        try pair.acceptor.session?.records.seal(message.span)
        pair.run()
        #expect(pair.dialer.outcome?.code == .protocolViolation)
    }

    @Test(
        "a direct session that is too old fails without an end, so its peer is not misled",
        arguments: [CertificateFixture.noise, CertificateFixture.tls])
    func sessionAge(offer: String) throws {
        let pair = try Self.pair(offer) { $0.timeouts.session = .seconds(100) }
        _ = try pair.dialer.queue([1])
        pair.run()
        pair.passTime(.seconds(99))
        #expect(pair.dialer.outcome == nil)
        _ = try pair.dialer.queue([2])
        pair.run()
        pair.passTime(.seconds(1))
        #expect(pair.dialer.outcome?.code == .timedOut)
        pair.run()
        #expect(pair.acceptor.takeMessage(now: pair.now) == [1])
        #expect(pair.acceptor.takeMessage(now: pair.now) == [2])
        #expect(pair.acceptor.hasPeerEnded == false)
        pair.acceptor.linkEnded(nil, now: pair.now)
        // Noise has no proof of the end.
        if offer == CertificateFixture.tls { #expect(pair.acceptor.outcome?.code == .truncated) }
    }
}
