import BLESecChannelCore
import BLESecCredentials
import BLESecLinks
import BLESecLocking
import BLESecTesting
import Glibc
import TestSupport
import Testing

@testable import BLESec

/// Trust stores that are slow, fail, or never answer: only the channel that calls the store waits.
@Suite("Trust stores")
struct StoreTests {
    /// A store whose answers to the slow calls wait until a test releases them, at most 20 s.
    @safe final class SlowStore: TrustStore, @unchecked Sendable {
        // Sendable because the pointer does not change, and the system synchronizes the semaphore.
        private let semaphore: UnsafeMutablePointer<sem_t>
        let names = Locked<[String: Fingerprint]>([:])
        /// The calls that have begun.
        let begun = Locked<[String]>([])
        private let slowCalls: Set<String>

        init(slow: String...) {
            slowCalls = Set(slow)
            unsafe semaphore = .allocate(capacity: 1)
            unsafe sem_init(semaphore, 0, 0)
        }

        deinit {
            unsafe sem_destroy(semaphore)
            unsafe semaphore.deallocate()
        }

        /// Lets `count` answers proceed.
        func release(_ count: Int = 1) { for _ in 0..<count { unsafe sem_post(semaphore) } }

        /// Records that a call has begun; waits for ``release(_:)`` if the call is slow.
        private func begin(_ call: String) {
            begun.withLock { $0.append(call) }
            guard slowCalls.contains(call) else { return }
            // The limit ends a deadlock: if the loop's thread waited here, it would wait for the
            // test, and the test for the loop.
            var limit = timespec()
            unsafe clock_gettime(CLOCK_REALTIME, &limit)
            limit.tv_sec += 20
            unsafe sem_timedwait(semaphore, &limit)
        }

        func key(named name: String) throws(ChannelError) -> Fingerprint? {
            begin("key")
            return names.withLock { $0[name] }
        }

        func bind(_ name: String, to key: Fingerprint) throws(ChannelError) {
            begin("bind")
            names.withLock { $0[name] = key }
        }

        func contains(_ key: Fingerprint) throws(ChannelError) -> Bool {
            begin("contains")
            return names.withLock { $0.values.contains(key) }
        }
    }

    /// Starts an acceptor and a dialer that uses `store`, and returns when the store's `call` has
    /// begun; `changeAcceptor` adapts the acceptor's configuration.
    private func begin(
        _ fixture: ChannelFixture, _ store: SlowStore, until call: String,
        changeAcceptor: (inout ChannelConfiguration) -> Void = { _ in }
    ) async throws -> (
        dialer: SecureChannel, acceptor: SecureChannel, dialing: Task<Void, any Error>,
        accepting: Task<Void, any Error>
    ) {
        let (first, second) = await fixture.links()
        let dialer = try fixture.channel(over: first, .dialer) {
            $0.trust = .firstUse(store, name: "desk")
        }
        let acceptor = try fixture.channel(over: second, .acceptor, change: changeAcceptor)
        let (dialing, accepting) = (fixture.opening(dialer), fixture.opening(acceptor))
        while !store.begun.withLock({ $0.contains(call) }) { await fixture.clock.settle() }
        return (dialer, acceptor, dialing, accepting)
    }

    /// Expects that two other channels on the same loop become ready, and carry a message.
    private func expectOthersWork(_ fixture: ChannelFixture) async throws {
        let (dialer, acceptor) = try await fixture.channels()
        try await dialer.send([1])
        #expect(try await acceptor.receive() == [1])
    }

    @Test(
        "a slow store delays no other channel of the loop",
        arguments: ["key", "bind"])
    func slow(call: String) async throws {
        let fixture = try ChannelFixture()
        let store = SlowStore(slow: call)
        let opening = try await begin(fixture, store, until: call)
        try await expectOthersWork(fixture)
        #expect(
            await opening.dialer.phase == (call == "key" ? .awaitingTrustDecision : .established))
        #expect(store.names.withLock { $0["desk"] } == nil)
        store.release()
        try await opening.dialing.value
        try await opening.accepting.value
        #expect(await opening.acceptor.failure == nil)
        #expect(store.names.withLock { $0["desk"] } == fixture.pinned.acceptor.fingerprint)
    }

    @Test("a lock that another process has on the known peers' file delays no other channel")
    func lockedFile() async throws {
        let fixture = try ChannelFixture()
        let folder = ScratchFolder()
        let path = folder.write("known_peers", "")
        let holder = try Subprocess(
            "flock", [path, "sh", "-c", "echo held >&2; cat"], input: .keptOpen)
        _ = try holder.line("held")
        let (first, second) = await fixture.links()
        let dialer = try fixture.channel(over: first, .dialer) {
            $0.trust = .firstUse(KnownPeersFile(path), name: "desk")
        }
        let acceptor = try fixture.channel(over: second, .acceptor)
        let (dialing, accepting) = (fixture.opening(dialer), fixture.opening(acceptor))
        try await accepting.value
        let startTime = ContinuousClock.now
        try await expectOthersWork(fixture)
        // The store waits at most two seconds for the lock. If the loop waited for the store, the
        // other channels would wait as long.
        #expect(ContinuousClock.now - startTime < .seconds(1))
        // Both sides are proven, but the dialer reports no channel before the peer is stored.
        #expect(await dialer.phase == .established)
        #expect(try KnownPeersFile(path).peers().isEmpty)
        holder.endInput()
        _ = try holder.wait()
        try await dialing.value
        let known = try KnownPeersFile(path).key(named: "desk")
        #expect(known == fixture.pinned.acceptor.fingerprint)
    }

    @Test("a lock that is never released ends the dial with timedOut, and no peer is stored")
    func neverUnlocked() async throws {
        let fixture = try ChannelFixture()
        let folder = ScratchFolder()
        let path = folder.write("known_peers", "")
        let holder = unsafe open(path, O_RDONLY)
        defer { close(holder) }
        try #require(flock(holder, LOCK_EX) == 0)
        let (first, second) = await fixture.links()
        let dialer = try fixture.channel(over: first, .dialer) {
            $0.trust = .firstUse(KnownPeersFile(path), name: "desk")
        }
        let acceptor = try fixture.channel(over: second, .acceptor)
        let dialing = fixture.opening(dialer)
        try await fixture.opening(acceptor).value
        #expect(await failure(of: dialing) == .timedOut)
        #expect(await dialer.isOver)
        #expect(try KnownPeersFile(path).peers().isEmpty)
    }

    @Test(
        "a store that never answers is abandoned after the time limit for trust decisions",
        arguments: ["key", "bind"])
    func never(call: String) async throws {
        let fixture = try ChannelFixture()
        let store = SlowStore(slow: call)
        // With its default timeouts the acceptor would close the link first, while the dialer looks
        // up the key.
        let opening = try await begin(fixture, store, until: call) {
            $0.timeouts.handshake = .seconds(120)
            $0.timeouts.ready = .seconds(120)
        }
        await fixture.clock.advance(by: .seconds(61))
        #expect(await failure(of: opening.dialing) == .timedOut)
        #expect(await opening.dialer.isOver)
        // The name is bound only after both sides are ready.
        #expect(await failure(of: opening.accepting) == (call == "key" ? .truncated : nil))
        store.release()
    }

    @Test("if the peer gives up while the store looks up its key, the channel ends with truncated")
    func peerGivesUp() async throws {
        let fixture = try ChannelFixture()
        let store = SlowStore(slow: "key")
        let opening = try await begin(fixture, store, until: "key")
        // The acceptor waits 10 seconds for the dialer's next handshake message.
        await fixture.clock.advance(by: .seconds(11))
        #expect(await failure(of: opening.accepting) == .timedOut)
        #expect(await failure(of: opening.dialing) == .truncated)
        store.release()
    }

    @Test("a task that is cancelled does not wait for the store", arguments: ["key", "bind"])
    func cancelled(call: String) async throws {
        let fixture = try ChannelFixture()
        let store = SlowStore(slow: call)
        let opening = try await begin(fixture, store, until: call)
        opening.dialing.cancel()
        #expect(await failure(of: opening.dialing) == .cancelled)
        #expect(await opening.dialer.isOver)
        _ = await failure(of: opening.accepting)
        store.release()
    }

    @Test("messages that arrive while the peer is being stored can be read from the channel")
    func early() async throws {
        let fixture = try ChannelFixture()
        let store = SlowStore(slow: "bind")
        let (first, second) = await fixture.links()
        let dialer = try fixture.channel(over: first, .dialer) {
            $0.trust = .firstUse(store, name: "desk")
        }
        let acceptor = try fixture.channel(over: second, .acceptor)
        let (dialing, accepting) = (fixture.opening(dialer), fixture.opening(acceptor))
        try await accepting.value
        try await acceptor.send([1])
        // The message arrives before the link is closed.
        await fixture.clock.settle()
        await acceptor.abort()
        while await !dialer.isOver { await fixture.clock.settle() }
        store.release()
        try await dialing.value
        #expect(try await dialer.receive() == [1])
    }

    @Test("store calls take none of the places for people's decisions, and have their own limit")
    func places() async throws {
        var limits = SecureListener.Limits()
        limits.awaitingTrustDecision = 0
        limits.handshakes = 2
        let store = SlowStore(slow: "contains")
        let listening = try await ListenerFixture(limits: limits) { $0.trust = .enrolled(store) }
        let clock = listening.fixture.clock
        store.names.withLock { $0["pinned"] = listening.fixture.pinned.dialer.fingerprint }
        var tasks: [Task<SecureChannel, any Error>] = []
        for count in 1...2 {
            tasks.append(try await listening.pinnedDial())
            while store.begun.withLock(\.count) < count { await clock.settle() }
        }
        // The dialers close their links, but the store calls continue.
        for task in tasks {
            task.cancel()
            _ = await failure(of: task)
        }
        while await listening.listener.load.handshakes > 0 { await clock.settle() }
        // Two store calls are the limit, so the listener refuses the third dialer without a call.
        let third = try await listening.pinnedDial()
        while !listening.failures.all.contains(.limitExceeded), store.begun.withLock(\.count) == 2 {
            await clock.advance(by: .milliseconds(100))
        }
        #expect(store.begun.withLock(\.count) == 2)
        store.release(100)
        #expect(await failure(of: third) != nil)
        // Both store calls end, and their places become free.
        while true {
            let fourth = try await listening.pinnedDial()
            if await failure(of: fourth) == nil { break }
            await clock.advance(by: .seconds(3))
        }
        let accepted = try await listening.listener.accept()
        await accepted.abort()
        await listening.finish()
    }

    @Test("a listener whose store cannot write reports no peer")
    func cannotRemember() async throws {
        final class FullStore: TrustStore {
            func key(named name: String) throws(ChannelError) -> Fingerprint? { nil }
            func contains(_ key: Fingerprint) throws(ChannelError) -> Bool { false }
            func bind(_ name: String, to key: Fingerprint) throws(ChannelError) {
                throw ChannelError(.cannotCreate, "the disk is full")
            }
        }
        let window = TrustPolicy.PairingWindow(for: .seconds(1_000))
        let listening = try await ListenerFixture {
            $0.trust = .enrolled(FullStore(), window: window)
        }
        let dialing = try await listening.pinnedDial()
        while listening.failures.all.isEmpty { await listening.fixture.clock.settle() }
        #expect(listening.failures.all == [.cannotCreate])
        #expect(await listening.listener.load.ready == 0)
        if let channel = try? await dialing.value { await channel.abort() }
        await listening.finish()
    }
}
