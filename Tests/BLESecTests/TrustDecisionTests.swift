import BLESecChannelCore
import BLESecLinks
import BLESecLocking
import BLESecPrimitives
import BLESecTesting
import Testing

@testable import BLESec

/// Policies that wait for an answer, deny lists that change, and when a store binds a name.
@Suite("Trust decisions")
struct TrustDecisionTests {
    static let roles = [ChannelRole.dialer, .acceptor]

    /// A person whom a policy asks. The test gives the person's answer.
    final class Person: Sendable {
        let verdicts: AsyncStream<TrustPolicy.Verdict>
        private let continuation: AsyncStream<TrustPolicy.Verdict>.Continuation
        let questions = Locked<[ClaimedIdentity]>([])

        init() { (verdicts, continuation) = AsyncStream.makeStream() }

        var policy: TrustPolicy {
            .asking { identity in
                self.questions.withLock { $0.append(identity) }
                for await verdict in self.verdicts { return verdict }
                throw CancellationError()
            }
        }

        func answer(_ verdict: TrustPolicy.Verdict) { continuation.yield(verdict) }
        /// Makes the policy throw.
        func fail() { continuation.finish() }
    }

    /// Two channels. One of them has asked a person, and waits for the answer.
    struct Question {
        let fixture: ChannelFixture
        let person = Person()
        /// Opens ``askingChannel``.
        let askingTask: Task<Void, any Error>
        /// Opens the peer's channel.
        let peerTask: Task<Void, any Error>
        let askingChannel, peerChannel: SecureChannel

        /// The side with `role` asks; `changePeer` adapts the configuration of the other side.
        init(
            _ role: ChannelRole, changePeer: (inout ChannelConfiguration) -> Void = { _ in }
        ) async throws {
            fixture = try ChannelFixture()
            let (first, second) = await fixture.links()
            let person = person
            let dialer = try fixture.channel(over: first, .dialer) {
                if role == .dialer { $0.trust = person.policy } else { changePeer(&$0) }
            }
            let acceptor = try fixture.channel(over: second, .acceptor) {
                if role == .acceptor { $0.trust = person.policy } else { changePeer(&$0) }
            }
            let tasks = [fixture.opening(dialer), fixture.opening(acceptor)]
            (askingTask, peerTask) = role == .dialer ? (tasks[0], tasks[1]) : (tasks[1], tasks[0])
            (askingChannel, peerChannel) =
                role == .dialer ? (dialer, acceptor) : (acceptor, dialer)
            while person.questions.withLock(\.isEmpty) { await fixture.clock.settle() }
        }
    }

    @Test("the channel becomes ready when the person admits the peer", arguments: roles)
    func admits(role: ChannelRole) async throws {
        let question = try await Question(role)
        await question.fixture.clock.advance(by: .seconds(9))
        #expect(await question.askingChannel.phase == .awaitingTrustDecision)
        // The peer still waits: an acceptor for a handshake message, and a dialer for `ready`.
        #expect(
            await question.peerChannel.phase == (role == .dialer ? .handshaking : .proving))
        question.person.answer(.admit)
        try await question.askingTask.value
        try await question.peerTask.value
        let expected =
            role == .dialer
            ? question.fixture.pinned.acceptor.fingerprint
            : question.fixture.pinned.dialer.fingerprint
        #expect(question.person.questions.withLock { $0.map(\.fingerprint) } == [expected])
    }

    @Test(
        "a person's refusal, or an error of the policy, ends the channel on both sides",
        arguments: roles, [true, false])
    func refuses(role: ChannelRole, policyThrows: Bool) async throws {
        let question = try await Question(role)
        if policyThrows {
            question.person.fail()
        } else {
            question.person.answer(.refuse("never seen"))
        }
        #expect(await failure(of: question.askingTask) == .untrusted)
        // An acceptor that refuses sends `reject`. A dialer that refuses closes the link without
        // another byte, so that it never sends its own key.
        #expect(await failure(of: question.peerTask) == (role == .dialer ? .truncated : .refused))
    }

    @Test("the error untrusted contains the peer's claimed identity", arguments: roles)
    func claimedIdentityInError(role: ChannelRole) throws {
        let pinned = try PinnedPeers()
        let unknown = try IdentityKey.generate()
        var configurations = try (pinned.configuration(.dialer), pinned.configuration(.acceptor))
        if role == .dialer {
            configurations.1.identity = unknown
        } else {
            configurations.0.identity = unknown
        }
        let pair = try MachinePair(dialer: configurations.0, acceptor: configurations.1)
        pair.run()
        // An acceptor that refuses waits for the dialer to close the link.
        pair.acceptor.linkEnded(nil, now: pair.now)
        let outcome = role == .dialer ? pair.dialer.outcome : pair.acceptor.outcome
        guard case .failed(let error) = outcome else {
            Issue.record("the peer is not refused")
            return
        }
        #expect(error.code == .untrusted)
        #expect(error.claimed == ClaimedIdentity(.publicKey(unknown.publicKey, curve: .x25519)))
    }

    @Test("without an answer the channel ends within 61 seconds, and a late answer changes nothing")
    func noAnswer() async throws {
        for role in Self.roles {
            // With its default timeouts the peer would close the link first.
            let question = try await Question(role) {
                $0.timeouts.handshake = .seconds(120)
                $0.timeouts.ready = .seconds(120)
            }
            await question.fixture.clock.advance(by: .seconds(59))
            #expect(await question.askingChannel.phase == .awaitingTrustDecision)
            await question.fixture.clock.advance(by: .seconds(2))
            #expect(await question.askingChannel.isOver)
            #expect(await failure(of: question.askingTask) == .timedOut)
            #expect(await failure(of: question.peerTask) == .truncated)
            question.person.answer(.admit)
            await question.fixture.clock.settle()
            #expect(await question.askingChannel.phase == .closed)
        }
    }

    @Test("if the peer closes while a person decides, the channel ends with the error truncated")
    func peerCloses() async throws {
        for role in Self.roles {
            let question = try await Question(role)
            question.peerTask.cancel()
            _ = await failure(of: question.peerTask)
            await question.fixture.clock.settle()
            #expect(await question.askingChannel.isOver)
            #expect(await failure(of: question.askingTask) == .truncated)
        }
    }

    @Test(
        "a link that hangs up together with the peer's last bytes ends the channel at once",
        arguments: [true, false])
    func hangsUpWithLastBytes(asksPerson: Bool) async throws {
        let fixture = try ChannelFixture()
        let person = Person()
        let (first, second) = await fixture.loop.run { [loop = fixture.loop] in
            let (first, second) = MemoryLink.pair(loop: loop, capacity: 65_536)
            return (FaultyLink(first), second)
        }
        let dialer = try fixture.channel(over: first, .dialer)
        let acceptor = try fixture.channel(over: second, .acceptor) {
            if asksPerson { $0.trust = person.policy }
        }
        let dialing = fixture.opening(dialer)
        await fixture.clock.settle()
        await fixture.loop.run { first.hold() }
        let accepting = fixture.opening(acceptor)
        await fixture.clock.settle()
        // The dialer's last handshake message, its `ready` and the link's end arrive in one turn.
        await fixture.loop.run {
            first.release()
            first.close()
        }
        await fixture.clock.settle()
        #expect(await acceptor.isOver)
        #expect(await failure(of: accepting) == .truncated)
        #expect(person.questions.withLock(\.isEmpty))
        dialing.cancel()
        _ = await failure(of: dialing)
        await fixture.finish()
    }

    @Test(
        "a question counts towards its listener's limit until its answer, even if the peer is gone",
        .timeLimit(.minutes(1)))
    func placeOfQuestion() async throws {
        let limit = ConcurrencyLimit(1)
        let person = Person()
        let identity = ClaimedIdentity(
            .publicKey(try IdentityKey.generate().publicKey, curve: .x25519))
        let limits = TrustRequests.Limits(decisions: limit, storeThreads: ConcurrencyLimit(1))
        // Like a dialog that stays open, this evaluation goes on after `cancelDecision()`.
        let evaluate: TrustPolicy.Evaluation = { _ in
            let answer = Task { () -> TrustPolicy.Verdict? in
                for await verdict in person.verdicts { return verdict }
                return nil
            }
            return await answer.value ?? .refuse("nobody answers")
        }
        let requests = TrustRequests(limits)
        let answered = AsyncStream.makeStream(of: Void.self)
        requests.onDecision = { _ in answered.continuation.yield() }
        #expect(requests.ask(.evaluate(evaluate, identity)) == nil)
        requests.cancelDecision()
        let otherRequests = TrustRequests(limits)
        #expect(otherRequests.ask(.evaluate(evaluate, identity))?.code == .limitExceeded)
        person.answer(.admit)
        for await _ in answered.stream { break }
        while limit.take() == nil { await Task.yield() }
    }

    @Test(
        "a deny list that is replaced ends an open channel only if the new list names the peer")
    func denyList() async throws {
        let fixture = try ChannelFixture()
        let list = DenyList()
        let (dialer, acceptor) = try await fixture.channels { role, configuration in
            if role == .acceptor { configuration.trust = configuration.trust.denying(list) }
        }
        list.replace(with: [fixture.pinned.acceptor.fingerprint])
        await fixture.clock.settle()
        #expect(await acceptor.failure == nil)
        try await dialer.send([1])
        #expect(try await acceptor.receive() == [1])
        list.replace(with: [fixture.pinned.dialer.fingerprint])
        while await !acceptor.isOver { await fixture.clock.settle() }
        #expect(await acceptor.failure == .untrusted)
        await fixture.clock.settle()
        #expect(await dialer.failure == .truncated)
        await fixture.finish()
    }

    @Test("a name is bound after the peer is ready, and never if the peer refuses")
    func bindsLate() async throws {
        let fixture = try ChannelFixture()
        let store = MemoryStore()
        let (first, second) = await fixture.links()
        let dialer = try fixture.channel(over: first, .dialer) {
            $0.trust = .firstUse(store, name: "desk")
        }
        let otherKeyPolicy = TrustPolicy.pinned([
            PeerKey(fingerprint: try IdentityKey.generate().fingerprint)
        ])
        let refusingAcceptor = try fixture.channel(over: second, .acceptor) {
            $0.trust = otherKeyPolicy
        }
        let tasks = [fixture.opening(dialer), fixture.opening(refusingAcceptor)]
        #expect(await failure(of: tasks[0]) == .refused)
        #expect(await failure(of: tasks[1]) == .untrusted)
        #expect(store.names.withLock(\.isEmpty))
        let (third, fourth) = await fixture.links()
        let secondDialer = try fixture.channel(over: third, .dialer) {
            $0.trust = .firstUse(store, name: "desk")
        }
        let admittingAcceptor = try fixture.channel(over: fourth, .acceptor)
        for task in [fixture.opening(secondDialer), fixture.opening(admittingAcceptor)] {
            try await task.value
        }
        #expect(store.names.withLock { $0["desk"] } == fixture.pinned.acceptor.fingerprint)
    }

    @Test("a pairing window for one new key enrols one of two peers, and ends the other's channel")
    func pairing() async throws {
        let fixture = try ChannelFixture()
        let store = MemoryStore()
        let window = TrustPolicy.PairingWindow(for: .seconds(1_000))
        let peers = try (0..<2).map { _ in try IdentityKey.generate() }
        var acceptorTasks: [Task<Void, any Error>] = []
        for identity in peers {
            let (first, second) = await fixture.links()
            let dialer = try fixture.channel(over: first, .dialer) { $0.identity = identity }
            let acceptor = try fixture.channel(over: second, .acceptor) {
                $0.trust = .enrolled(store, window: window)
            }
            _ = fixture.opening(dialer)
            acceptorTasks.append(fixture.opening(acceptor))
        }
        let failures = [
            await failure(of: acceptorTasks[0]), await failure(of: acceptorTasks[1]),
        ]
        #expect(failures.count { $0 == nil } == 1 && failures.count { $0 == .untrusted } == 1)
        let enrolled = peers[failures[0] == nil ? 0 : 1]
        #expect(store.names.withLock { Array($0.values) } == [enrolled.fingerprint])
    }

    /// A trust store in memory.
    final class MemoryStore: TrustStore {
        let names = Locked<[String: Fingerprint]>([:])

        func key(named name: String) throws(ChannelError) -> Fingerprint? {
            names.withLock { $0[name] }
        }

        func bind(_ name: String, to key: Fingerprint) throws(ChannelError) {
            let known = names.withLock { names in
                if names[name] == nil { names[name] = key }
                return names[name]
            }
            guard known == key else {
                throw ChannelError(.untrusted, "\(name) is bound to another key")
            }
        }

        func contains(_ key: Fingerprint) throws(ChannelError) -> Bool {
            names.withLock { $0.values.contains(key) }
        }
    }
}
