import BLESecChannelCore
import BLESecLinks
import BLESecLocking
import BLESecTesting
import Glibc
import Testing

@testable import BLESec

/// A listener whose channels run on several loops, and whose peers run on another loop. Links are
/// kernel sockets; all loops use the same manual clock.
private struct SpreadListener {
    let clock = ManualClock()
    /// The loop of the listener.
    let listenerLoop: EventLoop
    let channelLoops: [EventLoop]
    /// The loop of the peers.
    let peerLoop: EventLoop
    let pinned: PinnedPeers
    let address: UnixAddress
    let listener: SecureListener
    let failures = ListenerFixture.Failures()

    /// If `isListenerLoopFirst`, the listener's own loop is the first of the channels' loops.
    /// `whenAccepted` is called with each link before the listener gets it.
    init(
        kind: UnixAddress.Kind = .stream, loops count: Int = 2, isListenerLoopFirst: Bool = false,
        limits: SecureListener.Limits = .init(), peerAddress: LinkAddress? = nil,
        change: (inout ChannelConfiguration) -> Void = { _ in },
        whenAccepted: @escaping @Sendable (any Link) async -> Void = { _ in }
    ) async throws {
        let loopClock = clock.loopClock
        let listenerLoop = EventLoop(name: "listener", clock: loopClock)
        self.listenerLoop = listenerLoop
        channelLoops = (0..<count).map {
            $0 == 0 && isListenerLoopFirst
                ? listenerLoop : EventLoop(name: "channels \($0)", clock: loopClock)
        }
        peerLoop = EventLoop(name: "peers", clock: loopClock)
        pinned = try PinnedPeers()
        let path = "/tmp/blesec-test-\(UInt64.random(in: 0...UInt64.max)).sock"
        address = try UnixAddress(path: path, kind: kind)
        var configuration = try pinned.configuration(.acceptor)
        change(&configuration)
        let failures = failures
        let links = SameAddressListener(
            try await UnixListener.listen(address, loop: listenerLoop), peerAddress, whenAccepted)
        listener = SecureListener(
            links, at: Endpoint(address), configuration: configuration, limits: limits,
            loop: listenerLoop, channelLoops: channelLoops,
            onFailure: { failures.add($0.error.code) })
        await listener.start()
    }

    var endpoint: Endpoint { listener.localEndpoint }

    /// Opens a link without sending anything, and waits until the kernel has connected it.
    func rawPeer() async throws -> RawPeer {
        RawPeer(try await SocketLink.dial(address, loop: peerLoop))
    }

    /// Dials once as the known peer.
    func dial() throws -> Task<SecureChannel, any Error> {
        let configuration = try pinned.configuration(.dialer)
        return Task { [endpoint, peerLoop] in
            try await SecureChannel.dial(
                endpoint, configuration: configuration, loop: peerLoop, whenLinked: {})
        }
    }

    /// Dials as the known peer, and returns both ends of the channel.
    func channel() async throws -> (dialed: SecureChannel, accepted: SecureChannel) {
        let dialing = try dial()
        let accepted = try await listener.accept()
        return (try await dialing.value, accepted)
    }

    /// Lets the loops run until `condition` is true; the suite's time limit ends the wait.
    func until(_ condition: () async throws -> Bool) async throws {
        while try await !condition() {
            try Task.checkCancellation()
            await clock.settle()
        }
    }

    /// Does the same as ``until(_:)``, but waits for the listener's loop only. Used while another
    /// loop is blocked.
    func untilOnListenerLoop(_ condition: () async throws -> Bool) async throws {
        while try await !condition() {
            try Task.checkCancellation()
            await listenerLoop.settle()
        }
    }

    /// The number of sockets that the loop `channelLoops[index]` watches.
    func sourceCount(_ index: Int) async -> Int {
        let loop = channelLoops[index]
        return await loop.run { loop.load.sources }
    }

    /// Closes the listener, expects that no loop has a timer or an event source left, and ends the
    /// loops.
    func finish(_ peers: [RawPeer] = []) async throws {
        for peer in peers { await peer.leave() }
        await listener.close()
        try await until { await listener.load == (handshakes: 0, turnedAway: 0, ready: 0) }
        for loop in [listenerLoop, peerLoop] + channelLoops {
            try await until { await loop.run { loop.load == (timers: 0, sources: 0) } }
        }
        for loop in [listenerLoop, peerLoop] + channelLoops { await loop.shutdown() }
    }
}

/// A Unix listener. If an address is given, all links report this address.
private final class SameAddressListener: LinkListener {
    private let listener: UnixListener
    private let address: LinkAddress?
    private let whenAccepted: @Sendable (any Link) async -> Void

    init(
        _ listener: UnixListener, _ address: LinkAddress?,
        _ whenAccepted: @escaping @Sendable (any Link) async -> Void
    ) {
        self.listener = listener
        self.address = address
        self.whenAccepted = whenAccepted
    }

    var localDescription: String { listener.localDescription }
    func accept() async throws(LinkError) -> any Link {
        await withAddress(try await listener.accept())
    }
    func accept(
        on choose: @escaping @Sendable () -> EventLoop
    ) async throws(LinkError) -> any Link {
        await withAddress(try await listener.accept(on: choose))
    }
    func close() async { await listener.close() }

    private func withAddress(_ link: any Link) async -> any Link {
        await whenAccepted(link)
        return address.map { AddressedLink(link, $0) } ?? link
    }
}

/// Keeps a loop's thread busy from ``block(_:)`` until ``open()``.
private final class Gate: Sendable {
    private let isOpen = Locked(false)

    /// Blocks the thread of `loop`, and returns when it is blocked.
    func block(_ loop: EventLoop) async {
        await withCheckedContinuation { continuation in
            loop.execute { [self] in
                continuation.resume()
                while !isOpen.withLock({ $0 }) { sched_yield() }
            }
        }
    }

    func open() { isOpen.withLock { $0 = true } }
}

@Suite("A listener with channels on several loops", .timeLimit(.minutes(1)))
struct ChannelLoopsTests {
    @Test(
        "a link goes to the loop with the fewest open channels, and its channel runs there",
        arguments: [UnixAddress.Kind.stream, .seqpacket])
    func fewest(kind: UnixAddress.Kind) async throws {
        let spread = try await SpreadListener(kind: kind)
        let loops = spread.channelLoops
        var channels: [(dialed: SecureChannel, accepted: SecureChannel)] = []
        for number in 0..<4 {
            channels.append(try await spread.channel())
            #expect(channels[number].accepted.loop === loops[number % 2])
        }
        for (dialed, accepted) in channels {
            try await dialed.send([1])
            #expect(try await accepted.receive() == [1])
            try await accepted.send([2])
            #expect(try await dialed.receive() == [2])
        }
        // One loop has no open channels now, so it gets the next two.
        await channels[0].accepted.abort()
        await channels[2].accepted.abort()
        for _ in 0..<2 {
            channels.append(try await spread.channel())
            #expect(channels.last?.accepted.loop === loops[0])
        }
        for (dialed, accepted) in channels {
            await dialed.abort()
            await accepted.abort()
        }
        try await spread.finish()
    }

    @Test("if no loops are given for channels, the channels run on the listener's loop")
    func ownLoop() async throws {
        let spread = try await SpreadListener(loops: 0)
        let (dialed, accepted) = try await spread.channel()
        #expect(accepted.loop === spread.listenerLoop)
        await dialed.abort()
        await accepted.abort()
        try await spread.finish()
    }

    @Test(
        "the loop of a link is chosen when its peer has connected, not when the listener began to wait"
    )
    func chosenLate() async throws {
        let spread = try await SpreadListener()
        let loops = spread.channelLoops
        var channels: [(dialed: SecureChannel, accepted: SecureChannel)] = []
        for _ in 0..<4 { channels.append(try await spread.channel()) }
        // Both loops have two channels, and the listener waits for the next link.
        for channel in [channels[1], channels[3]] {
            #expect(channel.accepted.loop === loops[1])
            await channel.accepted.abort()
        }
        try await spread.until { await spread.sourceCount(1) == 0 }
        channels.append(try await spread.channel())
        #expect(channels[4].accepted.loop === loops[1])
        for (dialed, accepted) in channels {
            await dialed.abort()
            await accepted.abort()
        }
        try await spread.finish()
    }

    @Test("a link does not go to a loop that was shut down while the listener waited")
    func shutDownMeanwhile() async throws {
        let spread = try await SpreadListener()
        let loops = spread.channelLoops
        let first = try await spread.channel()
        #expect(first.accepted.loop === loops[0])
        await loops[1].shutdown()
        let second = try await spread.channel()
        #expect(second.accepted.loop === loops[0])
        for channel in [first.dialed, first.accepted, second.dialed, second.accepted] {
            await channel.abort()
        }
        try await spread.finish()
    }

    @Test("SecureListener.listen makes a listener that uses the loops in channelLoops")
    func publicInterface() async throws {
        let pinned = try PinnedPeers()
        let loops = (0..<2).map { EventLoop(name: "channels \($0)") }
        let path = "/tmp/blesec-test-\(UInt64.random(in: 0...UInt64.max)).sock"
        let listener = try await SecureListener.listen(
            on: try Endpoint(parsing: "unix:\(path)"),
            configuration: pinned.configuration(.acceptor), channelLoops: loops)
        var channels: [SecureChannel] = []
        for loop in loops {
            async let dialing = SecureChannel.dial(
                listener.localEndpoint, configuration: pinned.configuration(.dialer))
            let accepted = try await listener.accept()
            #expect(accepted.loop === loop)
            channels += [try await dialing, accepted]
        }
        for channel in channels { await channel.abort() }
        await listener.close()
        for loop in loops { await loop.shutdown() }
    }

    @Test("each of two calls of close returns only when the listener's endpoint is free")
    func closesTwice() async throws {
        let pinned = try PinnedPeers()
        let (listenerLoop, channelLoop) = (EventLoop(name: "listener"), EventLoop(name: "channel"))
        let path = "/tmp/blesec-test-\(UInt64.random(in: 0...UInt64.max)).sock"
        let listener = try await SecureListener.listen(
            on: try Endpoint(parsing: "unix:\(path)"),
            configuration: pinned.configuration(.acceptor), loop: listenerLoop,
            channelLoops: [channelLoop])
        // The first call waits for the other loop, since a channel there waits to be accepted.
        let dialed = try await SecureChannel.dial(
            listener.localEndpoint, configuration: pinned.configuration(.dialer))
        let closings = (0..<2).map { _ in
            Task(executorPreference: listenerLoop) {
                await listener.close()
                return unsafe access(path, F_OK) != 0
            }
        }
        for closing in closings { #expect(await closing.value) }
        await dialed.abort()
        for loop in [listenerLoop, channelLoop] { await loop.shutdown() }
    }

    @Test("the limit for handshakes holds for all loops together; the oldest handshakes make room")
    func handshakes() async throws {
        let spread = try await SpreadListener(limits: ListenerTests.limits(handshakes: 4))
        var peers: [RawPeer] = []
        for number in 1...4 {
            peers.append(try await spread.rawPeer())
            try await spread.until { await spread.listener.load.handshakes == number }
        }
        try await spread.until {
            let sources = (await spread.sourceCount(0), await spread.sourceCount(1))
            return sources == (2, 2)
        }
        for _ in 0..<2 { peers.append(try await spread.rawPeer()) }
        await spread.clock.advance(by: .milliseconds(99))
        #expect(await spread.listener.load == (handshakes: 4, turnedAway: 0, ready: 0))
        await spread.clock.advance(by: .milliseconds(1))
        // The two oldest handshakes are on different loops.
        try await spread.until { await spread.listener.load.turnedAway == 2 }
        #expect(await spread.listener.load == (handshakes: 4, turnedAway: 2, ready: 0))
        for (index, peer) in peers.enumerated() {
            #expect(await peer.receive() == (index < 2 ? ListenerTests.busy : []))
        }
        await spread.clock.advance(by: .seconds(2))
        try await spread.until { spread.failures.all == [.busy, .busy] }
        try await spread.finish(peers)
    }

    @Test(
        "in a flood over two loops, each handshake that is turned away makes room for one other, and a known peer gets a place",
        arguments: [false, true])
    func flood(isListenerLoopFirst: Bool) async throws {
        let spread = try await SpreadListener(
            isListenerLoopFirst: isListenerLoopFirst, limits: ListenerTests.limits(handshakes: 8))
        var peers: [RawPeer] = []
        for index in 0..<40 {
            peers.append(try await spread.rawPeer())
            if index % 2 == 0 { await peers[index].send(ListenerTests.firstFlight) }
        }
        let dialing = try spread.dial()
        // There are 41 peers and 8 places, so 33 peers have to make room, 8 of them every 100 ms.
        for round in 0...5 {
            try await spread.until {
                let load = await spread.listener.load
                #expect(load.handshakes + load.ready <= 8)
                let isFull = load.handshakes + load.ready == 8
                return isFull && load.turnedAway + spread.failures.all.count == min(8 * round, 33)
            }
            if round < 5 { await spread.clock.advance(by: .milliseconds(100)) }
        }
        let accepted = try await spread.listener.accept()
        let dialed = try await dialing.value
        try await dialed.send([1])
        #expect(try await accepted.receive() == [1])
        await spread.clock.advance(by: .seconds(2))
        try await spread.until {
            spread.failures.all == Array(repeating: .busy, count: 33)
        }
        await dialed.abort()
        await accepted.abort()
        try await spread.finish(peers)
    }

    @Test("links beyond the limit of their address are answered busy, and never have a place")
    func perAddress() async throws {
        let spread = try await SpreadListener(peerAddress: LinkAddress("one"))
        var peers: [RawPeer] = []
        for _ in 0..<10 { peers.append(try await spread.rawPeer()) }
        try await spread.until {
            let load = await spread.listener.load
            #expect(load.handshakes <= 4)
            return load == (handshakes: 4, turnedAway: 6, ready: 0)
        }
        for (index, peer) in peers.enumerated() {
            var heard: [UInt8] = []
            let expected = index >= 4 ? ListenerTests.busy : []
            try await spread.until {
                heard += await peer.receive()
                return heard == expected
            }
        }
        // A place of this address that becomes free goes to the next link.
        await peers[0].leave()
        try await spread.until { await spread.listener.load.handshakes == 3 }
        let (dialed, accepted) = try await spread.channel()
        #expect(await spread.listener.load == (handshakes: 3, turnedAway: 6, ready: 0))
        await dialed.abort()
        await accepted.abort()
        try await spread.finish(peers)
    }

    @Test("a link beyond the limit of its address has no place, even before it is answered busy")
    func perAddressUnanswered() async throws {
        let gate = Gate()
        let spread = try await SpreadListener(
            isListenerLoopFirst: true, limits: ListenerTests.limits(handshakes: 8, perAddress: 1),
            peerAddress: LinkAddress("one"),
            whenAccepted: { link in
                if link.loop.name == "channels 1" { await gate.block(link.loop) }
            })
        let first = try await spread.rawPeer()
        try await spread.until { await spread.listener.load.handshakes == 1 }
        let second = try await spread.rawPeer()
        try await spread.untilOnListenerLoop { await spread.listener.load.turnedAway == 1 }
        #expect(await spread.listener.load == (handshakes: 1, turnedAway: 1, ready: 0))
        gate.open()
        try await spread.until { await second.receive() == ListenerTests.busy }
        #expect(await spread.listener.load == (handshakes: 1, turnedAway: 1, ready: 0))
        try await spread.finish([first, second])
    }

    @Test("at most 32 links of all loops together get time to close after they were turned away")
    func leaving() async throws {
        let spread = try await SpreadListener(peerAddress: LinkAddress("one"))
        var peers: [RawPeer] = []
        for _ in 0..<104 { peers.append(try await spread.rawPeer()) }
        try await spread.until {
            let load = await spread.listener.load
            #expect(load.turnedAway <= 32)
            return load == (handshakes: 4, turnedAway: 32, ready: 0)
                && spread.failures.all.count == 68
        }
        await spread.clock.advance(by: .seconds(2))
        try await spread.until { await spread.listener.load.turnedAway == 0 }
        #expect(spread.failures.all == Array(repeating: .busy, count: 100))
        try await spread.finish(peers)
    }

    @Test("a handshake that completes before its loop is asked to make room keeps its place")
    func completedMeanwhile() async throws {
        let spread = try await SpreadListener(
            isListenerLoopFirst: true, limits: ListenerTests.limits(handshakes: 2))
        let (listener, peerLoop) = (spread.listener, spread.peerLoop)
        let first = try await spread.rawPeer()
        try await spread.until { await listener.load.handshakes == 1 }
        // The known peer has sent its hello, but not its last message. Its handshake is on the
        // second loop, and is the oldest after the first peer has left.
        let socket = try await SocketLink.dial(spread.address, loop: peerLoop)
        let configuration = try spread.pinned.configuration(.dialer)
        let (link, dialed) = try await peerLoop.run {
            let link = FaultyLink(socket)
            let channel = SecureChannel(over: link, role: .dialer, configuration: configuration)
            try channel.assumeIsolated { try $0.start() }
            link.hold()
            return (link, channel)
        }
        let opening = Task(executorPreference: peerLoop) { try await dialed.becomeReady() }
        try await spread.until { await listener.load.handshakes == 2 }
        try await spread.until { await dialed.phase == .proving }
        await first.leave()
        try await spread.until { await listener.load.handshakes == 1 }
        let second = try await spread.rawPeer()
        try await spread.until { await listener.load.handshakes == 2 }
        #expect(await spread.sourceCount(1) == 1)
        await spread.clock.advance(by: .milliseconds(100))
        // The last message arrives while the second loop is busy. Then a new link needs a place.
        let gate = Gate()
        await gate.block(spread.channelLoops[1])
        await peerLoop.run { link.release() }
        let third = try await spread.rawPeer()
        try await spread.untilOnListenerLoop { await listener.isAsking }
        #expect(await listener.load == (handshakes: 2, turnedAway: 0, ready: 0))
        gate.open()
        let accepted = try await listener.accept()
        try await opening.value
        #expect(accepted.loop === spread.channelLoops[1])
        // The third peer has the place of the accepted channel, or that of the second peer. This
        // depends on what the listener learned first from the second loop: that the handshake is
        // over, or that it was not turned away. After the guaranteed time, two of the four silent
        // peers have the two places in either case.
        var peers = [second, third]
        for _ in 0..<2 { peers.append(try await spread.rawPeer()) }
        await spread.clock.advance(by: .milliseconds(100))
        try await spread.until {
            await listener.load == (handshakes: 2, turnedAway: 2, ready: 0)
        }
        try await dialed.send([1])
        #expect(try await accepted.receive() == [1])
        await dialed.abort()
        await accepted.abort()
        try await spread.finish(peers)
    }

    @Test("a peer whose trust decision is pending on another loop keeps its place")
    func decisionPending() async throws {
        let person = TrustDecisionTests.Person()
        let spread = try await SpreadListener(limits: ListenerTests.limits(handshakes: 2)) {
            $0.trust = person.policy
        }
        let dialing = try spread.dial()
        try await spread.until { !person.questions.withLock(\.isEmpty) }
        var peers: [RawPeer] = []
        for round in 0..<6 {
            peers.append(try await spread.rawPeer())
            await spread.clock.advance(by: .milliseconds(100))
            try await spread.until {
                let load = await spread.listener.load
                return load.handshakes == 2 && load.turnedAway == round
            }
        }
        person.answer(.admit)
        let accepted = try await spread.listener.accept()
        let dialed = try await dialing.value
        await dialed.abort()
        await accepted.abort()
        try await spread.finish(peers)
    }

    @Test("the limit for trust decisions holds for all loops together")
    func decisions() async throws {
        let person = TrustDecisionTests.Person()
        var limits = SecureListener.Limits()
        limits.awaitingTrustDecision = 1
        let spread = try await SpreadListener(limits: limits) { $0.trust = person.policy }
        let first = try spread.dial()
        try await spread.until { !person.questions.withLock(\.isEmpty) }
        #expect(await failure(of: try spread.dial()) == .busy)
        person.answer(.admit)
        let accepted = try await spread.listener.accept()
        #expect(accepted.loop === spread.channelLoops[0])
        let dialed = try await first.value
        await dialed.abort()
        await accepted.abort()
        try await spread.finish()
    }

    @Test("closing the listener ends handshakes, and channels that wait for accept, on all loops")
    func closes() async throws {
        let spread = try await SpreadListener()
        let dialings = [try spread.dial(), try spread.dial()]
        try await spread.until { await spread.listener.load.ready == 2 }
        var peers: [RawPeer] = []
        for _ in 0..<4 { peers.append(try await spread.rawPeer()) }
        try await spread.until { await spread.listener.load.handshakes == 4 }
        await spread.listener.close()
        await #expect(throws: ChannelError(.closed, "")) { try await spread.listener.accept() }
        for peer in peers { try await spread.until { await peer.isTurnedAway } }
        for dialing in dialings {
            let channel = try await dialing.value
            await #expect(throws: ChannelError(.truncated, "")) { try await channel.receive() }
        }
        try await spread.finish(peers)
    }

    @Test("a loop that is shut down ends its channels and gets no new ones; the other loops go on")
    func shutdown() async throws {
        let spread = try await SpreadListener()
        let (listener, loops) = (spread.listener, spread.channelLoops)
        var peers: [RawPeer] = []
        for number in 1...4 {
            peers.append(try await spread.rawPeer())
            try await spread.until { await listener.load.handshakes == number }
        }
        try await spread.until { await spread.sourceCount(1) == 2 }
        await loops[1].shutdown()
        try await spread.until { await listener.load.handshakes == 2 }
        #expect(spread.failures.all == [.closed, .closed])
        for index in [1, 3] { try await spread.until { await peers[index].isTurnedAway } }
        for index in [0, 2] { #expect(await !peers[index].isTurnedAway) }
        var channels: [SecureChannel] = []
        for _ in 0..<3 {
            let (dialed, accepted) = try await spread.channel()
            #expect(accepted.loop === loops[0])
            channels += [dialed, accepted]
        }
        // Without a loop for channels, the listener's own loop serves the next peer.
        await loops[0].shutdown()
        let (dialed, accepted) = try await spread.channel()
        #expect(accepted.loop === spread.listenerLoop)
        for channel in channels + [dialed, accepted] { await channel.abort() }
        try await spread.finish(peers)
    }

    @Test("if a loop is shut down, a link that waits for a place is closed or served elsewhere")
    func shutdownWhileWaiting() async throws {
        let spread = try await SpreadListener(
            loops: 1, limits: ListenerTests.limits(handshakes: 1))
        var peers: [RawPeer] = []
        for _ in 0..<3 { peers.append(try await spread.rawPeer()) }
        try await spread.until { await spread.listener.load.handshakes == 1 }
        await spread.channelLoops[0].shutdown()
        // The second link is closed if it was made on the loop before the shutdown. If not, it is
        // made on the listener's own loop, as the third is, and has the place.
        try await spread.until { await peers[0].isTurnedAway }
        try await spread.until {
            let closedCount = await peers[1].isTurnedAway ? 2 : 1
            return await spread.listener.load.handshakes == 1
                && spread.failures.all == Array(repeating: .closed, count: closedCount)
        }
        #expect(await !peers[2].isTurnedAway)
        try await spread.finish(peers)
    }

    /// Runs in its own process, because it uses up all descriptors.
    @Test("when descriptors run out, links wait, and are served when some are free again")
    func noDescriptors() async {
        await #expect(processExitsWith: .success) {
            let pinned = try PinnedPeers()
            let loops = (0..<3).map { EventLoop(name: "loop \($0)") }
            let path = "/tmp/blesec-test-\(UInt64.random(in: 0...UInt64.max)).sock"
            let address = try UnixAddress(path: path)
            let listener = try await SecureListener.listen(
                on: Endpoint(address), configuration: pinned.configuration(.acceptor),
                loop: loops[0], channelLoops: loops)
            var limit = rlimit(rlim_cur: 64, rlim_max: 64)
            #expect(unsafe setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0)
            var peers: [RawPeer] = []
            while let link = try? await SocketLink.dial(address, loop: loops[0]) {
                peers.append(RawPeer(link))
            }
            #expect(peers.count > 16)
            for peer in peers { await peer.leave() }
            async let dialing = SecureChannel.dial(
                listener.localEndpoint, configuration: pinned.configuration(.dialer),
                loop: loops[0])
            let accepted = try await listener.accept()
            let dialed = try await dialing
            try await dialed.send([1])
            #expect(try await accepted.receive() == [1])
            await dialed.abort()
            await accepted.abort()
            await listener.close()
            for loop in loops { await loop.shutdown() }
        }
    }
}
