import BLESecChannelCore
import BLESecLinks
import BLESecTesting
import Testing

@testable import BLESec

@Suite("A message is delivered when the peer's program has it")
struct DeliveryTests {
    @Test("a message that has arrived is not delivered before the program takes it")
    func taken() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels()
        let delivering = Task(executorPreference: fixture.loop) { try await dialer.deliver([1]) }
        await fixture.clock.advance(by: .seconds(30))
        #expect(await acceptor.traffic.unreceivedBytes > 0, "the message has arrived")
        #expect(await dialer.acknowledged == 0)
        #expect(try await acceptor.receive() == [1])
        await fixture.clock.advance(by: .milliseconds(50))
        #expect(try await delivering.value == .delivered)
        await fixture.end(dialer, acceptor)
    }

    @Test("a message that is read through the byte stream is delivered when its last byte is read")
    func lastByte() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels()
        let delivering = Task(executorPreference: fixture.loop) {
            try await dialer.deliver([1, 2])
        }
        await fixture.clock.settle()
        #expect(try await acceptor.byteStream.read(atMost: 1) == [1])
        await fixture.clock.advance(by: .seconds(30))
        #expect(await dialer.acknowledged == 0)
        #expect(try await acceptor.byteStream.read(atMost: 9) == [2])
        await fixture.clock.advance(by: .milliseconds(50))
        #expect(try await delivering.value == .delivered)
        await fixture.end(dialer, acceptor)
    }

    @Test("with manual acknowledgement a message is delivered when it is confirmed")
    func confirmed() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels { role, configuration in
            if role == .acceptor { configuration.acknowledgement = .manual }
        }
        for number: UInt8 in 1...3 { try await dialer.send([number]) }
        await fixture.clock.settle()
        for number: UInt8 in 1...3 {
            #expect(try await acceptor.receive() == [number])
            #expect(await acceptor.lastReceived == UInt64(number))
        }
        await fixture.clock.advance(by: .seconds(1))
        #expect(await dialer.acknowledged == 0)
        try await acceptor.confirm(through: 2)
        await fixture.clock.advance(by: .milliseconds(50))
        #expect(await dialer.acknowledged == 2)
        // A lower number than before is no error.
        try await acceptor.confirm(through: 1)
        await #expect(throws: ChannelError(.configuration, "")) {
            try await acceptor.confirm(through: 4)
        }
        // The dialer acknowledges automatically, so it may not confirm.
        await #expect(throws: ChannelError(.configuration, "")) {
            try await dialer.confirm(through: 0)
        }
        try await acceptor.confirm(through: 3)
        await fixture.end(dialer, acceptor)
    }

    @Test("a confirmation with a lower number than before changes nothing")
    func lowerConfirmation() {
        var state = AcknowledgementState(rule: .confirmed)
        for _ in 0..<3 {
            state.didReceive(now: 0)
            state.didTake(now: 0)
        }
        state.didConfirm(through: 2, now: 0)
        let first = state.takeAck()
        #expect(first == 2)
        state.didConfirm(through: 1, now: 0)
        #expect(state.confirmed == 2 && state.ackPendingSince == nil)
        let second = state.takeAck()
        #expect(second == 2)
    }

    @Test("manual acknowledgement in direct mode is refused")
    func manualInDirectMode() throws {
        var configuration = try PinnedPeers().configuration(.dialer)
        configuration.mode = .direct
        configuration.acknowledgement = .manual
        #expect(throws: ChannelError(.configuration, "")) {
            try configuration.validate(for: .dialer)
        }
    }

    @Test("deliver returns received, not delivered, if the peer acknowledges messages on arrival")
    func acknowledgesOnArrival() async throws {
        // This peer does not offer the feature acknowledgesTaken, so the session does not have it.
        let peer = try MaliciousNoisePeer.ready(.acceptor)
        let agreement = peer.victim.session?.agreement
        #expect(agreement?.features.contains(.acknowledgesTaken) == false)
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels()
        // Removes the feature from the dialer's session with the acceptor.
        await fixture.loop.run {
            dialer.assumeIsolated { $0.driver.machine.session?.agreement.features = [] }
        }
        async let received = acceptor.receive()
        let delivering = Task(executorPreference: fixture.loop) { try await dialer.deliver([1]) }
        try await #expect(received == [1])
        await fixture.clock.advance(by: .milliseconds(50))
        #expect(try await delivering.value == .received)
        await fixture.end(dialer, acceptor)
    }

    @Test("a message from a peer without the feature acknowledgesTaken is acknowledged on arrival")
    func oldPeer() throws {
        let peer = try MaliciousNoisePeer.ready()
        try peer.send(.data, [1])
        try peer.passTime(.milliseconds(60))
        #expect(peer.records.contains { $0 == (.ack, UInt64(1).bigEndianBytes) })
        #expect(peer.victim.unreceivedBytes > 0, "the victim's program has not taken the message")
    }

    @Test(
        "a close does not need the peer's program to call receive again after the last message")
    func endNeedsNoReceive() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels()
        try await dialer.send([1])
        let closing = Task(executorPreference: fixture.loop) { try await dialer.close() }
        try await acceptor.finish()
        #expect(try await acceptor.receive() == [1])
        await fixture.advance(until: closing)
        await fixture.finish()
    }

    @Test("a close does not time out while the peer's program takes a message every nine seconds")
    func slowReader() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels()
        for number: UInt8 in 0..<10 { try await dialer.send([number]) }
        let closing = Task(executorPreference: fixture.loop) { try await dialer.close() }
        try await acceptor.finish()
        for number: UInt8 in 0..<10 {
            await fixture.clock.advance(by: .seconds(9))
            #expect(try await acceptor.receive() == [number])
        }
        await fixture.advance(until: closing)
        await fixture.finish()
    }

    @Test("a close fails with unacknowledged when the peer's program has stopped taking messages")
    func stoppedReader() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels()
        for number: UInt8 in 0..<3 { try await dialer.send([number]) }
        let closing = Task(executorPreference: fixture.loop) { try await dialer.close() }
        try await acceptor.finish()
        #expect(try await acceptor.receive() == [0])
        // The acknowledgement leaves after 50 ms, and restarts the close deadline of 10 s.
        await fixture.clock.advance(by: .milliseconds(10_040))
        #expect(await dialer.failure == nil, "the acknowledgement has restarted the close deadline")
        await fixture.clock.advance(by: .milliseconds(20))
        #expect(await failure(of: closing) == .unacknowledged)
        await acceptor.abort()
        await fixture.finish()
    }

    @Test("a close with its own time limit fails if no acknowledgement arrives within that limit")
    func closeWithin() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels()
        for number: UInt8 in 0..<3 { try await dialer.send([number]) }
        let closing = Task(executorPreference: fixture.loop) {
            try await dialer.close(within: .seconds(3))
        }
        try await acceptor.finish()
        for number: UInt8 in 0..<2 {
            await fixture.clock.advance(by: .milliseconds(2_900))
            #expect(try await acceptor.receive() == [number])
        }
        // The last acknowledgement leaves after 50 ms, and restarts the close deadline of 3 s.
        await fixture.clock.advance(by: .milliseconds(3_040))
        #expect(await dialer.failure == nil, "the acknowledgement has restarted the close deadline")
        await fixture.clock.advance(by: .milliseconds(20))
        #expect(await failure(of: closing) == .unacknowledged)
        await acceptor.abort()
        await fixture.finish()
    }

    @Test("if neither side receives, the close fails on both sides")
    func closeWithoutReceiving() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels()
        try await dialer.send([1])
        let closings = [dialer, acceptor].map { channel in
            Task(executorPreference: fixture.loop) { try await channel.close() }
        }
        await fixture.clock.advance(by: .seconds(11))
        #expect(await failure(of: closings[0]) == .unacknowledged)
        #expect(await failure(of: closings[1]) == .timedOut)
        await fixture.finish()
    }

    @Test(
        "if both programs deliver before they receive, both calls time out; the channel stays open")
    func bothDeliver() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels()
        let delivering = [dialer, acceptor].map { channel in
            Task(executorPreference: fixture.loop) {
                _ = try await channel.deliver([7], within: .seconds(5))
            }
        }
        await fixture.clock.advance(by: .milliseconds(4_999))
        #expect(await dialer.callDeadlineCount == 1)
        await fixture.clock.advance(by: .milliseconds(1))
        for task in delivering { #expect(await failure(of: task) == .timedOut) }
        #expect(await dialer.callDeadlineCount == 0)
        #expect(try await dialer.receive() == [7])
        #expect(try await acceptor.receive() == [7])
        await fixture.end(dialer, acceptor)
    }

    @Test("a deliver that finds no room fails at its deadline, and queues no message")
    func noRoom() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels(capacity: 20_000) { _, configuration in
            configuration.limits.readAhead = 1_000
            configuration.limits.sendAhead = 1_000
        }
        let sending = Task(executorPreference: fixture.loop) {
            for _ in 0..<100 { try await dialer.send(Array(repeating: 1, count: 1_000)) }
        }
        await fixture.clock.settle()
        let queued = await dialer.traffic.queuedMessages
        let delivering = Task(executorPreference: fixture.loop) {
            _ = try await dialer.deliver([2], within: .seconds(3))
        }
        await fixture.clock.advance(by: .seconds(3))
        #expect(await failure(of: delivering) == .timedOut)
        #expect(await dialer.traffic.queuedMessages == queued)
        sending.cancel()
        _ = await failure(of: sending)
        await dialer.abort()
        await acceptor.abort()
        await fixture.finish()
    }

    @Test(
        "deliver succeeds with a full inbox, and fails if the extra 1 MiB is full too"
    )
    func fullInbox() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels(capacity: 20_000) { _, configuration in
            configuration.limits.readAhead = 30_000
        }
        // The peer sends more than the dialer reads ahead, and its acknowledgement comes after
        // these messages.
        let sending = Task(executorPreference: fixture.loop) {
            for _ in 0..<100 { try await acceptor.send(Array(repeating: 1, count: 1_000)) }
        }
        await fixture.clock.settle()
        let unread = await dialer.traffic.unreceivedBytes
        #expect((30_000..<40_000).contains(unread))
        async let received = acceptor.receive()
        let delivering = Task(executorPreference: fixture.loop) { try await dialer.deliver([2]) }
        try await #expect(received == [2])
        await fixture.clock.advance(by: .milliseconds(50))
        #expect(try await delivering.value == .delivered)
        try await sending.value
        // The peer's messages now also fill the extra room, so the acknowledgement after them is
        // not read. `deliver` fails without a wait, because the dialer's program has received
        // nothing.
        let endlessSending = Task(executorPreference: fixture.loop) {
            while true { try await acceptor.send(Array(repeating: 1, count: 10_000)) }
        }
        let secondDelivery = Task(executorPreference: fixture.loop) {
            _ = try await dialer.deliver([3])
        }
        await fixture.clock.settle()
        #expect(await failure(of: secondDelivery) == .limitExceeded)
        #expect(
            await dialer.traffic.unreceivedBytes <= 30_000 + ChannelLimits.extraReadAhead + 10_100)
        endlessSending.cancel()
        _ = await failure(of: endlessSending)
        for _ in 0..<100 {
            #expect(try await dialer.receive() == Array(repeating: 1, count: 1_000))
        }
        #expect(await dialer.failure == nil)
        await dialer.abort()
        await acceptor.abort()
        await fixture.finish()
    }

    @Test("with full buffers, deliver fails 5 seconds after the program's last receive, not later")
    func fullInboxAfterReceive() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels(capacity: 20_000) { _, configuration in
            configuration.limits.readAhead = 30_000
        }
        try await acceptor.send([1])
        #expect(try await dialer.receive() == [1])
        await fixture.clock.advance(by: .seconds(1))
        let delivering = Task(executorPreference: fixture.loop) {
            _ = try await dialer.deliver([2], within: .seconds(20))
        }
        let endlessSending = Task(executorPreference: fixture.loop) {
            while true { try await acceptor.send(Array(repeating: 1, count: 10_000)) }
        }
        await fixture.clock.advance(by: .milliseconds(3_999))
        #expect(
            await dialer.callDeadlineCount == 2,
            "the delivery's own deadline, and the one that full buffers add")
        await fixture.clock.advance(by: .milliseconds(1))
        #expect(await dialer.callDeadlineCount == 0)
        endlessSending.cancel()
        _ = await failure(of: endlessSending)
        await dialer.abort()
        #expect(await failure(of: delivering) == .limitExceeded)
        await acceptor.abort()
        await fixture.finish()
    }

    enum ReceivingCall: CaseIterable { case receive, byteStream, messages }

    @Test(
        "an end with a reason other than done is an error for the side that receives it",
        arguments: [1, 2, 3, 4] as [UInt8])
    func notDone(reason: UInt8) async throws {
        let fixture = try ChannelFixture()
        for call in ReceivingCall.allCases {
            let (dialer, acceptor) = try await fixture.channels()
            try await dialer.send([1, 2, 3])
            try await dialer.finish(EndReason(rawValue: reason))
            let closing = Task(executorPreference: fixture.loop) { try await dialer.close() }
            switch call {
            case .receive:
                #expect(try await acceptor.receive() == [1, 2, 3])
                await #expect(throws: ChannelError(.truncated, "")) { try await acceptor.receive() }
            case .byteStream:
                let stream = acceptor.byteStream
                #expect(try await stream.read(atMost: 9) == [1, 2, 3])
                await #expect(throws: ChannelError(.truncated, "")) {
                    try await stream.read(atMost: 9)
                }
            case .messages:
                var count = 0
                await #expect(throws: ChannelError(.truncated, "")) {
                    for try await message in acceptor.messages { count += message.count }
                }
                #expect(count == 3)
            }
            #expect(await acceptor.peerEndReason == EndReason(rawValue: reason))
            let peerClosing = Task(executorPreference: fixture.loop) { try await acceptor.close() }
            // The dialer's close succeeds, because the acceptor has received everything.
            await fixture.advance(until: closing)
            #expect(await failure(of: peerClosing) == .truncated)
        }
        await fixture.finish()
    }

    @Test(
        "a connection numbers messages across links, and confirms each on the link that carried it"
    )
    func connection() async throws {
        let fixture = try ChannelFixture()
        let pairs = [
            try await fixture.channels { $1.acknowledgement = .manual },
            try await fixture.channels { $1.acknowledgement = .manual },
        ]
        let connection = await PeerConnection.start(.offered, loop: fixture.loop)
        #expect(await connection.offer(pairs[0].acceptor))
        for number: UInt8 in 1...2 { try await pairs[0].dialer.send([number]) }
        await fixture.clock.settle()
        #expect(try await connection.receive() == [1])
        #expect(try await connection.receive() == [2])
        try await connection.confirm(through: 1)
        await fixture.clock.advance(by: .milliseconds(50))
        #expect(await pairs[0].dialer.acknowledged == 1)
        await pairs[0].dialer.abort()
        await fixture.clock.settle()
        #expect(await connection.offer(pairs[1].acceptor))
        for number: UInt8 in 3...5 { try await pairs[1].dialer.send([number]) }
        await fixture.clock.settle()
        for number: UInt8 in 3...5 { #expect(try await connection.receive() == [number]) }
        #expect(await connection.lastReceived == 5)
        try await connection.confirm(through: 4)
        await fixture.clock.advance(by: .milliseconds(50))
        #expect(await pairs[1].dialer.acknowledged == 2)
        await #expect(throws: ChannelError(.configuration, "")) {
            try await connection.confirm(through: 6)
        }
        await connection.shut(nil)
        await pairs[1].dialer.abort()
        await fixture.clock.settle()
        await fixture.finish()
    }
}

extension ChannelFixture {
    /// Closes both channels, expects no error, and ends the fixture.
    fileprivate func end(_ dialer: SecureChannel, _ acceptor: SecureChannel) async {
        let closings = [dialer, acceptor].map { channel in
            Task(executorPreference: loop) { try await channel.close() }
        }
        // The clock must advance: a side that closes checks every 2 ms whether its link has sent
        // everything.
        for closing in closings { await advance(until: closing) }
        await finish()
    }
}
