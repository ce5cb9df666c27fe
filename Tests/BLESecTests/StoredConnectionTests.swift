import BLESecChannelCore
import BLESecDelivery
import BLESecLinks
import BLESecLocking
import BLESecStore
import Foundation
import TestSupport
import Testing

@testable import BLESec

/// Connections with stores on disk: see `docs/delivery.md`.
@Suite("messages outlive the process", .timeLimit(.minutes(2)))
struct StoredConnectionTests {
    private let folder = ScratchFolder()
    private let fixture: ReconnectFixture

    init() throws {
        var fixture = try ReconnectFixture()
        fixture.carriesDelivery = true
        self.fixture = fixture
    }

    /// The options with the store of `role`, which is opened in `directory` if that is given.
    private func storedOptions(
        _ role: ChannelRole, in directory: String? = nil
    ) throws -> PeerConnection.DeliveryOptions {
        var options = PeerConnection.DeliveryOptions()
        options.acknowledgement = .manual
        let (own, peer) =
            role == .dialer
            ? (fixture.pinned.dialer, fixture.pinned.acceptor)
            : (fixture.pinned.acceptor, fixture.pinned.dialer)
        options.store = try .open(
            in: folder.file(directory ?? "\(role)"), own: own.fingerprint, peer: peer.fingerprint)
        return options
    }

    /// The guarantee `exactlyOnce` with ``storedOptions(_:in:)``.
    private func storedGuarantee(
        _ role: ChannelRole, in directory: String? = nil
    ) throws -> PeerConnection.Guarantee {
        .exactlyOnce(try storedOptions(role, in: directory))
    }

    private func dialing(in directory: String? = nil) async throws -> PeerConnection {
        try await fixture.dialing(ReconnectFixture.rules, storedGuarantee(.dialer, in: directory))
    }

    private func accepting() async throws -> PeerConnection {
        await fixture.accepting(
            from: try await fixture.listen(), ReconnectFixture.rules, try storedGuarantee(.acceptor)
        )
    }

    @Test("a program that starts again continues with its store, and sends and takes nothing twice")
    func restarts() async throws {
        var taken: [[UInt8]] = []
        // Each round acts as a new process on both sides.
        for round: UInt8 in 0..<5 {
            let dialer = try await dialing()
            let expectedNote: [UInt8] = round == 0 ? [] : [round - 1]
            #expect(await dialer.notes.sent == expectedNote)
            for part: UInt8 in 0..<3 {
                _ = try await dialer.send([round, part], noting: [round])
            }
            // The messages are queued before the acceptor listens. In rounds 1 and 2 it does not
            // listen at all, so their messages are sent in round 3.
            if round == 1 || round == 2 {
                try await dialer.leave()
                continue
            }
            let acceptor = try await accepting()
            let last = taken.last ?? []
            #expect(await acceptor.notes.confirmed == last)
            // Before round 4, the last waiting message is not confirmed, and arrives again later.
            let waitingCount = (Int(round) + 1) * 3 - taken.count
            for number in 1...waitingCount {
                let message = try #require(try await acceptor.receive())
                if number == waitingCount, round < 4 {
                    #expect(message == [round, 2])
                    break
                }
                taken.append(message)
                try await acceptor.confirm(through: UInt64(number), noting: message)
            }
            if round == 4 {
                async let closing: Void = dialer.close(within: .seconds(20))
                #expect(try await acceptor.receive() == nil)
                try await acceptor.close(within: .seconds(20))
                try await closing
            } else {
                // The last message is not confirmed. On a busy machine the link may not close in
                // time, which changes nothing in the stores.
                try? await dialer.leave(within: .milliseconds(50))
                try? await acceptor.leave(within: .milliseconds(50))
            }
        }
        let sent: [[UInt8]] = (0..<5).flatMap { round in (0..<3).map { [round, $0] } }
        #expect(taken == sent)
        let finished = try await dialing()
        await #expect(throws: ChannelError(.closed, "")) { _ = try await finished.send([1]) }
        await finished.abort()
    }

    @Test(
        "a message is delivered even if the peer's end comes before this side has stored the peer's confirmation"
    )
    func fateAtTheEnd() async throws {
        let dialer = try await dialing()
        let acceptor = try await accepting()
        async let reported = dialer.deliveries.reduce(into: [UInt64]()) { $0.append($1.number) }
        let fates = try await withThrowingTaskGroup(of: Delivery.self) { group in
            for number: UInt8 in 0..<100 {
                let pending = try await dialer.send([number])
                group.addTask { await pending.delivery() }
            }
            async let closing: Void = dialer.close(within: .seconds(20))
            for number: UInt64 in 1...100 {
                _ = try await acceptor.receive()
                try await acceptor.confirm(through: number)
            }
            #expect(try await acceptor.receive() == nil)
            try await acceptor.close(within: .seconds(20))
            try await closing
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(fates == [Delivery](repeating: .delivered, count: 100))
        #expect(await reported == Array(1...100))
        // The stores are free again.
        for role in [ChannelRole.dialer, .acceptor] { _ = try storedGuarantee(role) }
    }

    @Test("fates that the program has not taken are reported after a restart")
    func fates() async throws {
        for round in 0..<2 {
            let dialer = try await dialing()
            if round == 0 {
                let acceptor = try await accepting()
                let sent = [try await dialer.send([1]), try await dialer.send([2])]
                for number: UInt64 in 1...2 {
                    _ = try await acceptor.receive()
                    try await acceptor.confirm(through: number)
                }
                for pending in sent { #expect(await pending.delivery() == .delivered) }
                try await acceptor.leave()
            }
            var fates = dialer.deliveries.makeAsyncIterator()
            let (number, delivery) = try #require(await fates.next())
            #expect(delivery == .delivered && number == UInt64(round + 1))
            try await dialer.leave()
        }
    }

    @Test(
        "messages dropped from the outbox do not arrive; all fates come in the order of the messages"
    )
    func dropped() async throws {
        func drop(_ numbers: Set<UInt64>) throws {
            let (outboxes, failures) = try Outbox.open(in: folder.file("dialer"))
            try #require(outboxes.count == 1 && failures.isEmpty)
            #expect(outboxes[0].messages.allSatisfy { !$0.mayHaveBeenSent })
            try outboxes[0].drop(numbers)
        }
        var dialer = try await dialing()
        for number: UInt8 in 1...4 { _ = try await dialer.send([number]) }
        try await dialer.leave()
        try drop([1, 3])
        dialer = try await dialing()
        // The first fate does not wait for the peer.
        var fates = dialer.deliveries.makeAsyncIterator()
        #expect(try #require(await fates.next()) == (1, .dropped))
        #expect(await dialer.droppedCount == 2)
        #expect(await dialer.hasFinished == false)
        let fifth = try await dialer.send([5])
        #expect(fifth.number == 5)
        let acceptor = try await accepting()
        for (index, number) in [2, 4, 5].enumerated() {
            #expect(try await acceptor.receive() == [UInt8(number)])
            try await acceptor.confirm(through: UInt64(index + 1))
        }
        for (number, fate) in [(2, Delivery.delivered), (3, .dropped), (4, .delivered)] {
            #expect(try #require(await fates.next()) == (UInt64(number), fate))
        }
        #expect(await fifth.delivery() == .delivered)
        async let closing: Void = dialer.close(within: .seconds(20))
        #expect(try await acceptor.receive() == nil)
        try await acceptor.close(within: .seconds(20))
        try await closing
    }

    @Test(
        "a store that was replaced by an older copy is noticed, also by later programs, and new messages arrive"
    )
    func rolledBack() async throws {
        let files = FileManager.default
        let (store, copy) = (folder.file("dialer"), folder.file("copy"))
        for round: UInt8 in 0..<4 {
            if round == 2 {
                try files.removeItem(atPath: store)
                try files.copyItem(atPath: copy, toPath: store)
            }
            let dialer = try await dialing()
            let sent = try await dialer.send([round])
            let acceptor = try await accepting()
            if round == 2 {
                await dialer.wait(for: .connected)
                #expect(try await acceptor.receive() == [2])
            } else {
                #expect(try await acceptor.receive() == [round])
            }
            try await acceptor.confirm(through: 1)
            #expect(await sent.delivery() == .delivered)
            #expect(await dialer.wasStoreRolledBack == (round >= 2))
            try await dialer.leave()
            try await acceptor.leave()
            if round == 0 { try files.copyItem(atPath: store, toPath: copy) }
        }
    }

    /// A store that counts its commits. Each commit waits while `isGateOpen` is false, and then
    /// fails if `isFull` is true.
    private final class GatedStore: EndpointStore {
        private let endpoint: any EndpointStore
        let state = Locked((begunCommits: 0, isGateOpen: false, isFull: false))

        init(_ endpoint: any EndpointStore) { self.endpoint = endpoint }

        func claim() -> StoredEndpoint? { endpoint.claim() }
        func close() { endpoint.close() }

        func commit(_ changes: [StoreChange]) throws(StoreFailure) {
            state.withLock { $0.begunCommits += 1 }
            // A test that hangs is ended by the suite's time limit.
            while !state.withLock({ $0.isGateOpen }) { usleep(1_000) }
            guard !state.withLock({ $0.isFull }) else { throw StoreFailure("the disk is full") }
            try endpoint.commit(changes)
        }
    }

    /// The options of a dialer with a gated store, and this store.
    private func gatedOptions() throws -> (PeerConnection.DeliveryOptions, GatedStore) {
        var options = try storedOptions(.dialer)
        let opened = try #require(options.store)
        let store = GatedStore(opened.endpoint)
        options.store = PeerConnection.Store(own: opened.own, peer: opened.peer, store)
        return (options, store)
    }

    @Test(
        "a failed commit closes the connection, and a restart continues from the last commit")
    func full() async throws {
        let (options, store) = try gatedOptions()
        store.state.withLock { $0.isGateOpen = true }
        let first = try await fixture.dialing(ReconnectFixture.rules, .exactlyOnce(options))
        _ = try await first.send([1], noting: [1])
        try await first.waitUntilCommitted()
        store.state.withLock { $0.isFull = true }
        let lost = try await first.send([2], noting: [2])
        await first.wait(for: .closed)
        #expect(await first.status.failure?.code == .store)
        #expect(await lost.delivery() == .unknown)
        await #expect(throws: ChannelError(.store, "")) { _ = try await first.send([3]) }
        // After a restart with room on the disk, the note is that of the last commit.
        while (try? storedGuarantee(.dialer)) == nil { try await Task.sleep(for: .milliseconds(5)) }
        let second = try await dialing()
        #expect(await second.notes.sent == [1])
        let sent = try await second.send([2], noting: [2])
        let acceptor = try await accepting()
        for number: UInt64 in 1...2 {
            #expect(try await acceptor.receive() == [UInt8(number)])
            try await acceptor.confirm(through: number)
        }
        #expect(await sent.delivery() == .delivered)
        try await second.leave()
        try await acceptor.leave()
    }

    @Test("the last channel closes only after the store has committed what the peer has confirmed")
    func closesAfterCommit() async throws {
        let (options, store) = try gatedOptions()
        store.state.withLock { $0.isGateOpen = true }
        let dialer = try await fixture.dialing(ReconnectFixture.rules, .exactlyOnce(options))
        let acceptor = try await accepting()
        _ = try await dialer.send([1])
        await dialer.finish()
        await acceptor.finish()
        #expect(try await acceptor.receive() == [1])
        #expect(try await dialer.receive() == nil)
        while await acceptor.lane?.isEndPending == true {
            try await Task.sleep(for: .milliseconds(5))
        }
        try await dialer.waitUntilCommitted()
        store.state.withLock { $0.isGateOpen = false }
        // Now each side is complete, and the acceptor ends the channel.
        try await acceptor.confirm(through: 1)
        let closing = Task { try await acceptor.close() }
        await dialer.wait(for: .closed)
        try await Task.sleep(for: .milliseconds(200))
        #expect(await acceptor.status.state == .connected)
        store.state.withLock { $0.isGateOpen = true }
        try await closing.value
        try await dialer.close()
    }

    @Test("what the program has not confirmed when a connection is closed arrives after a restart")
    func closed() async throws {
        let dialer = try await dialing()
        for part: UInt8 in 0..<3 { _ = try await dialer.send([part]) }
        let first = try await accepting()
        for part: UInt8 in 0..<2 { #expect(try await first.receive() == [part]) }
        try await first.confirm(through: 1)
        while await first.lane?.canTake == false { try await Task.sleep(for: .milliseconds(5)) }
        await first.abort()
        var guarantee: PeerConnection.Guarantee?
        while guarantee == nil {
            guarantee = try? storedGuarantee(.acceptor)
            try await Task.sleep(for: .milliseconds(5))
        }
        // The store of `first` is closed. It can no longer commit that a message is taken or
        // confirmed.
        await #expect(throws: ChannelError.self) { _ = try await first.receive() }
        await #expect(throws: ChannelError(.closed, "")) { try await first.confirm(through: 2) }
        let second = await fixture.accepting(
            from: try await fixture.listen(), ReconnectFixture.rules, try #require(guarantee))
        for part: UInt8 in 1..<3 { #expect(try await second.receive() == [part]) }
        try await second.confirm(through: 2)
        try await dialer.leave()
        try await second.leave()
    }

    @Test("an end that is declared after the connection was closed is not stored")
    func finishAfterClosing() async throws {
        let (options, store) = try gatedOptions()
        let first = try await fixture.dialing(ReconnectFixture.rules, .exactlyOnce(options))
        // The first commit waits, so the store is not closed yet, and could commit more.
        await first.abort()
        await first.finish()
        await #expect(throws: ChannelError(.closed, "")) { try await first.close() }
        store.state.withLock { $0.isGateOpen = true }
        while (try? storedGuarantee(.dialer)) == nil { try await Task.sleep(for: .milliseconds(5)) }
        #expect(await first.hasFinished == false)
        let second = try await dialing()
        #expect(await second.hasFinished == false)
        try await second.leave()
    }

    @Test(
        "if a store fails before its connection begins, the connection is closed, and no dial goes on"
    )
    func failsBeforeBeginning() async throws {
        let (options, store) = try gatedOptions()
        store.state.withLock { ($0.isGateOpen, $0.isFull) = (true, true) }
        let dials = Locked((begun: 0, cancelled: 0))
        let route = PeerRoute.dialing { _ throws(ChannelError) in
            dials.withLock { $0.begun += 1 }
            try? await Task.sleep(for: .seconds(3_600))
            dials.withLock { $0.cancelled += 1 }
            throw ChannelError(.cancelled, "the dial was cancelled")
        }
        let loop = EventLoop(name: "held")
        // The connection's loop is blocked until the store has failed, so the connection begins
        // after that. If the store's thread is very slow, the connection begins before the failure,
        // and its dial is cancelled.
        loop.execute {
            while store.state.withLock({ $0.begunCommits }) == 0 { usleep(1_000) }
            usleep(50_000)
        }
        let connection = await PeerConnection.start(
            route, delivery: .exactlyOnce(options), loop: loop)
        await connection.wait(for: .closed)
        #expect(await connection.status.failure?.code == .store)
        for _ in 0..<200 where dials.withLock({ $0.begun != $0.cancelled }) {
            try await Task.sleep(for: .milliseconds(5))
        }
        #expect(dials.withLock { $0.begun == $0.cancelled })
        await loop.shutdown()
    }

    @Test("1,000 messages that are queued while the store commits are in one commit")
    func groupCommit() async throws {
        let (options, store) = try gatedOptions()
        let dialer = try await fixture.dialing(ReconnectFixture.rules, .exactlyOnce(options))
        var last: PendingDelivery?
        for number in 0..<1_000 { last = try await dialer.send([UInt8(number & 255)]) }
        // At most one commit has begun; it stores this side's first epoch. All messages wait for
        // the second commit.
        #expect(store.state.withLock { $0.begunCommits } <= 1)
        store.state.withLock { $0.isGateOpen = true }
        try await dialer.waitUntilCommitted()
        #expect(store.state.withLock { $0.begunCommits } == 2)
        let acceptor = try await accepting()
        for number in 1...UInt64(1_000) {
            _ = try await acceptor.receive()
            try await acceptor.confirm(through: number)
        }
        #expect(await last?.delivery() == .delivered)
        // Each confirmation of the peer covers up to 32 messages, and each commit stores one or
        // more confirmations.
        let commits = store.state.withLock { $0.begunCommits }
        #expect(commits < 60, "\(commits) commits")
        try await dialer.leave()
        try await acceptor.leave()
    }

    /// A machine with a store, and the messages of its program over all rounds.
    private struct Machine {
        /// The directory of the store.
        let directory: String
        /// The messages that the program has sent: message number 1 first.
        var sent: [[UInt8]] = []
        /// The fates that the program has got, in the order of ``sent``.
        var fates: [Delivery] = []
        /// The messages that the program has taken and confirmed.
        var taken: [[UInt8]] = []
    }

    /// Takes and confirms messages until the connection ends.
    private func takeAll(_ connection: PeerConnection) -> Task<[[UInt8]], Never> {
        Task {
            var taken: [[UInt8]] = []
            while let message = try? await connection.receive() {
                // A message that can no longer be confirmed arrives again later.
                let confirmed: Void? = try? await connection.confirm(
                    through: UInt64(taken.count + 1))
                guard confirmed != nil else { break }
                taken.append(message)
            }
            return taken
        }
    }

    /// What happens in a round after a machine's program has sent its messages.
    private enum Round {
        /// The machine gets no link.
        case offline
        /// The machine and the peer wait for the fates of all messages.
        case online
        /// The peer's program takes the messages, and ends before it confirms them.
        case unconfirmed
    }

    @Test(
        "if two machines use copies of one store in turns, no confirmed message is lost, and none is taken twice"
    )
    func twoCopies() async throws {
        var machines = [Machine(directory: "first"), Machine(directory: "second")]
        var peer = Machine(directory: "acceptor")
        let schedule: [(machine: Int, round: Round)] = [
            (0, .online), (0, .offline),
            // Here the first machine's store is copied to the second machine.
            (1, .online), (0, .online), (1, .offline), (0, .offline), (1, .offline), (0, .online),
            (1, .unconfirmed), (0, .unconfirmed), (1, .online), (1, .online), (0, .offline),
            (0, .online), (1, .online), (0, .online),
        ]
        for (roundNumber, (index, round)) in schedule.enumerated() {
            if roundNumber == 2 {
                try FileManager.default.copyItem(
                    atPath: folder.file("first"), toPath: folder.file("second"))
                (machines[1].sent, machines[1].fates) = (machines[0].sent, machines[0].fates)
                machines[1].taken = machines[0].taken
            }
            let dialer = try await dialing(in: machines[index].directory)
            for part: UInt8 in 0..<3 {
                let message = [UInt8(index), UInt8(roundNumber), part]
                let pending = try await dialer.send(message)
                machines[index].sent.append(message)
                #expect(pending.number == UInt64(machines[index].sent.count))
            }
            guard round != .offline else {
                try await dialer.leave()
                continue
            }
            let acceptor = try await accepting()
            let message = [9, UInt8(roundNumber)]
            _ = try await acceptor.send(message)
            peer.sent.append(message)
            let atDialer = takeAll(dialer)
            let atAcceptor: Task<[[UInt8]], Never>?
            if round == .online {
                atAcceptor = takeAll(acceptor)
                var fates = dialer.deliveries.makeAsyncIterator()
                while machines[index].fates.count < machines[index].sent.count {
                    let (number, fate) = try #require(await fates.next())
                    machines[index].fates.append(fate)
                    #expect(number == UInt64(machines[index].fates.count))
                }
                fates = acceptor.deliveries.makeAsyncIterator()
                while peer.fates.count < peer.sent.count {
                    peer.fates.append(try #require(await fates.next()).delivery)
                }
            } else {
                atAcceptor = nil
                while let message = try await acceptor.receive(),
                    message != machines[index].sent.last
                {}
            }
            // On a busy machine the link may not close in time, which changes nothing in the
            // stores.
            try? await dialer.leave(within: .milliseconds(100))
            try? await acceptor.leave(within: .milliseconds(100))
            machines[index].taken += await atDialer.value
            peer.taken += await atAcceptor?.value ?? []
        }
        #expect(Set(peer.taken).count == peer.taken.count, "taken twice: \(peer.taken)")
        for machine in machines {
            #expect(machine.fates.count == machine.sent.count)
            for (message, fate) in zip(machine.sent, machine.fates) {
                switch fate {
                case .delivered: #expect(peer.taken.contains(message), "\(message) is lost")
                case .unknown: break
                case .received, .dropped: Issue.record("\(message) is \(fate)")
                }
            }
            #expect(Set(machine.taken).count == machine.taken.count)
            #expect(machine.fates.contains(.unknown))
            #expect(machine.fates.count { $0 == .delivered } > 9)
        }
        for (message, fate) in zip(peer.sent, peer.fates) where fate == .delivered {
            #expect(machines.contains { $0.taken.contains(message) }, "\(message) is lost")
        }
    }

    @Test(
        "each peer key has its own store, and a store that was opened for another own key is refused"
    )
    func keys() async throws {
        let other = try IdentityKey.generate().fingerprint
        let own = fixture.pinned.dialer.fingerprint
        for peer in [fixture.pinned.acceptor.fingerprint, other] {
            let store = try PeerConnection.Store.open(
                in: folder.file("dialer"), own: own, peer: peer)
            #expect(store.peer == peer)
        }
        let files = try FileManager.default.contentsOfDirectory(atPath: folder.file("dialer"))
        #expect(files.count { $0.hasSuffix(".sqlite") } == 2)
        var options = PeerConnection.DeliveryOptions()
        options.store = try .open(
            in: folder.file("dialer"), own: other, peer: fixture.pinned.acceptor.fingerprint)
        let listener = try await fixture.listen()
        let dialer = try await fixture.dialing(ReconnectFixture.rules, .exactlyOnce(options))
        await dialer.wait(for: .closed)
        #expect(await dialer.status.failure?.code == .configuration)
        await listener.close()
    }

    @Test(
        "with a store for another own key, a channel to an unexpected peer is refused, and the connection stays open"
    )
    func keysAndOtherPeer() async throws {
        var options = PeerConnection.DeliveryOptions()
        options.store = try .open(
            in: folder.file("dialer"), own: try IdentityKey.generate().fingerprint,
            peer: try IdentityKey.generate().fingerprint)
        let connection = await PeerConnection.start(
            .offered, rules: ReconnectFixture.rules, delivery: .exactlyOnce(options))
        let listener = try await fixture.listen()
        let accepting = Task { try await listener.accept() }
        let channel = try await SecureChannel.dial(
            fixture.endpoint, configuration: fixture.configuration(.dialer))
        #expect(await connection.offer(channel) == false)
        #expect(await connection.status.state != .closed)
        #expect(await connection.status.failure?.code == .untrusted)
        await connection.abort()
        await (try accepting.value).abort()
        await listener.close()
    }

    @Test("a store below a symbolic link is the same store as at the path without the link")
    func symbolicLink() async throws {
        let real = folder.file("real")
        try FileManager.default.createDirectory(
            atPath: real, withIntermediateDirectories: false, attributes: [.posixPermissions: 0o700]
        )
        let link = folder.file("link")
        try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: "real")
        let key = fixture.pinned.dialer.fingerprint
        let store = try PeerConnection.Store.open(in: link + "/stores", own: key, peer: key)
        #expect(throws: ChannelError(.store, "")) {
            _ = try PeerConnection.Store.open(in: real + "/stores", own: key, peer: key)
        }
        let (outboxes, failures) = try Outbox.open(in: link + "/stores")
        #expect(outboxes.isEmpty && failures.count == 1)
        withExtendedLifetime(store) {}
    }

    @Test("making a store removes the files of a process that was killed while it made this store")
    func leftovers() throws {
        let directory = folder.file("stores")
        let key = fixture.pinned.dialer.fingerprint
        func open() throws -> [String] {
            _ = try PeerConnection.Store.open(in: directory, own: key, peer: key)
            return try FileManager.default.contentsOfDirectory(atPath: directory)
        }
        let store = try #require(try open().first)
        try FileManager.default.removeItem(atPath: "\(directory)/\(store)")
        for ending in [".new", ".new-journal", ".new-wal"] {
            try Data([1]).write(to: URL(fileURLWithPath: "\(directory)/\(store).7\(ending)"))
        }
        let others = ["other.7.new", "other.7.new-journal"]
        for name in others {
            try Data([1]).write(to: URL(fileURLWithPath: "\(directory)/\(name)"))
        }
        #expect(Set(try open()) == Set([store] + others))
    }

    @Test("a store in use, and a directory that others may enter, are refused")
    func refused() async throws {
        let first = try storedGuarantee(.dialer)
        #expect(throws: ChannelError(.store, "")) { _ = try storedGuarantee(.dialer) }
        let dialer = try await fixture.dialing(ReconnectFixture.rules, first)
        let second = try await fixture.dialing(ReconnectFixture.rules, first)
        #expect(await second.status.failure?.code == .store)
        await dialer.abort()
        let openDirectory = folder.file("open")
        try FileManager.default.createDirectory(
            atPath: openDirectory, withIntermediateDirectories: false,
            attributes: [.posixPermissions: 0o755]
        )
        let key = fixture.pinned.dialer.fingerprint
        #expect(throws: ChannelError(.badKey, "")) {
            _ = try PeerConnection.Store.open(in: openDirectory, own: key, peer: key)
        }
    }
}
