import BLESecChannelCore
import Testing

@testable import BLESec

@Suite("Deadlines and timeouts of a channel")
struct DeadlineTests {
    @Test(
        "a session that is too old sends an end with reason expired and fails at the close deadline"
    )
    func sessionAge() throws {
        let peer = try MaliciousNoisePeer.ready { $0.timeouts.session = .seconds(90) }
        try peer.keepAlive(for: .seconds(89))
        #expect(!peer.records.contains { $0.type == .end })
        try peer.keepAlive(for: .seconds(2))
        #expect(peer.records.contains { $0 == (.end, [EndReason.expired.rawValue]) })
        try peer.keepAlive(for: .seconds(10))
        #expect(peer.victimFailure == .timedOut)
    }

    @Test("the default timeouts and limits are those in the documentation")
    func defaults() {
        let timeouts = ChannelTimeouts()
        #expect(timeouts.negotiate == .seconds(5) && timeouts.handshake == .seconds(10))
        #expect(timeouts.ready == .seconds(10) && timeouts.proof == .seconds(60))
        #expect(timeouts.record == .seconds(30) && timeouts.idle == .seconds(60))
        #expect(timeouts.session == .seconds(86_400))
        let limits = ChannelLimits()
        #expect(limits.unauthenticatedBytes == 32 << 10)
        #expect(limits.maximumMessageLength == 16 << 20)
        #expect(limits.rekeyAfterRecords == 1 << 20 && limits.rekeyAfterBytes == 1 << 30)
        let listener = SecureListener.Limits()
        #expect(listener.handshakes == 256 && listener.handshakesPerAddress == 4)
        #expect(listener.guaranteedTime == .milliseconds(100))
    }

    @Test("a session that is too old completes when the peer ends as well")
    func sessionAgeCompletes() throws {
        let peer = try MaliciousNoisePeer.ready { $0.timeouts.session = .seconds(90) }
        try peer.keepAlive(for: .seconds(91))
        try peer.send(.end, [0])
        try peer.send(.ack, UInt64(1).bigEndianBytes)
        peer.victim.linkEnded(nil, now: peer.now)
        guard case .complete = peer.victim.outcome else {
            Issue.record("\(String(describing: peer.victim.outcome))")
            return
        }
    }

    @Test(
        "if the link ends before the last acknowledgement is sent, the error is unacknowledged",
        arguments: [ChannelRole.dialer, .acceptor], [false, true])
    func lastAcknowledgementWaits(role: ChannelRole, sendsMore: Bool) throws {
        let peer = try MaliciousNoisePeer.ready(role)
        peer.victim.end()
        try peer.pump()
        peer.isBlocked = true
        try peer.send(.ack, UInt64(1).bigEndianBytes)
        try peer.send(.end, [0])
        if sendsMore { try peer.send(.ping, [UInt8](repeating: 0, count: 8)) }
        #expect(peer.victim.bytesAwaitingLink > 0)
        peer.victim.linkEnded(nil, now: peer.now)
        #expect(peer.victimFailure == .unacknowledged)
    }

    @Test("if the peer vanishes before it acknowledges this side's end, the error says so")
    func unacknowledgedEnd() throws {
        let pair = try PinnedPeers().pair()
        pair.run()
        pair.acceptor.end()
        pair.run()
        pair.dialer.close(now: pair.now)
        #expect(pair.step(.dialer))
        #expect(pair.acceptor.hasPeerEnded == true)
        // The acceptor's last acknowledgement is lost.
        _ = pair.take(.acceptor)
        pair.passTime(.seconds(10))
        let error = pair.dialer.outcome?.error
        #expect(error?.code == .timedOut)
        #expect(error?.reason.contains("did not acknowledge this side's end") == true)
    }

    @Test("if a full link delays an acknowledgement, the next timeout is not in the past")
    func ackWhileBlocked() throws {
        let peer = try MaliciousNoisePeer.ready()
        peer.isBlocked = true
        _ = try peer.victim.queue(Array(repeating: 1, count: 60_000))
        try peer.pump()
        try peer.send(.data, [1])
        peer.now = peer.now.after(.milliseconds(60))
        peer.victim.handleTimeout(now: peer.now)
        try peer.pump()
        #expect(peer.victim.nextTimeout(now: peer.now) > peer.now)
        peer.isBlocked = false
        try peer.pump()
        #expect(peer.records.contains { $0 == (.ack, UInt64(1).bigEndianBytes) })
    }

    @Test(
        "while a direct channel waits for its peer's end, its next timeout is at least 1 s away",
        arguments: [ChannelRole.dialer, .acceptor])
    func directEnd(role: ChannelRole) throws {
        let pinned = try PinnedPeers()
        func configuration(_ role: ChannelRole) throws -> ChannelConfiguration {
            var configuration = try pinned.configuration(role)
            configuration.mode = .direct
            return configuration
        }
        let pair = try MachinePair(
            dialer: configuration(.dialer), acceptor: configuration(.acceptor))
        pair.run()
        func expectDistantTimeouts(of machine: inout ChannelMachine) {
            #expect(machine.phase == .established)
            machine.end()
            _ = machine.transmit(now: pair.now)
            for seconds in 0..<5 {
                let now = pair.now.after(.seconds(seconds))
                machine.handleTimeout(now: now)
                #expect(machine.nextTimeout(now: now) >= now.after(.seconds(1)))
            }
        }
        if role == .dialer {
            expectDistantTimeouts(of: &pair.dialer)
        } else {
            expectDistantTimeouts(of: &pair.acceptor)
        }
    }
}

extension MaliciousNoisePeer {
    /// Advances the time, and sends the victim a record each second: a pong if the victim waits for
    /// one, otherwise padding.
    func keepAlive(for duration: Duration) throws {
        for _ in 0..<duration.components.seconds {
            guard victim.outcome == nil else { return }
            try passTime(.seconds(1))
            guard victim.outcome == nil else { return }
            if let ping = records.last(where: { $0.type == .ping }),
                (victim.session as? NegotiatedSession)?.outstandingPing != nil
            {
                try send(.pong, ping.payload)
            } else {
                try send(.padding)
            }
        }
    }
}
