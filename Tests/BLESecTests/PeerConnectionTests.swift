import BLESecChannelCore
import BLESecDiscovery
import BLESecL2CAP
import BLESecLinks
import BLESecLocking
import BLESecTesting
import Testing

@testable import BLESec

@Suite("Connections that reconnect", .timeLimit(.minutes(2)))
struct PeerConnectionTests {
    private static func message(_ number: Int) -> [UInt8] { Array("\(number)".utf8) }
    private static func number(_ message: [UInt8]) -> Int? {
        Int(String(decoding: message, as: UTF8.self))
    }

    @Test("a connection is freed if it is dropped while the messages of eight links wait")
    func droppedWhenFull() async throws {
        let fixture = try ReconnectFixture()
        let listener = try await fixture.listen()
        var connection: PeerConnection? = await fixture.accepting(from: listener)
        weak let dropped = connection
        for count in 1...ConnectionMachine.mostUnreadChannels {
            let channel = try await SecureChannel.dial(
                fixture.endpoint, configuration: fixture.configuration(.dialer))
            try await channel.send([1])
            while await connection?.unreadChannels.count != count {
                try await Task.sleep(for: .milliseconds(5))
            }
            await channel.abort()
            while await connection?.current != nil { try await Task.sleep(for: .milliseconds(5)) }
        }
        connection = nil
        while dropped != nil { try await Task.sleep(for: .milliseconds(5)) }
        await listener.close()
    }

    @Test("a connection is freed and ends its channel if it is dropped after its peer has finished")
    func droppedAfterPeerEnd() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels()
        var rules = ReconnectPolicy()
        rules.endsWithPeer = true
        var connection: PeerConnection? = await PeerConnection.start(
            .offered, rules: rules, loop: fixture.loop)
        weak let dropped = connection
        await connection?.offer(acceptor)
        try await dialer.finish()
        let end = try await connection?.receive()
        #expect(end == nil)
        await fixture.clock.settle()
        #expect(await acceptor.isOver == false)
        connection = nil
        await fixture.clock.settle()
        try #require(dropped == nil)
        await #expect(throws: ChannelError(.closed, "")) { try await acceptor.waitUntilOver() }
        await dialer.abort()
        await fixture.finish()
    }

    @Test(
        "a connection that is dropped after its peer has ended the link is freed at once, and dials no more",
        arguments: [false, true])
    func droppedWhileClosingChannel(isExactlyOnce: Bool) async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels { $1.carriesDelivery = isExactlyOnce }
        let dialCount = Locked(0)
        var connection: PeerConnection? = await PeerConnection.start(
            .dialing { _ throws(ChannelError) in
                let number = dialCount.withLock { count in
                    count += 1
                    return count
                }
                guard number == 1 else { throw ChannelError(.noSuchPeer, "nobody listens") }
                return dialer
            }, delivery: isExactlyOnce ? .exactlyOnce() : .atMostOnce, loop: fixture.loop)
        weak let dropped = connection
        await fixture.clock.settle()
        #expect(await connection?.status.state == .connected)
        _ = try await connection?.send([1])
        // The peer ends without having taken the message.
        try await acceptor.finish()
        await fixture.clock.settle()
        #expect(await connection?.status.state == .backingOff)
        #expect(await dialer.isOver == false)
        connection = nil
        await fixture.clock.settle()
        try #require(dropped == nil)
        await #expect(throws: ChannelError(.closed, "")) { try await dialer.waitUntilOver() }
        // Longer than the wait before the next dial, and shorter than the close timeout.
        await fixture.clock.advance(by: .seconds(5))
        #expect(dialCount.withLock { $0 } == 1)
        await acceptor.abort()
        await fixture.finish()
    }

    @Test("the loop's shutdown closes a connection, whether or not it has a channel")
    func shutdown() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels()
        let connected = await PeerConnection.start(.offered, loop: fixture.loop)
        #expect(await connected.offer(acceptor))
        let searching = await PeerConnection.start(.offered, loop: fixture.loop)
        let receiving = [connected, searching].map { connection in
            Task(executorPreference: fixture.loop) { _ = try await connection.receive() }
        }
        await fixture.clock.settle()
        await fixture.loop.shutdown()
        for task in receiving { #expect(await failure(of: task) == .closed) }
        let startedAfterShutdown = await PeerConnection.start(.offered, loop: fixture.loop)
        for connection in [connected, searching, startedAfterShutdown] {
            #expect(await connection.status.state == .closed)
            let sending = Task { _ = try await connection.send([1]) }
            #expect(await failure(of: sending) == .closed)
        }
        withExtendedLifetime(dialer) {}
    }

    @Test(
        "a dialed channel that has ended already is a failed attempt, and another attempt follows")
    func endedChannels() async throws {
        let fixture = try ReconnectFixture()
        let listener = try await fixture.listen()
        let acceptor = await fixture.accepting(from: listener)
        let configuration = try fixture.configuration(.dialer)
        let dialCount = Locked(0)
        let dialer = await PeerConnection.start(
            .dialing { _ throws(ChannelError) in
                let channel = try await SecureChannel.dial(
                    fixture.endpoint, configuration: configuration)
                await channel.abort()
                dialCount.withLock { $0 += 1 }
                return channel
            }, rules: ReconnectFixture.rules)
        let startTime = ContinuousClock.now
        while dialCount.withLock({ $0 }) < 3 { try await Task.sleep(for: .milliseconds(5)) }
        // If a channel's end went unnoticed, the next attempt would follow 90 seconds later.
        #expect(ContinuousClock.now - startTime < .seconds(60))
        await dialer.abort()
        await acceptor.abort()
        await listener.close()
    }

    @Test(
        "a dial that fails at once is a failed attempt, although its progress is reported afterwards"
    )
    func failsAtOnce() async throws {
        let fixture = try ChannelFixture()
        let connection = await PeerConnection.start(
            .dialing { progress throws(ChannelError) in
                progress(.dialing)
                throw ChannelError(.noSuchPeer, "nobody listens")
            }, loop: fixture.loop)
        await fixture.clock.settle()
        #expect(await connection.status.state == .backingOff)
        #expect(await connection.status.failures == 1)
        await connection.shut(nil)
        await fixture.finish()
    }

    @Test("after a service has cancelled a dial, the search continues, and no failure is counted")
    func dialCancelled() async throws {
        let fixture = try ChannelFixture()
        let connection = await PeerConnection.start(.offered, loop: fixture.loop)
        let candidate = Candidate(address: DeviceAddress(.any, .public), tag: nil)
        await connection.heard(.dialing(candidate))
        await connection.heard(.opening(candidate))
        #expect(await connection.status.state == .opening)
        let otherCandidate = Candidate(address: DeviceAddress(.any, .random), tag: nil)
        await connection.heard(.dialCancelled(otherCandidate))
        #expect(await connection.status.state == .opening)
        await connection.heard(.dialCancelled(candidate))
        // 25 seconds are longer than `opening` may last, but shorter than a search may last.
        await fixture.clock.advance(by: .seconds(25))
        #expect(await connection.status.state == .searching)
        #expect(await connection.status.failures == 0)
        await connection.shut(nil)
        await fixture.finish()
    }

    @Test(
        "although the link is cut ten times, messages arrive in order, none twice, and each message whose fate is `delivered` has arrived"
    )
    func cuts() async throws {
        let fixture = try ReconnectFixture()
        let listener = try await fixture.listen()
        let sides = [try await fixture.dialing(), await fixture.accepting(from: listener)]
        let received = Locked([[Int](), [Int]()])
        let fates = Locked([[Int: Delivery](), [Int: Delivery]()])
        await withThrowingTaskGroup(of: Void.self) { group in
            for (side, connection) in sides.enumerated() {
                group.addTask {
                    while let message = try await connection.receive() {
                        let number = try #require(Self.number(message))
                        received.withLock { $0[side].append(number) }
                    }
                }
                group.addTask {
                    await withTaskGroup(of: Void.self) { group in
                        for number in 0..<1_000 {
                            guard let sent = try? await connection.send(Self.message(number))
                            else { break }
                            group.addTask {
                                let fate = await sent.delivery()
                                fates.withLock { $0[side][number] = fate }
                            }
                            if number % 10 == 9 {
                                try? await connection.loop.sleep(for: .milliseconds(3))
                            }
                        }
                    }
                }
            }
            group.addTask {
                for cut in 0..<10 {
                    try await sides[0].loop.sleep(for: .milliseconds(25))
                    await sides[cut % 2].wait(for: .connected)
                    await sides[cut % 2].cut()
                }
                while fates.withLock({ $0.contains { $0.count < 1_000 } }) {
                    try await sides[0].loop.sleep(for: .milliseconds(5))
                }
                for side in sides { await side.shut(nil) }
            }
            await #expect(throws: Never.self) { try await group.waitForAll() }
        }
        await listener.close()
        for side in [0, 1] {
            let arrived = received.withLock { $0[1 - side] }
            #expect(
                zip(arrived, arrived.dropFirst()).allSatisfy { $0 < $1 }, "in order, none twice")
            let delivered = fates.withLock { $0[side] }.filter { $0.value == .delivered }.keys
            #expect(Set(arrived).isSuperset(of: delivered), "every delivered message has arrived")
            #expect(delivered.count > 100, "many messages are delivered")
        }
    }

    @Test("a dialer waits for a listener that starts later, and for one that restarts")
    func listenerStartsAgain() async throws {
        let fixture = try ReconnectFixture()
        let dialer = try await fixture.dialing()
        await dialer.wait(for: .backingOff)
        #expect(await dialer.status.failures > 0)
        for text in ["one", "two"] {
            let listener = try await fixture.listen()
            let acceptor = await fixture.accepting(from: listener)
            async let fate = dialer.deliver(Array(text.utf8))
            #expect(try await acceptor.receive() == Array(text.utf8))
            try await #expect(fate == .delivered)
            #expect(await dialer.status.peer?.fingerprint == fixture.pinned.acceptor.fingerprint)
            // An accepting connection ends with its listener. A message that the dialer sent before
            // the dialer had detected this would be lost, so the test waits for `backingOff`.
            await listener.close()
            await dialer.wait(for: .backingOff)
        }
        try await dialer.close()
        #expect(try await dialer.receive() == nil)
    }

    @Test("without a link, deliver fails or waits, as the caller chooses")
    func whileDisconnected() async throws {
        let fixture = try ReconnectFixture()
        let dialer = try await fixture.dialing()
        await #expect(throws: ChannelError(.noSuchPeer, "")) {
            _ = try await dialer.deliver([1], whenDisconnected: .fail)
        }
        let waiting = Task { try await dialer.deliver([2]) }
        let cancelled = Task { try await dialer.deliver([3]) }
        cancelled.cancel()
        #expect(await failure(of: cancelled) == .cancelled)
        let listener = try await fixture.listen()
        let acceptor = await fixture.accepting(from: listener)
        #expect(try await acceptor.receive() == [2])
        #expect(try await waiting.value == .delivered)
        async let fate = dialer.deliver([4], whenDisconnected: .fail)
        #expect(try await acceptor.receive() == [4])
        try await #expect(fate == .delivered)
        try await dialer.close()
        await #expect(throws: ChannelError(.closed, "")) { _ = try await dialer.deliver([5]) }
        await listener.close()
    }

    @Test("if a link is lost, a message under way has an unknown fate, and is not sent again")
    func unknown() async throws {
        let fixture = try ChannelFixture()
        let (first, second) = await fixture.links()
        let (dialer, acceptor) = (
            try fixture.channel(over: first, .dialer), try fixture.channel(over: second, .acceptor)
        )
        for opening in [fixture.opening(dialer), fixture.opening(acceptor)] {
            try await opening.value
        }
        let connection = await PeerConnection.start(.offered, loop: fixture.loop)
        #expect(await connection.offer(dialer))
        await fixture.loop.run { first.hold() }
        let sent = Task(executorPreference: fixture.loop) { try await connection.deliver([1]) }
        await fixture.clock.settle()
        await fixture.loop.run { first.cut() }
        #expect(try await sent.value == .unknown)
        await fixture.clock.settle()
        #expect(
            await connection.status.state == .backingOff,
            "a link that carried no message counts as a failed attempt")
        let next = try await fixture.channels()
        #expect(await connection.offer(next.dialer))
        try await connection.expectNext([2], sentBy: next.acceptor)
        await connection.shut(nil)
        await fixture.finish()
    }

    @Test("a newer channel replaces an older one, whose messages are read first")
    func replaced() async throws {
        let fixture = try ChannelFixture()
        let older = try await fixture.channels()
        let connection = await PeerConnection.start(.offered, loop: fixture.loop)
        #expect(await connection.offer(older.acceptor))
        for number: UInt8 in 0..<3 { try await older.dialer.send([number]) }
        // A channel that begins more than two seconds after the older one was ready replaces it.
        await fixture.clock.advance(by: .seconds(30))
        let newer = try await fixture.channels()
        #expect(await connection.offer(newer.acceptor))
        #expect(await older.acceptor.isOver)
        let sent = Task(executorPreference: fixture.loop) { try await newer.dialer.deliver([3]) }
        for number: UInt8 in 0..<4 { #expect(try await connection.receive() == [number]) }
        // An acknowledgement may wait for 50 ms.
        await fixture.clock.advance(by: .milliseconds(60))
        #expect(try await sent.value == .delivered)
        #expect(await connection.status.state == .connected)
        await connection.shut(nil)
        await older.dialer.abort()
        await newer.dialer.abort()
        await fixture.finish()
    }

    @Test("if two handshakes overlapped, both sides keep the same channel")
    func duplicates() async throws {
        let fixture = try ChannelFixture()
        let pairs = [try await fixture.channels(), try await fixture.channels()]
        let sides = [
            await PeerConnection.start(.offered, loop: fixture.loop),
            await PeerConnection.start(.offered, loop: fixture.loop),
        ]
        // The two sides are offered the channels in opposite orders.
        for pair in pairs { await sides[0].offer(pair.dialer) }
        for pair in pairs.reversed() { await sides[1].offer(pair.acceptor) }
        await fixture.clock.settle()
        let dialer = await sides[0].current
        let acceptor = await sides[1].current
        let (hash, peerHash) = (await dialer?.handshakeHash, await acceptor?.handshakeHash)
        #expect(hash != nil && hash == peerHash)
        for side in sides { await side.shut(nil) }
        await fixture.finish()
    }

    @Test(
        "of two channels made 10 s apart the newer is used, however late and in whichever order they are offered",
        arguments: [false, true])
    func lateOffers(newerFirst: Bool) async throws {
        let fixture = try ChannelFixture()
        /// Makes two channels, the second 10 s after the first.
        func makePairs() async throws -> [(dialer: SecureChannel, acceptor: SecureChannel)] {
            let older = try await fixture.channels()
            await fixture.clock.advance(by: .seconds(10))
            return [older, try await fixture.channels()]
        }
        var pairs = try await makePairs()
        // Repeats until the older channel has the lower hash, and would stay if the hashes decided.
        while await pairs[1].acceptor.handshakeHash.lexicographicallyPrecedes(
            pairs[0].acceptor.handshakeHash)
        {
            for pair in pairs { await pair.dialer.abort() }
            pairs = try await makePairs()
        }
        await fixture.clock.advance(by: .seconds(10))
        let connection = await PeerConnection.start(.offered, loop: fixture.loop)
        for index in newerFirst ? [1, 0] : [0, 1] { await connection.offer(pairs[index].acceptor) }
        let current = await connection.current
        #expect(current === pairs[1].acceptor)
        await connection.shut(nil)
        for pair in pairs { await pair.dialer.abort() }
        await fixture.finish()
    }

    @Test("the first peer that connects is the connection's peer, and channels of others are ended")
    func otherPeer() async throws {
        let fixture = try ChannelFixture()
        let otherFixture = try ChannelFixture()
        let connection = await PeerConnection.start(.offered, loop: fixture.loop)
        let first = try await fixture.channels()
        #expect(await connection.offer(first.acceptor))
        let other = try await otherFixture.channels()
        #expect(!(await connection.offer(other.acceptor)))
        #expect(await other.acceptor.isOver)
        #expect(await connection.status.peer?.fingerprint == fixture.pinned.dialer.fingerprint)
        #expect(await connection.status.state == .connected)
        await connection.shut(nil)
        await otherFixture.clock.settle()
        await otherFixture.finish()
        await fixture.finish()
    }

    @Test("an offered channel that cannot be used does not end the dial under way")
    func uselessOffers() async throws {
        let fixture = try ChannelFixture()
        let otherFixture = try ChannelFixture()
        let (stream, continuation) = AsyncStream<Void>.makeStream()
        let connection = await PeerConnection.start(
            .dialing { progress throws(ChannelError) in
                progress(.dialing)
                // Waits until the test finishes the stream, or the dial is cancelled.
                for await _ in stream {}
                throw ChannelError(.cancelled, "the dial was cancelled")
            }, to: PeerKey(fingerprint: fixture.pinned.dialer.fingerprint), loop: fixture.loop)
        await fixture.clock.settle()
        #expect(await connection.status.state == .dialing)
        let other = try await otherFixture.channels()
        #expect(await connection.offer(other.acceptor) == false)
        let ended = try await fixture.channels()
        await ended.acceptor.abort()
        #expect(await connection.offer(ended.acceptor) == false)
        await fixture.clock.settle()
        #expect(await connection.status.state == .dialing)
        #expect(await connection.status.failures == 0)
        continuation.finish()
        await connection.shut(nil)
        await otherFixture.clock.settle()
        await otherFixture.finish()
        await fixture.finish()
    }

    @Test("closing waits for an earlier channel that is still being closed")
    func closesEarlierChannel() async throws {
        let fixture = try ChannelFixture()
        let earlier = try await fixture.channels()
        let connection = await PeerConnection.start(.offered, loop: fixture.loop)
        #expect(await connection.offer(earlier.acceptor))
        let pending = try await connection.send([1])
        // The peer ends without having taken the message.
        try await earlier.dialer.finish()
        await fixture.clock.settle()
        #expect(await connection.current == nil)
        #expect(await earlier.acceptor.isOver == false)
        let later = try await fixture.channels()
        #expect(await connection.offer(later.acceptor))
        let closing = Task(executorPreference: fixture.loop) { try await connection.close() }
        try await later.dialer.close()
        await fixture.clock.settle()
        #expect(await later.acceptor.isOver)
        #expect(await earlier.acceptor.isOver == false)
        #expect(try await earlier.dialer.receive() == [1])
        try await earlier.dialer.close()
        try await closing.value
        #expect(await pending.delivery() == .delivered)
        await fixture.finish()
    }

    @Test("closing reports lost messages even if the connection has closed its channel before")
    func closesAfterLoss() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels()
        var rules = ReconnectPolicy()
        rules.endsWithPeer = true
        let connection = await PeerConnection.start(.offered, rules: rules, loop: fixture.loop)
        #expect(await connection.offer(acceptor))
        _ = try await connection.send([1])
        // Both sides end, but the peer does not take the message.
        try await dialer.finish()
        await fixture.clock.settle()
        let finishing = Task(executorPreference: fixture.loop) { await connection.finish() }
        await fixture.clock.settle()
        await dialer.abort()
        await finishing.value
        #expect(await connection.status.state == .closed)
        await #expect(throws: ChannelError(.unacknowledged, "")) { try await connection.close() }
        await fixture.finish()
    }

    /// What ends a channel before the peer's program has taken a message.
    enum EarlyEnd: CaseIterable { case abort, failure, cut, replacement }

    @Test(
        "closing reports messages that were lost before, whatever has ended their channel",
        arguments: EarlyEnd.allCases)
    func closesAfterEarlierLoss(_ end: EarlyEnd) async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels()
        let connection = await PeerConnection.start(.offered, loop: fixture.loop)
        #expect(await connection.offer(acceptor))
        let pending = try await connection.send([1])
        await fixture.clock.settle()
        var peerClosing: Task<Void, any Error>?
        switch end {
        case .abort: await connection.abort()
        case .failure: await connection.shut(ChannelError(.configuration, ""))
        case .cut:
            await dialer.abort()
            await fixture.clock.settle()
            #expect(await connection.current == nil)
        case .replacement:
            // A channel that begins more than two seconds after the older one was ready replaces it.
            await fixture.clock.advance(by: .seconds(30))
            let newer = try await fixture.channels()
            #expect(await connection.offer(newer.acceptor))
            peerClosing = Task(executorPreference: fixture.loop) { try await newer.dialer.close() }
        }
        let closing = Task(executorPreference: fixture.loop) { try await connection.close() }
        // The newer channel is closed without an error.
        if let peerClosing { await fixture.advance(until: peerClosing) }
        #expect(await failure(of: closing) == .unacknowledged)
        await #expect(throws: ChannelError(.unacknowledged, "")) { try await connection.leave() }
        #expect(await pending.delivery() == .unknown)
        await dialer.abort()
        await fixture.finish()
    }

    /// How the first of two calls that close a connection ends.
    enum FirstCall: CaseIterable { case isCancelled, timesOut, goesOn }

    @Test(
        "a second call that closes a connection throws the error with which the channel has ended",
        arguments: FirstCall.allCases)
    func closesTwice(_ firstCall: FirstCall) async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels()
        let connection = await PeerConnection.start(.offered, loop: fixture.loop)
        #expect(await connection.offer(acceptor))
        func close() -> Task<Void, any Error> {
            Task(executorPreference: fixture.loop) {
                try await connection.close(within: .seconds(1))
            }
        }
        let first = close()
        await fixture.clock.settle()
        if firstCall == .isCancelled { first.cancel() }
        // The peer sends no end.
        if firstCall == .timesOut { await fixture.clock.advance(by: .seconds(2)) }
        let second = close()
        await fixture.clock.settle()
        await dialer.abort()
        let expected: ChannelError.Code = firstCall == .timesOut ? .timedOut : .truncated
        let firstExpected: ChannelError.Code = firstCall == .isCancelled ? .cancelled : expected
        #expect(await failure(of: first) == firstExpected)
        #expect(await failure(of: second) == expected)
        await fixture.finish()
    }

    @Test("a cancelled close throws, although only an earlier channel is still being closed")
    func cancelledWithoutLink() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels()
        let connection = await PeerConnection.start(.offered, loop: fixture.loop)
        #expect(await connection.offer(acceptor))
        _ = try await connection.send([1])
        // The peer ends without having taken the message.
        try await dialer.finish()
        await fixture.clock.settle()
        #expect(await connection.current == nil)
        let cancelled = Task(executorPreference: fixture.loop) { try await connection.close() }
        await fixture.clock.settle()
        cancelled.cancel()
        #expect(await failure(of: cancelled) == .cancelled)
        #expect(try await dialer.receive() == [1])
        try await dialer.close()
        try await connection.close()
        await fixture.finish()
    }

    @Test(
        "a waiting receive first returns the message of an offered channel that is not used",
        arguments: [false, true])
    func offeredWhileReceiving(isEnding: Bool) async throws {
        let fixture = try ChannelFixture()
        var pairs = [try await fixture.channels(), try await fixture.channels()]
        let hashes = [await pairs[0].acceptor.handshakeHash, await pairs[1].acceptor.handshakeHash]
        // Of two channels that were made at the same time, the one with the lower hash stays.
        if hashes[1].lexicographicallyPrecedes(hashes[0]) { pairs.swapAt(0, 1) }
        let (used, other) = (pairs[0], pairs[1])
        let connection = await PeerConnection.start(.offered, loop: fixture.loop)
        #expect(await connection.offer(used.acceptor))
        let waiting = Task(executorPreference: fixture.loop) { try await connection.receive() }
        try await other.dialer.send([1])
        await fixture.clock.settle()
        if isEnding { try await other.acceptor.finish() }
        #expect(await connection.offer(other.acceptor) == false)
        try await used.dialer.send([2])
        #expect(try await waiting.value == [1])
        await other.dialer.abort()
        #expect(try await connection.receive() == [2])
        await connection.shut(nil)
        await used.dialer.abort()
        await fixture.finish()
    }

    @Test(
        "an offered channel that this side is ending does not block the messages of the channel in use"
    )
    func offeredWhileEnding() async throws {
        let fixture = try ChannelFixture()
        let ending = try await fixture.channels()
        try await ending.dialer.send([1])
        await fixture.clock.settle()
        try await ending.acceptor.finish()
        let connection = await PeerConnection.start(.offered, loop: fixture.loop)
        let used = try await fixture.channels()
        #expect(await connection.offer(used.acceptor))
        try await used.dialer.send([2])
        #expect(await connection.offer(ending.acceptor) == false)
        #expect(try await connection.receive() == [1])
        let next = Task(executorPreference: fixture.loop) { try await connection.receive() }
        await fixture.clock.settle()
        // The peer of the ending channel is silent, so the close deadline ends that channel.
        await fixture.clock.advance(by: ChannelTimeouts().close + .seconds(1))
        #expect(try await next.value == [2])
        await connection.shut(nil)
        for channel in [ending.dialer, used.dialer] { await channel.abort() }
        await fixture.finish()
    }

    @Test(
        "a program that does not read gets no new link while eight ended links have unread messages"
    )
    func unreadIsBounded() async throws {
        let fixture = try ChannelFixture()
        let connection = await PeerConnection.start(.offered, loop: fixture.loop)
        for number in 0...ConnectionMachine.mostUnreadChannels {
            let pair = try await fixture.channels()
            let isAccepted = await connection.offer(pair.acceptor)
            #expect(isAccepted == (number < ConnectionMachine.mostUnreadChannels))
            if isAccepted {
                try await pair.dialer.send([UInt8(number)])
                await fixture.clock.advance(by: .milliseconds(60))
            }
            await pair.dialer.abort()
            await fixture.clock.settle()
        }
        for number in 0..<ConnectionMachine.mostUnreadChannels {
            #expect(try await connection.receive() == [UInt8(number)])
        }
        let pair = try await fixture.channels()
        #expect(await connection.offer(pair.acceptor))
        await connection.shut(nil)
        await fixture.clock.settle()
        await fixture.finish()
    }

    @Test("when a link stops carrying bytes, the dialer dials again after the idle deadline")
    func silent() async throws {
        let fixture = try ChannelFixture()
        let links = Locked<[FaultyLink]>([])
        let configuration = try fixture.pinned.configuration(.dialer)
        let accepting = await PeerConnection.start(.offered, loop: fixture.loop)
        let dialer = await PeerConnection.start(
            .dialing { _ throws(ChannelError) in
                let (first, second) = await fixture.links()
                links.withLock { $0.append(first) }
                let acceptor: SecureChannel
                do {
                    acceptor = try fixture.channel(over: second, .acceptor)
                } catch {
                    throw ChannelError(.internal, "\(error)")
                }
                let opening = fixture.opening(acceptor)
                let channel = try await SecureChannel.open(
                    over: first, role: .dialer, configuration: configuration)
                Task(executorPreference: fixture.loop) {
                    try? await opening.value
                    await accepting.offer(acceptor)
                }
                return channel
            }, loop: fixture.loop)
        await fixture.clock.settle()
        #expect(await dialer.status.state == .connected)
        let dialersLink = links.withLock { $0[0] }
        await fixture.loop.run { dialersLink.hold() }
        await fixture.clock.advance(by: .seconds(59))
        #expect(links.withLock { $0.count } == 1)
        // The acceptor receives nothing more, and detects the silence no later than the dialer.
        await fixture.clock.advance(by: .seconds(2))
        #expect(links.withLock { $0.count } == 2)
        #expect(await dialer.status.state == .connected)
        for side in [dialer, accepting] { await side.shut(nil) }
        await fixture.clock.settle()
        await fixture.finish()
    }

    @Test("with endsWithPeer, both sides send and read everything before they are closed")
    func peerEnds() async throws {
        let fixture = try ReconnectFixture()
        var rules = ReconnectFixture.rules
        rules.endsWithPeer = true
        let listener = try await fixture.listen()
        let acceptor = await fixture.accepting(from: listener, rules)
        let dialer = try await fixture.dialing(rules)
        async let first = dialer.deliver([1])
        #expect(try await acceptor.receive() == [1])
        try await #expect(first == .delivered)
        await dialer.finish()
        #expect(try await acceptor.receive() == nil)
        async let second = acceptor.deliver([2])
        #expect(try await dialer.receive() == [2])
        try await #expect(second == .delivered, "the acceptor can still send")
        // Over the next link the dialer sends its end again.
        await acceptor.cut()
        async let third = acceptor.deliver([3])
        #expect(try await dialer.receive() == [3])
        try await #expect(third == .delivered)
        await acceptor.finish()
        #expect(try await dialer.receive() == nil)
        await dialer.wait(for: .closed)
        await acceptor.wait(for: .closed)
        await listener.close()
    }

    @Test(
        "after the peer closes, a connection waits for the peer to come back, and no message is lost"
    )
    func peerLeaves() async throws {
        let fixture = try ReconnectFixture()
        let listener = try await fixture.listen()
        let acceptor = await fixture.accepting(from: listener)
        for text in ["one", "two"] {
            let dialer = try await fixture.dialing()
            let sent = Task { try await dialer.send(Array(text.utf8)) }
            let message = try await sent.value
            async let closed: Void = dialer.close()
            #expect(try await acceptor.receive() == Array(text.utf8))
            try await closed
            #expect(await message.delivery() == .delivered)
            await acceptor.wait(for: .searching)
        }
        try await acceptor.close()
        await listener.close()
    }

    @Test("an inconsistent configuration ends the connection with the error `configuration`")
    func misconfigured() async throws {
        let fixture = try ReconnectFixture()
        var configuration = try fixture.pinned.configuration(.dialer)
        configuration.protocols = []
        let dialer = await PeerConnection.start(
            .dialing(fixture.endpoint, configuration: configuration))
        await #expect(throws: ChannelError(.configuration, "")) { _ = try await dialer.receive() }
        await #expect(throws: ChannelError(.configuration, "")) {
            _ = try await dialer.deliver([1])
        }
    }
}

extension PeerConnection {
    /// Sends `message` from `sender`, the peer's end of the channel, and expects that this
    /// connection receives this message next.
    fileprivate func expectNext(_ message: [UInt8], sentBy sender: SecureChannel) async throws {
        try await sender.send(message)
        #expect(try await receive() == message)
    }
}
