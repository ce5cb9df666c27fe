import BLESecChannelCore
import BLESecLinks
import BLESecLocking
import BLESecTesting
import Testing

@testable import BLESec

/// What unauthenticated peers can do to a listener.
@Suite("A listener among unauthenticated peers")
struct ListenerTests {
    static let hello = UnauthenticatedTests.hello
    /// A hello and a first message of XX, which anyone can make without a key.
    static let firstFlight = hello + [0, 32] + (1...32).map { UInt8($0) }

    static func limits(
        handshakes: Int, perAddress: Int = 4, backlog: Int = 16
    ) -> SecureListener.Limits {
        var limits = SecureListener.Limits()
        limits.handshakes = handshakes
        limits.handshakesPerAddress = perAddress
        limits.backlog = backlog
        return limits
    }

    static let busy = Answer(.busy).encoded

    @Test("a known peer gets a channel even if there are more unauthenticated peers than places")
    func morePeersThanPlaces() async throws {
        let fixture = try await ListenerFixture(limits: Self.limits(handshakes: 8))
        var peers: [RawPeer] = []
        for index in 0..<100 { peers.append(await fixture.rawPeer(from: "peer \(index)")) }
        let dialing = try await fixture.pinnedDial(from: "pinned")
        // There are 101 peers and 8 places. So 93 unauthenticated peers have to make room for
        // others, 8 of them every 100 ms.
        for _ in 0..<12 {
            #expect(await fixture.listener.load.handshakes == 8)
            #expect(await fixture.listener.load.ready == 0)
            await fixture.clock.advance(by: .milliseconds(100))
        }
        let accepted = try await fixture.listener.accept()
        let dialed = try await dialing.value
        try await dialed.send([1])
        #expect(try await accepted.receive() == [1])
        await fixture.clock.advance(by: .seconds(2))
        #expect(fixture.failures.all == Array(repeating: .busy, count: 93))
        await dialed.abort()
        await accepted.abort()
        for peer in peers { await peer.leave() }
        await fixture.finish()
    }

    @Test(
        "if two tasks wait in `accept`, one gets the ready channel and the other goes on waiting",
        .timeLimit(.minutes(1)))
    func twoConsumers() async throws {
        let fixture = try await ListenerFixture()
        let listener = fixture.listener
        let results = Locked<[Result<SecureChannel, ChannelError>]>([])
        // The tasks are detached, so that their calls queue on the loop one after the other.
        let consumers = (0..<2).map { _ in
            Task.detached {
                let result: Result<SecureChannel, ChannelError>
                do throws(ChannelError) {
                    result = .success(try await listener.accept())
                } catch {
                    result = .failure(error)
                }
                results.withLock { $0.append(result) }
            }
        }
        for number in 1...2 {
            let dialed = try await fixture.pinnedDial().value
            while results.withLock({ $0.count }) < number {
                try Task.checkCancellation()
                await fixture.clock.settle()
            }
            #expect(results.withLock { $0.allSatisfy { (try? $0.get()) != nil } })
            await dialed.abort()
        }
        for consumer in consumers { await consumer.value }
        for case .success(let channel) in results.withLock({ $0 }) { await channel.abort() }
        await fixture.finish()
    }

    @Test("after its guaranteed time the oldest link makes room, however far its handshake is")
    func oldest() async throws {
        let fixture = try await ListenerFixture(limits: Self.limits(handshakes: 4))
        var peers: [RawPeer] = []
        for index in 0..<4 {
            peers.append(await fixture.rawPeer())
            if index % 2 == 0 { await peers[index].send(Self.firstFlight) }
            await fixture.clock.advance(by: .milliseconds(10))
        }
        peers += [await fixture.rawPeer(), await fixture.rawPeer()]
        await fixture.clock.advance(by: .milliseconds(59))
        for peer in peers { #expect(await !peer.isTurnedAway) }
        await fixture.clock.advance(by: .milliseconds(1))
        // The first peer has already got the answer to its first flight, so it gets no `busy`.
        #expect(await peers[0].isTurnedAway)
        #expect(await peers[1].receive().isEmpty)
        await fixture.clock.advance(by: .milliseconds(10))
        #expect(await peers[1].receive() == Self.busy)
        // No peer waits for a place now, so the other peers keep their places.
        await fixture.clock.advance(by: .seconds(1))
        for peer in peers[2...] { #expect(await !peer.isTurnedAway) }
        #expect(await fixture.listener.load == (handshakes: 4, turnedAway: 1, ready: 0))
        await fixture.finish()
    }

    @Test(
        "a link that was turned away has two seconds to close, and at most 32 links have that time")
    func turnedAwayLinksClose() async throws {
        let fixture = try await ListenerFixture()
        var peers: [RawPeer] = []
        for _ in 0..<104 { peers.append(await fixture.rawPeer(from: "one")) }
        // Four links of the address have places, and 100 were turned away. The newest 32 of these
        // have time to close; the other 68 are closed.
        #expect(await fixture.listener.load == (handshakes: 4, turnedAway: 32, ready: 0))
        #expect(fixture.failures.all == Array(repeating: .busy, count: 68))
        for peer in peers[72...] { #expect(await peer.receive() == Self.busy) }
        // Bytes from a link that was turned away are ignored.
        await peers[72].send(Self.firstFlight)
        // A link that its peer has closed no longer counts among the links that were turned away.
        await peers[103].leave()
        await fixture.clock.settle()
        #expect(await fixture.listener.load == (handshakes: 4, turnedAway: 31, ready: 0))
        await fixture.clock.advance(by: .seconds(2))
        #expect(await fixture.listener.load == (handshakes: 4, turnedAway: 0, ready: 0))
        #expect(await peers[72].receive().isEmpty)
        #expect(await peers[72].isTurnedAway)
        await fixture.finish()
    }

    @Test("a handshake keeps its place if unread bytes that have arrived complete it")
    func completedByUnreadBytes() async throws {
        let fixture = try ChannelFixture()
        let (first, second) = await fixture.links()
        let channels = [
            try fixture.channel(over: first, .dialer), try fixture.channel(over: second, .acceptor),
        ]
        let acceptor = channels[1]
        let openings = [fixture.opening(channels[0])]
        await fixture.clock.settle()
        await fixture.loop.run { first.hold() }
        let accepting = fixture.opening(acceptor)
        await fixture.clock.settle()
        // The peer's last message and its `ready` arrive now. Before the channel reads them,
        // `turnAway` is called, as by a listener that needs the place.
        let isTurnedAway = await fixture.loop.run {
            first.release()
            return acceptor.assumeIsolated { $0.turnAway(ChannelError(.busy, "no room")) }
        }
        #expect(!isTurnedAway)
        for opening in openings + [accepting] { try await opening.value }
        for channel in channels { await channel.abort() }
        await fixture.finish()
    }

    @Test("a direct peer that has not proven itself can lose its place after the guaranteed time")
    func unproven() async throws {
        let useDirectIK = { (configuration: inout ChannelConfiguration) in
            configuration.mode = .direct
            configuration.protocols = ["Noise_IK_25519_ChaChaPoly_SHA256"]
        }
        let listening = try await ListenerFixture(
            limits: Self.limits(handshakes: 2), change: useDirectIK)
        // An unauthenticated peer records the known peer's first message, to replay it.
        let (near, far) = await listening.loop.run { [loop = listening.loop] in
            MemoryLink.pair(loop: loop)
        }
        let channel = try listening.fixture.channel(over: near, .dialer, change: useDirectIK)
        let opening = listening.fixture.opening(channel)
        await listening.clock.settle()
        let recording = await RawPeer(far).receive()
        #expect(!recording.isEmpty)
        var peers: [RawPeer] = []
        for _ in 0..<3 {
            peers.append(await listening.rawPeer())
            await peers.last?.send(recording)
            await listening.clock.settle()
        }
        #expect(await !peers[0].receive().isEmpty)
        await listening.clock.advance(by: .milliseconds(99))
        #expect(await !peers[0].isTurnedAway)
        await listening.clock.advance(by: .milliseconds(1))
        #expect(await peers[0].isTurnedAway)
        #expect(await listening.listener.load == (handshakes: 2, turnedAway: 0, ready: 0))
        await channel.abort()
        _ = await failure(of: opening)
        await listening.finish()
    }

    @Test(
        "a peer keeps its place while the trust decision about it is pending",
        .timeLimit(.minutes(1)))
    func decisionPending() async throws {
        let person = TrustDecisionTests.Person()
        let fixture = try await ListenerFixture(limits: Self.limits(handshakes: 2)) {
            $0.trust = person.policy
        }
        let dialing = try await fixture.pinnedDial()
        while person.questions.withLock(\.isEmpty) {
            try Task.checkCancellation()
            await fixture.clock.settle()
        }
        var peers: [RawPeer] = []
        for _ in 0..<10 {
            peers.append(await fixture.rawPeer())
            await fixture.clock.advance(by: .milliseconds(100))
            #expect(await fixture.listener.load.handshakes == 2)
        }
        person.answer(.admit)
        _ = try await dialing.value
        for peer in peers { await peer.leave() }
        await fixture.finish()
    }

    @Test("closing a listener also closes the links that wait for a place")
    func closesWhileLinksWait() async throws {
        let fixture = try await ListenerFixture(limits: Self.limits(handshakes: 2))
        var peers: [RawPeer] = []
        for _ in 0..<4 { peers.append(await fixture.rawPeer()) }
        await fixture.listener.close()
        await fixture.clock.settle()
        for peer in peers { #expect(await peer.isTurnedAway) }
        await fixture.finish()
    }

    @Test("one address has at most four handshakes at a time, however many places are free")
    func perAddress() async throws {
        let fixture = try await ListenerFixture()
        var peers: [RawPeer] = []
        for _ in 0..<10 { peers.append(await fixture.rawPeer(from: "one")) }
        #expect(await fixture.listener.load == (handshakes: 4, turnedAway: 6, ready: 0))
        for (index, peer) in peers.enumerated() {
            #expect(await peer.receive() == (index >= 4 ? Self.busy : []))
        }
        // Another address is still served. The first address is served again when one of its
        // handshakes has ended.
        let dialing = try await fixture.pinnedDial(from: "another")
        _ = try await dialing.value
        await peers[0].leave()
        await fixture.clock.settle()
        let again = try await fixture.pinnedDial(from: "one")
        _ = try await again.value
        await fixture.finish()
    }

    @Test("the limit for one address does not apply to links without an address")
    func noAddress() async throws {
        let fixture = try await ListenerFixture()
        var peers: [RawPeer] = []
        for _ in 0..<10 { peers.append(await fixture.rawPeer()) }
        #expect(await fixture.listener.load.handshakes == 10)
        for peer in peers { await peer.leave() }
        await fixture.finish()
    }

    @Test("a peer that sends nothing, half a hello, or single bytes is turned away after 5 seconds")
    func slow() async throws {
        let fixture = try await ListenerFixture()
        let silent = await fixture.rawPeer()
        let half = await fixture.rawPeer()
        await half.send(Array(Self.hello.prefix(10)))
        let dripping = await fixture.rawPeer()
        for index in 0..<10 {
            await dripping.send([Self.hello[index]])
            await fixture.clock.advance(by: .milliseconds(499))
        }
        #expect(await fixture.listener.load.handshakes == 3)
        await fixture.clock.advance(by: .milliseconds(10))
        #expect(await fixture.listener.load.handshakes == 0)
        for peer in [silent, half, dripping] { #expect(await peer.isTurnedAway) }
        #expect(fixture.failures.all == [.timedOut, .timedOut, .timedOut])
        await fixture.finish()
    }

    @Test("a peer that stops during a handshake is turned away at the handshake's deadline")
    func unfinished() async throws {
        let fixture = try await ListenerFixture()
        let peer = await fixture.rawPeer()
        await peer.send(Self.firstFlight)
        await fixture.clock.advance(by: .seconds(9))
        #expect(await !peer.isTurnedAway)
        await fixture.clock.advance(by: .seconds(2))
        #expect(await peer.isTurnedAway)
        await fixture.finish()
    }

    @Test("bytes that cannot begin a hello end the handshake immediately")
    func noHello() async throws {
        let fixture = try await ListenerFixture()
        var random = SeededGenerator(seed: 21)
        for _ in 0..<50 {
            let peer = await fixture.rawPeer()
            await peer.send([0xFF] + random.bytes(Int.random(in: 1...200, using: &random)))
            await fixture.clock.settle()
            #expect(await peer.isTurnedAway)
        }
        #expect(fixture.failures.all == Array(repeating: .protocolViolation, count: 50))
        #expect(await fixture.listener.load.handshakes == 0)
        await fixture.finish()
    }

    @Test("a peer that sends too many bytes is turned away after about 32 KiB")
    func tooMuch() async throws {
        let fixture = try await ListenerFixture()
        let peer = await fixture.rawPeer()
        await peer.send(Self.hello + [0x80, 0x00])
        var sent = 0
        while await peer.send(Array(repeating: 0, count: 8_192)), sent < 1 << 20 {
            sent += 8_192
            await fixture.clock.settle()
        }
        #expect((3 * 8_192...5 * 8_192).contains(sent))
        #expect(fixture.failures.all.count == 1)
        await fixture.finish()
    }

    @Test("while the backlog of ready channels is full, other peers wait; no channel is lost")
    func backlog() async throws {
        let fixture = try await ListenerFixture(limits: Self.limits(handshakes: 8, backlog: 2))
        var dialings: [Task<SecureChannel, any Error>] = []
        for _ in 0..<5 {
            dialings.append(try await fixture.pinnedDial())
            // Lets this handshake end before the next link arrives: a handshake that is under way
            // when the backlog becomes full may still become ready.
            await fixture.clock.settle()
        }
        #expect(await fixture.listener.load.ready == 2)
        var channels: [SecureChannel] = []
        for _ in 0..<5 {
            channels.append(try await fixture.listener.accept())
            await fixture.clock.settle()
        }
        for dialing in dialings { channels.append(try await dialing.value) }
        for channel in channels { #expect(await !channel.isOver) }
        for channel in channels { await channel.abort() }
        await fixture.finish()
    }

    @Test("closing a listener ends waiting accepts and handshakes under way")
    func closes() async throws {
        let fixture = try await ListenerFixture()
        let accepting = Task(executorPreference: fixture.loop) {
            let accepted = try await fixture.listener.accept()
            _ = try await fixture.listener.accept()
            await accepted.abort()
        }
        let dialed = try await fixture.pinnedDial().value
        let waiting = await fixture.rawPeer()
        await fixture.listener.close()
        #expect(await failure(of: accepting) == .closed)
        await fixture.clock.settle()
        #expect(await waiting.isTurnedAway)
        await fixture.listener.close()
        await dialed.abort()
        await fixture.finish()
    }

    @Test("an accept that is cancelled does not take a peer away from the next accept")
    func cancelled() async throws {
        let fixture = try await ListenerFixture()
        let accepting = Task(executorPreference: fixture.loop) {
            _ = try await fixture.listener.accept()
        }
        await fixture.clock.settle()
        accepting.cancel()
        #expect(await failure(of: accepting) == .cancelled)
        let dialing = try await fixture.pinnedDial()
        let accepted = try await fixture.listener.accept()
        #expect(await accepted.peer.fingerprint == fixture.pinned.dialer.fingerprint)
        await accepted.abort()
        _ = try await dialing.value
        await fixture.finish()
    }

    @Test("an accept fails when the loop is shut down", arguments: [0, 4])
    func shutdown(peers count: Int) async throws {
        let fixture = try ChannelFixture()
        let path = "/tmp/blesec-test-\(UInt64.random(in: 0...UInt64.max)).sock"
        let address = try UnixAddress(path: path)
        let listener = try await SecureListener.listen(
            on: Endpoint(address), configuration: fixture.pinned.configuration(.acceptor),
            limits: Self.limits(handshakes: 2), loop: fixture.loop)
        let accepting = Task(executorPreference: fixture.loop) { _ = try await listener.accept() }
        let outside = EventLoop(name: "unauthenticated")
        var peers: [any Link] = []
        // There are two places, so of four peers two wait for a place.
        for _ in 0..<count {
            peers.append(try await SocketLink.dial(address, loop: outside))
            await fixture.clock.settle()
        }
        await fixture.loop.shutdown()
        #expect(await failure(of: accepting) == .closed)
        for peer in peers { await outside.run { peer.close() } }
        await outside.shutdown()
    }

    @Test("a released listener leaves nothing on the loop, even if it had unauthenticated peers")
    func dropped() async throws {
        weak var weakListener: SecureListener?
        let channels: ChannelFixture
        do {
            let listening = try await ListenerFixture()
            weakListener = listening.listener
            channels = listening.fixture
            let peer = await listening.rawPeer()
            await peer.leave()
        }
        await channels.finish()
        #expect(weakListener == nil)
    }

    @Test("a listener that is released while a link waits for room is freed, and closes the link")
    func droppedWhenFull() async throws {
        weak var weakListener: SecureListener?
        let channels: ChannelFixture
        let dialed: SecureChannel
        let waiting: RawPeer
        do {
            let listening = try await ListenerFixture(
                limits: Self.limits(handshakes: 8, backlog: 1))
            weakListener = listening.listener
            channels = listening.fixture
            dialed = try await listening.pinnedDial().value
            await channels.clock.settle()
            waiting = await listening.rawPeer()
            #expect(await listening.listener.load == (handshakes: 0, turnedAway: 0, ready: 1))
        }
        await channels.clock.settle()
        #expect(weakListener == nil)
        #expect(await waiting.isTurnedAway)
        await waiting.leave()
        await dialed.abort()
        await channels.finish()
    }

    @Test(
        "a listener that cannot accept peers reports this once, and again only after an accepted peer"
    )
    func acceptErrors() async throws {
        let loop = EventLoop(name: "listener")
        let (peerEnd, listenerEnd) = await loop.run { MemoryLink.pair(loop: loop) }
        let source = ScriptedListener([
            .failure(.unavailable), .failure(.unavailable), .success(listenerEnd),
            .failure(.permission),
        ])
        let listener = SecureListener(
            source, at: try Endpoint(parsing: "unix:/nowhere"),
            configuration: try PinnedPeers().configuration(.acceptor), limits: .init(), loop: loop)
        var failures = await listener.failures().makeAsyncIterator()
        await listener.start()
        #expect(await failures.next()?.error.code == .limitExceeded)
        #expect(await failures.next()?.error.code == .permission)
        await listener.close()
        await loop.run { peerEnd.close() }
        await loop.shutdown()
    }
}

/// A listener with given results of `accept`; after the last one, `accept` waits until it is
/// cancelled.
private final class ScriptedListener: LinkListener {
    enum Outcome: Sendable {
        case success(any Link)
        case failure(LinkError.Code)
    }

    private let results: Locked<[Outcome]>

    init(_ results: [Outcome]) { self.results = Locked(results) }

    let localDescription = "scripted"

    func accept() async throws(LinkError) -> any Link {
        let next = results.withLock { $0.isEmpty ? nil : $0.removeFirst() }
        switch next {
        case .success(let link): return link
        case .failure(let code): throw LinkError(code, "scripted")
        case nil:
            try? await Task.sleep(for: .seconds(60))
            throw LinkError(.cancelled, "the task was cancelled")
        }
    }

    func close() async {}
}
