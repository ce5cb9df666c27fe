import BLESecChannelCore
import BLESecLinks
import BLESecLocking
import BLESecTesting
import Testing

@testable import BLESec

@Suite("Closing, receiving and claiming memory in unusual situations")
struct WrongMomentTests {
    /// A dialer with a full inbox, and its acceptor. The acknowledgement of the dialer's message
    /// waits behind the message that fills the inbox.
    private func channelsWithFullInbox(
        _ fixture: ChannelFixture
    ) async throws -> (dialer: SecureChannel, acceptor: SecureChannel) {
        let (dialer, acceptor) = try await fixture.channels { role, configuration in
            if role == .dialer {
                configuration.limits.readAhead = 1_000
                configuration.timeouts.idle = .seconds(20)
            }
        }
        try await dialer.send([1])
        await fixture.clock.settle()
        #expect(try await acceptor.receive() == [1])
        await fixture.loop.run {
            acceptor.assumeIsolated { channel in
                _ = try? channel.queue(Array(repeating: 1, count: 1_000))
                try? channel.finish()
            }
        }
        await fixture.clock.settle()
        return (dialer, acceptor)
    }

    @Test("close processes an acknowledgement that is already in the buffer")
    func closeProcesses() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await channelsWithFullInbox(fixture)
        let closing = Task(executorPreference: fixture.loop) { try await dialer.close() }
        await fixture.clock.settle()
        #expect(await dialer.acknowledged >= 1)
        await fixture.clock.advance(by: .seconds(11))
        #expect(await failure(of: closing) == .timedOut)
        await acceptor.abort()
        await fixture.finish()
    }

    @Test("a close after a long time without receiving does not count that time as silence")
    func closeStale() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await channelsWithFullInbox(fixture)
        await fixture.clock.advance(by: .seconds(45))
        #expect(await dialer.failure == nil)
        let closing = Task(executorPreference: fixture.loop) { try await dialer.close() }
        await fixture.clock.advance(by: .milliseconds(100))
        #expect(await dialer.failure == nil)
        await dialer.abort()
        _ = await failure(of: closing)
        await acceptor.abort()
        await fixture.finish()
    }

    @Test("a bad record behind a full inbox ends the channel only when the program receives")
    func failureBehindMessages() async throws {
        let pair = try PinnedPeers().pair()
        pair.run()
        let handshakeBytes = pair.sent[.dialer, default: []].reduce(0) { $0 + $1.count }
        let message = [UInt8](repeating: 1, count: 1_000)
        let fixture = try ChannelFixture()
        // The changed byte belongs to the second message's record.
        let (first, second) = await fixture.links([
            .dialer: [.flip(offset: handshakeBytes + 1_100, mask: 1)]
        ])
        let dialer = try fixture.channel(over: first, .dialer)
        let acceptor = try fixture.channel(over: second, .acceptor) { $0.limits.readAhead = 1_000 }
        let openings = [fixture.opening(dialer), fixture.opening(acceptor)]
        for opening in openings { try await opening.value }
        let ending = Task(executorPreference: fixture.loop) { try await acceptor.waitUntilOver() }
        try await fixture.loop.run {
            for _ in 0..<2 { _ = try dialer.assumeIsolated { try $0.queue(message) } }
        }
        await fixture.clock.settle()
        #expect(await acceptor.failure == nil)
        #expect(try await acceptor.receive() == message)
        #expect(await failure(of: ending) == .authenticationFailed)
        await dialer.abort()
        await fixture.finish()
    }

    @Test("a session that expires sends its end, even while the program does not receive")
    func expiryWhileFull() throws {
        let peer = try MaliciousNoisePeer.ready {
            $0.timeouts.session = .seconds(90)
            $0.limits.readAhead = 1_000
        }
        try peer.send(.data, [UInt8](repeating: 1, count: 1_000))
        #expect(peer.victim.wantsBytes == false)
        try peer.passTime(.seconds(91))
        #expect(peer.victimFailure == nil)
        #expect(peer.records.contains { $0 == (.end, [EndReason.expired.rawValue]) })
    }

    @Test("if the link ends before an acceptor has sent its ready, the acceptor reports no peer")
    func endBeforeReady() throws {
        let pair = try PinnedPeers().pair()
        for role in [ChannelRole.dialer, .acceptor] { pair.step(role) }
        let lastFlight = pair.take(.dialer)
        pair.deliver(lastFlight, to: .acceptor)
        #expect(pair.acceptor.phase == .proving)
        pair.acceptor.linkEnded(nil, now: pair.now)
        #expect(pair.acceptor.peer == nil && pair.acceptor.outcome?.code == .truncated)
    }

    @Test("a piece of a message that arrives together with ready counts towards its peer's share")
    func share() throws {
        let pinned = try PinnedPeers()
        let budget = ReassemblyBudget(bytes: 1_000_000, share: 50_000)
        // Three channels to one identity: together their pieces exceed the identity's share.
        let channels = try (0..<3).map { _ in
            let peer = try MaliciousNoisePeer(pinned: pinned, budget: budget) {
                $0.limits.maximumMessageLength = 40_000
            }
            try peer.deliverReadyAndFirstPieceTogether()
            #expect(peer.isVictimReady)
            return peer
        }
        for channel in channels {
            try channel.send(.dataMore, Array(repeating: 1, count: 16_000))
            try channel.send(.dataMore, Array(repeating: 1, count: 4_000))
        }
        #expect(channels.map(\.victimFailure) == [nil, nil, .limitExceeded])
    }

    @Test("a close after a minute without receiving measures the peer's silence from the close")
    func machineStale() throws {
        let peer = try MaliciousNoisePeer.ready { $0.limits.readAhead = 1_000 }
        try peer.send(.data, Array(repeating: 1, count: 1_000))
        #expect(peer.victim.wantsBytes == false)
        try peer.passTime(.seconds(61))
        peer.victim.close(now: peer.now)
        peer.victim.sealPending(now: peer.now)
        peer.victim.handleTimeout(now: peer.now)
        #expect(peer.victimFailure == nil)
    }

    @Test("an acceptor's close deadline starts again when the dialer's end arrives")
    func restartedDeadline() throws {
        let peer = try MaliciousNoisePeer.ready()
        peer.victim.close(now: peer.now)
        try peer.pump()
        try peer.send(.ack, UInt64(1).bigEndianBytes)
        try peer.passTime(.milliseconds(9_900))
        peer.isBlocked = true
        try peer.send(.end, [0])
        try peer.passTime(.milliseconds(200))
        #expect(peer.victim.outcome == nil)
    }

    @Test("an end with the reason `expired` does not count as the end of the peer's connection")
    func expired() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels { role, configuration in
            if role == .dialer { configuration.timeouts.session = .seconds(100) }
        }
        var rules = ReconnectPolicy()
        rules.endsWithPeer = true
        let dialerConnection = await PeerConnection.start(
            .offered, rules: rules, loop: fixture.loop)
        let acceptorConnection = await PeerConnection.start(
            .offered, rules: rules, loop: fixture.loop)
        #expect(await dialerConnection.offer(dialer))
        #expect(await acceptorConnection.offer(acceptor))
        await fixture.clock.advance(by: .seconds(101))
        #expect(await dialerConnection.hasPeerEnded == false)
        #expect(await acceptorConnection.hasPeerEnded == false)
        #expect(await acceptor.isOver)
        await dialerConnection.shut(nil)
        await acceptorConnection.shut(nil)
        await dialer.abort()
        await acceptor.abort()
        await fixture.clock.settle()
        await fixture.finish()
    }

    @Test("two readers of one byte stream lose no byte")
    func twoReaders() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels()
        let readers = (0..<2).map { _ in
            Task(executorPreference: fixture.loop) { try await acceptor.byteStream.read(atMost: 1) }
        }
        await fixture.clock.settle()
        await fixture.loop.run {
            dialer.assumeIsolated { channel in
                _ = try? channel.queue([1, 2])
                _ = try? channel.queue([3, 4])
            }
        }
        await fixture.clock.settle()
        var received: [UInt8] = []
        for reader in readers { received += try await reader.value ?? [] }
        let rest = Task(executorPreference: fixture.loop) { () async throws -> [UInt8] in
            var rest: [UInt8] = []
            while rest.count < 2, let more = try await acceptor.byteStream.read(atMost: 1) {
                rest += more
            }
            return rest
        }
        await fixture.clock.settle()
        await dialer.abort()
        await fixture.clock.settle()
        if let more = try? await rest.value { received += more }
        #expect(received.sorted() == [1, 2, 3, 4])
        await acceptor.abort()
        await fixture.finish()
    }

    @Test("deliver succeeds although the program that calls it receives only one message a second")
    func slowReceiver() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels()
        let acceptorSending = Task(executorPreference: fixture.loop) {
            for _ in 0..<3 { try await acceptor.send(Array(repeating: 1, count: 1 << 20)) }
        }
        let dialerReceiving = Task(executorPreference: fixture.loop) {
            for _ in 0..<3 {
                _ = try await dialer.receive()
                try await fixture.loop.sleep(for: .seconds(1))
            }
        }
        let acceptorReceiving = Task(executorPreference: fixture.loop) {
            _ = try await acceptor.receive()
        }
        let delivering = Task(executorPreference: fixture.loop) {
            _ = try await dialer.deliver([2])
        }
        for _ in 0..<10 { await fixture.clock.advance(by: .seconds(1)) }
        #expect(await failure(of: delivering) == nil)
        _ = await failure(of: dialerReceiving)
        _ = await failure(of: acceptorReceiving)
        _ = await failure(of: acceptorSending)
        await dialer.abort()
        await acceptor.abort()
        await fixture.finish()
    }

    @Test(
        "a close waits while the link takes bytes every 9 seconds, and fails if nothing is acknowledged"
    )
    func slowLink() throws {
        let peer = try MaliciousNoisePeer.ready { $0.timeouts.idle = .seconds(600) }
        _ = try peer.victim.queue(Array(repeating: 1, count: 60_000))
        peer.victim.close(now: peer.now)
        // The link takes at most 4,096 bytes every 9 seconds, for more than two minutes.
        for _ in 0..<20 where peer.victim.outcome == nil {
            peer.isBlocked = true
            try peer.passTime(.seconds(9))
            let sent = peer.victim.transmit(atMost: 4_096, now: peer.now)
            guard !sent.isEmpty else { break }
        }
        #expect(peer.victimFailure == nil)
        try peer.passTime(.seconds(11))
        #expect(peer.victimFailure == .unacknowledged)
    }

    @Test("a peer that acknowledges slowly delays a close no longer than a session lasts")
    func endlessAcknowledgements() throws {
        let peer = try MaliciousNoisePeer.ready { $0.timeouts.session = .seconds(200) }
        for _ in 0..<100 { _ = try peer.victim.queue([1]) }
        peer.victim.close(now: peer.now)
        try peer.pump()
        var number: UInt64 = 0
        for _ in 0..<100 where peer.victimFailure == nil {
            try peer.passTime(.seconds(9))
            guard peer.victimFailure == nil else { break }
            number += 1
            try peer.send(.ack, number.bigEndianBytes)
        }
        #expect(peer.victimFailure == .unacknowledged)
        #expect((20...24).contains(number))
    }

    @Test("a peer that goes on sending messages without an end does not delay a close")
    func endlessMessages() throws {
        let peer = try MaliciousNoisePeer.ready()
        peer.victim.close(now: peer.now)
        try peer.pump()
        var taken = 0
        for _ in 0..<10 {
            try peer.passTime(.seconds(6))
            guard peer.victimFailure == nil else { break }
            try peer.send(.data, [1])
            if peer.victim.nextMessage() != nil { taken += 1 }
        }
        #expect(taken == 1)
        #expect(peer.victimFailure == .timedOut)
    }

    @Test("when a channel fails, nothing of its unsent messages is kept")
    func unsentMessages() throws {
        let peer = try MaliciousNoisePeer.ready()
        peer.isBlocked = true
        for _ in 0..<8 { _ = try peer.victim.queue([UInt8](repeating: 1, count: 60_000)) }
        #expect(peer.victim.queuedBytes > 0)
        peer.victim.fail(ChannelError(.closed, "ended"))
        #expect(peer.victim.queuedBytes == 0)
    }

    @Test("a session whose expiry is noticed late still gets its time to close")
    func longStop() throws {
        let peer = try MaliciousNoisePeer.ready { $0.timeouts.idle = .seconds(1_000_000) }
        peer.now += Duration.seconds(25 * 3_600).wholeNanoseconds
        peer.victim.handleTimeout(now: peer.now)
        #expect(peer.victim.outcome == nil)
        #expect(peer.victim.nextTimeout(now: peer.now) > peer.now)
        try peer.passTime(.seconds(11))
        #expect(peer.victimFailure == .timedOut)
    }

    @Test("an end with an unknown reason counts as the end of the peer's connection")
    func unknownReason() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels()
        var rules = ReconnectPolicy()
        rules.endsWithPeer = true
        let connection = await PeerConnection.start(.offered, rules: rules, loop: fixture.loop)
        #expect(await connection.offer(acceptor))
        try await dialer.finish(EndReason(rawValue: 9))
        await fixture.clock.settle()
        #expect(try await connection.receive() == nil)
        await connection.shut(nil)
        await dialer.abort()
        await fixture.clock.settle()
        await fixture.finish()
    }

    @Test("any duration is converted to nanoseconds without a trap, and to a text in seconds")
    func longDurations() {
        #expect(Duration.seconds(18_446_744_073.8).wholeNanoseconds == .max)
        #expect(Duration.seconds(Int64.max).wholeNanoseconds == .max)
        #expect(Duration.seconds(-1).wholeNanoseconds == 0)
        #expect(Duration.seconds(10).inSeconds == "10 s")
        #expect(Duration.milliseconds(1_050).inSeconds == "1.05 s")
        #expect(Duration.milliseconds(500).inSeconds == "0.5 s")
    }

    @Test("a request for memory that cannot be met is refused, and ends no channel")
    func unmetRequest() {
        let budget = ReassemblyBudget(bytes: 100, share: 100)
        let endedChannelCount = Locked(0)
        let parts = (0..<3).map { _ in
            budget.part(for: nil) { endedChannelCount.withLock { $0 += 1 } }
        }
        #expect(parts[0].take(50, maximumMessageLength: 0))
        #expect(parts[1].take(30, maximumMessageLength: 0))
        // With 60 bytes more the third part would hold 80, more than any other part, so no other
        // part loses its bytes.
        #expect(parts[2].take(20, maximumMessageLength: 0))
        #expect(!parts[2].take(60, maximumMessageLength: 0))
        #expect(endedChannelCount.withLock { $0 } == 0)
        #expect(budget.bytesLeft == 0)
        withExtendedLifetime(parts) {}
    }
}

extension PeerConnection {
    fileprivate var hasPeerEnded: Bool { machine.hasPeerEnded }
}
