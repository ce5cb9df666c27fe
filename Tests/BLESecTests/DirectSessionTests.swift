import BLESecChannelCore
import BLESecLinks
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

    @Test("over direct Noise, a reply three seconds after a delayed end still arrives")
    func lateReply() async throws {
        let fixture = try ChannelFixture()
        let (link, other) = await fixture.loop.run { [loop = fixture.loop] in
            let (first, second) = MemoryLink.pair(loop: loop)
            return (FaultyLink(first, [.delay(.milliseconds(10))]), second)
        }
        let dialer = try fixture.channel(over: link, .dialer) { $0.mode = .direct }
        let acceptor = try fixture.channel(over: other, .acceptor) { $0.mode = .direct }
        for opening in [dialer, acceptor].map(fixture.opening) {
            await fixture.advance(until: opening)
        }
        try await dialer.send([1])
        try await dialer.finish()
        await fixture.clock.advance(by: .seconds(3))
        #expect(try await acceptor.receive() == [1])
        try await acceptor.send([2])
        #expect(try await dialer.receive() == [2])
        let closings = [dialer, acceptor].map { channel in
            Task(executorPreference: fixture.loop) { try await channel.close() }
        }
        for closing in closings { await fixture.advance(until: closing) }
        await fixture.finish()
    }

    @Test(
        "an end ends only the direction of its sender; after both ends the link may be closed",
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

    /// Expects that `shutdown` is what the dialer may do now with a link without half-close.
    private static func expectShutdown(
        _ shutdown: LinkShutdown, _ pair: MachinePair, _ comment: Comment
    ) {
        #expect(
            pair.dialer.permittedLinkShutdown(canHalfClose: false, now: pair.now) == shutdown,
            comment)
    }

    @Test("a direct Noise dialer that has ended keeps the link while its program does not read")
    func slowReader() throws {
        let pair = try Self.pair(CertificateFixture.noise)
        let message = [UInt8](repeating: 7, count: 16_384)
        for _ in 0..<20 { _ = try pair.acceptor.queue(message) }
        pair.dialer.end()
        pair.run()
        #expect(!pair.dialer.wantsBytes && pair.dialer.unprocessedBytes > 0)
        for _ in 0..<3 {
            pair.passTime(.seconds(1))
            Self.expectShutdown(.stay, pair, "records wait")
        }
        var count = 0
        while count <= 20 {
            let wasFull = !pair.dialer.wantsBytes
            guard let next = pair.dialer.takeMessage(now: pair.now) else { break }
            #expect(next == message)
            count += 1
            pair.dialer.resumeReading(wasFull: wasFull, now: pair.now)
        }
        #expect(count == 20 && pair.dialer.unprocessedBytes == 0)
        // The quiet second, after which the dialer may close the link, begins when the program
        // reads again.
        pair.passTime(.milliseconds(999))
        Self.expectShutdown(.stay, pair, "the quiet second is not over")
        pair.passTime(.milliseconds(1))
        Self.expectShutdown(.closeWhenDrained, pair, "the quiet second is over")
    }

    @Test("a direct Noise dialer that has ended keeps the link while a record is incomplete")
    func incompleteRecord() throws {
        let pair = try Self.pair(CertificateFixture.noise)
        pair.dialer.end()
        pair.run()
        _ = try pair.acceptor.queue([1, 2, 3])
        let bytes = pair.take(.acceptor)
        pair.deliver(Array(bytes.dropLast()), to: .dialer)
        pair.passTime(.seconds(2))
        Self.expectShutdown(.stay, pair, "a byte is missing")
        pair.deliver(Array(bytes.suffix(1)), to: .dialer)
        #expect(pair.dialer.takeMessage(now: pair.now) == [1, 2, 3])
        pair.passTime(.seconds(1))
        Self.expectShutdown(.closeWhenDrained, pair, "the record is whole")
    }

    @Test(
        "over direct TLS, any byte after the peer's end ends the channel at once",
        arguments: [[23], [23, 3, 3, 0]] as [[UInt8]], [false, true])
    func bytesAfterEnd(bytes: [UInt8], comeWithEnd: Bool) throws {
        let pair = try Self.pair(CertificateFixture.tls)
        pair.acceptor.end()
        let end = pair.take(.acceptor)
        if comeWithEnd {
            pair.deliver(end + bytes, to: .dialer)
        } else {
            pair.deliver(end, to: .dialer)
            #expect(pair.dialer.hasPeerEnded && pair.dialer.outcome == nil)
            pair.deliver(bytes, to: .dialer)
        }
        #expect(pair.dialer.outcome?.code == .protocolViolation)
    }

    @Test("if a program does not read, its close fails with a reason that does not blame the peer")
    func closeWithoutReading() throws {
        let pair = try Self.pair(CertificateFixture.noise) { $0.limits.readAhead = 1 }
        let message = [UInt8](repeating: 7, count: 16_384)
        pair.dialer.close(within: .seconds(5), now: pair.now)
        // A side that closes reads up to 1 MiB more.
        for _ in 0..<64 { _ = try pair.acceptor.queue(message) }
        pair.acceptor.end()
        pair.run()
        #expect(!pair.dialer.wantsBytes && !pair.dialer.hasPeerEnded)
        pair.passTime(.seconds(5))
        let error = pair.dialer.outcome?.error
        #expect(error?.code == .timedOut)
        #expect(error?.reason.contains("this side did not receive") == true)
    }

    @Test(
        "after both ends, a close fails at its deadline if the link does not drain, and says so",
        arguments: [CertificateFixture.noise, CertificateFixture.tls])
    func undrainedLink(offer: String) throws {
        let pair = try Self.pair(offer)
        pair.acceptor.end()
        pair.dialer.close(within: .seconds(5), now: pair.now)
        pair.run()
        pair.passTime(.seconds(4))
        // Something leaves the queue, which restarts the deadline.
        pair.dialer.linkDidPassOn(now: pair.now)
        pair.passTime(.seconds(4))
        #expect(pair.dialer.outcome == nil)
        pair.passTime(.seconds(1))
        let error = pair.dialer.outcome?.error
        #expect(error?.code == .timedOut)
        #expect(error?.reason.contains("the link did not pass on everything") == true)
    }

    @Test(
        "after both ends, without a close, the link gets the close deadline to drain",
        arguments: [ChannelRole.dialer, .acceptor])
    func undrainedLinkWithoutClose(last: ChannelRole) throws {
        let pair = try Self.pair(CertificateFixture.tls)
        if last == .dialer { pair.acceptor.end() } else { pair.dialer.end() }
        pair.run()
        pair.passTime(.seconds(60))
        if last == .dialer { pair.dialer.end() } else { pair.acceptor.end() }
        pair.run()
        let deadline = pair.now.after(ChannelTimeouts().close)
        #expect(pair.dialer.nextTimeout(now: pair.now) == deadline)
        #expect(pair.acceptor.nextTimeout(now: pair.now) == deadline)
        pair.passTime(ChannelTimeouts().close)
        #expect(pair.dialer.outcome?.code == .timedOut)
        #expect(pair.acceptor.outcome?.code == .timedOut)
    }

    @Test("after a half-close by the peer, the link also gets the close deadline to drain")
    func undrainedLinkAfterHalfClose() throws {
        let pair = try Self.pair(CertificateFixture.noise)
        pair.acceptor.end()
        _ = pair.acceptor.transmit(now: pair.now)
        pair.acceptor.linkEnded(nil, canSend: true, now: pair.now)
        #expect(pair.acceptor.outcome == nil && pair.acceptor.hasPeerEnded)
        let deadline = pair.now.after(ChannelTimeouts().close)
        #expect(pair.acceptor.nextTimeout(now: pair.now) == deadline)
    }

    @Test(
        "a direct channel in which nothing arrives for ten minutes stays open",
        arguments: [CertificateFixture.noise, CertificateFixture.tls])
    func silence(offer: String) throws {
        let pair = try Self.pair(offer)
        for _ in 0..<10 { pair.passTime(.seconds(60)) }
        #expect(pair.dialer.outcome == nil && pair.acceptor.outcome == nil)
        #expect(!pair.hasBytes)
    }

    @Test(
        "over direct TLS a side changes its sending key as in negotiated mode; over Noise it does not",
        arguments: [CertificateFixture.noise, CertificateFixture.tls])
    func rekey(offer: String) throws {
        let pair = try Self.pair(offer) { $0.limits.rekeyAfterRecords = 1 }
        let flightsBefore = try #require(pair.sent[.dialer]?.count)
        for number in 0..<2_500 {
            let message = [UInt8(number & 0xFF)]
            _ = try pair.dialer.queue(message)
            pair.run()
            #expect(pair.acceptor.takeMessage(now: pair.now) == message)
        }
        // Over TLS a key serves for at least 1,024 records, however low the limit is.
        let isTLS = offer == CertificateFixture.tls
        let records = pair.dialer.session?.records
        #expect(try #require(records).sending.records == (isTLS ? 2_500 - 2 * 1_024 : 2_500))
        // Two of the flights also have a TLS record that changes the key.
        let lengths = try #require(pair.sent[.dialer]).dropFirst(flightsBefore).map(\.count)
        let shortest = try #require(lengths.min())
        #expect(lengths.count == 2_500)
        #expect(lengths.count { $0 > shortest } == (isTLS ? 2 : 0))
        pair.dialer.end()
        pair.run()
        #expect(pair.acceptor.hasPeerEnded && pair.acceptor.outcome == nil)
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
