import BLESecChannelCore
import BLESecLinks
import BLESecLocking
import BLESecTesting
import TestSupport
import Testing

@testable import BLESec

/// A listener on a Unix socket and what dials it, for connections that lose their links.
private struct Street {
    let friends: Friends
    let endpoint: Endpoint
    private let folder = ScratchFolder()

    init() throws {
        friends = try Friends()
        endpoint = try Endpoint("unix:\(folder.file("socket"))")
    }

    static var rules: ConnectionRules {
        var rules = ConnectionRules()
        rules.backoff = Backoff(first: .milliseconds(20), most: .milliseconds(100))
        return rules
    }

    func listen() async throws -> SecureListener {
        try await SecureListener.listen(
            on: endpoint, configuration: friends.configuration(.acceptor))
    }

    func dialing(_ rules: ConnectionRules = rules) async throws -> PeerConnection {
        await PeerConnection.start(
            .dialing(endpoint, configuration: try friends.configuration(.dialer)),
            to: PeerKey(fingerprint: friends.acceptor.fingerprint), rules: rules)
    }

    func accepting(
        from listener: SecureListener, _ rules: ConnectionRules = rules
    ) async -> PeerConnection {
        await PeerConnection.start(.accepting(from: listener), rules: rules)
    }
}

extension PeerConnection {
    /// Loses the link without a word, as radio does.
    fileprivate func cut() async {
        let channel = current?.channel
        await channel?.abort()
    }

    /// Waits for a state.
    fileprivate func wait(for state: ConnectionState) async {
        for await status in states() where status.state == state { return }
    }
}

@Suite("connections that come back", .timeLimit(.minutes(2)))
struct PeerConnectionTests {
    private static func message(_ number: Int) -> [UInt8] { Array("\(number)".utf8) }
    private static func number(_ message: [UInt8]) -> Int? {
        Int(String(decoding: message, as: UTF8.self))
    }

    @Test("of 1,000 messages each way over ten cuts what is delivered came, in order, none twice")
    func cuts() async throws {
        let street = try Street()
        let listener = try await street.listen()
        let sides = [try await street.dialing(), await street.accepting(from: listener)]
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
                            guard let sent = try? await connection.post(Self.message(number))
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
            let came = received.withLock { $0[1 - side] }
            #expect(zip(came, came.dropFirst()).allSatisfy { $0 < $1 }, "in order, none twice")
            let delivered = fates.withLock { $0[side] }.filter { $0.value == .delivered }.keys
            #expect(Set(came).isSuperset(of: delivered), "what was delivered has come")
            #expect(delivered.count > 500)
        }
    }

    @Test("a dialer waits for a listener that is not there yet, and for one that comes back")
    func comesBack() async throws {
        let street = try Street()
        let dialer = try await street.dialing()
        await dialer.wait(for: .backingOff)
        #expect(await dialer.status.failures > 0)
        for text in ["one", "two"] {
            let listener = try await street.listen()
            let acceptor = await street.accepting(from: listener)
            async let fate = dialer.send(Array(text.utf8))
            #expect(try await acceptor.receive() == Array(text.utf8))
            try await #expect(fate == .delivered)
            #expect(await dialer.status.peer?.fingerprint == street.friends.acceptor.fingerprint)
            // Its connections are ended with it. What is sent before the dialer knows that is lost.
            await listener.close()
            await dialer.wait(for: .backingOff)
        }
        try await dialer.close()
        #expect(try await dialer.receive() == nil)
    }

    @Test("without a link send fails or waits, as its caller wishes")
    func apart() async throws {
        let street = try Street()
        let dialer = try await street.dialing()
        await #expect(throws: ChannelError(.noSuchPeer, "")) {
            _ = try await dialer.send([1], whenApart: .fail)
        }
        let waiting = Task { try await dialer.send([2]) }
        let cancelled = Task { try await dialer.send([3]) }
        cancelled.cancel()
        #expect(await failure(of: cancelled) == .cancelled)
        let listener = try await street.listen()
        let acceptor = await street.accepting(from: listener)
        #expect(try await acceptor.receive() == [2])
        #expect(try await waiting.value == .delivered)
        async let fate = dialer.send([4], whenApart: .fail)
        #expect(try await acceptor.receive() == [4])
        try await #expect(fate == .delivered)
        try await dialer.close()
        await #expect(throws: ChannelError(.closed, "")) { _ = try await dialer.send([5]) }
        await listener.close()
    }

    @Test("a link that is lost with a message under way leaves its fate unknown, and it stays away")
    func unknown() async throws {
        let scene = try Scene()
        let (first, second) = await scene.links()
        let (dialer, acceptor) = (
            try scene.channel(over: first, .dialer), try scene.channel(over: second, .acceptor)
        )
        for opening in [scene.opening(dialer), scene.opening(acceptor)] { try await opening.value }
        let connection = await PeerConnection.start(.offered, loop: scene.loop)
        #expect(await connection.offer(dialer))
        await scene.loop.run { first.hold() }
        let sent = Task(executorPreference: scene.loop) { try await connection.send([1]) }
        await scene.clock.settle()
        await scene.loop.run { first.cut() }
        #expect(try await sent.value == .unknown)
        await scene.clock.settle()
        #expect(await connection.status.state == .backingOff, "it has carried nothing")
        let next = try await scene.channels()
        #expect(await connection.offer(next.dialer))
        try await connection.send(next.acceptor, [2])
        await connection.shut(nil)
        await scene.finish()
    }

    @Test("a newer channel takes the place of an older one, whose messages are read first")
    func replaced() async throws {
        let scene = try Scene()
        let older = try await scene.channels()
        let connection = await PeerConnection.start(.offered, loop: scene.loop)
        #expect(await connection.offer(older.acceptor))
        for number: UInt8 in 0..<3 { try await older.dialer.send([number]) }
        await scene.clock.advance(by: .seconds(30))
        let newer = try await scene.channels()
        #expect(await connection.offer(newer.acceptor))
        #expect(await older.acceptor.isOver)
        let sent = Task(executorPreference: scene.loop) { try await newer.dialer.deliver([3]) }
        for number: UInt8 in 0..<4 { #expect(try await connection.receive() == [number]) }
        await scene.clock.advance(by: .milliseconds(60))
        #expect(try await sent.value == .delivered)
        #expect(await connection.status.state == .connected)
        await connection.shut(nil)
        await older.dialer.abort()
        await newer.dialer.abort()
        await scene.finish()
    }

    @Test("of two channels whose handshakes overlapped both sides keep the same")
    func duplicates() async throws {
        let scene = try Scene()
        let pairs = [try await scene.channels(), try await scene.channels()]
        let sides = [
            await PeerConnection.start(.offered, loop: scene.loop),
            await PeerConnection.start(.offered, loop: scene.loop),
        ]
        // Each side learns of them in another order.
        for pair in pairs { await sides[0].offer(pair.dialer) }
        for pair in pairs.reversed() { await sides[1].offer(pair.acceptor) }
        await scene.clock.settle()
        let kept = await sides[0].current?.channel
        let other = await sides[1].current?.channel
        let (hash, otherHash) = (await kept?.handshakeHash, await other?.handshakeHash)
        #expect(hash != nil && hash == otherHash)
        for side in sides { await side.shut(nil) }
        await scene.finish()
    }

    @Test("the first peer that comes is the peer, and others are sent away")
    func stranger() async throws {
        let scene = try Scene()
        let stranger = try Scene()
        let connection = await PeerConnection.start(.offered, loop: scene.loop)
        let first = try await scene.channels()
        #expect(await connection.offer(first.acceptor))
        let other = try await stranger.channels()
        #expect(!(await connection.offer(other.acceptor)))
        #expect(await other.acceptor.isOver)
        #expect(await connection.status.peer?.fingerprint == scene.friends.dialer.fingerprint)
        #expect(await connection.status.state == .connected)
        await connection.shut(nil)
        await stranger.clock.settle()
        await stranger.finish()
        await scene.finish()
    }

    @Test("who does not read gets no new link once eight of them have left messages")
    func unreadIsBounded() async throws {
        let scene = try Scene()
        let connection = await PeerConnection.start(.offered, loop: scene.loop)
        for number in 0...PeerConnection.mostUnread {
            let pair = try await scene.channels()
            let isTaken = await connection.offer(pair.acceptor)
            #expect(isTaken == (number < PeerConnection.mostUnread))
            if isTaken {
                try await pair.dialer.send([UInt8(number)])
                await scene.clock.advance(by: .milliseconds(60))
            }
            await pair.dialer.abort()
            await scene.clock.settle()
        }
        for number in 0..<PeerConnection.mostUnread {
            #expect(try await connection.receive() == [UInt8(number)])
        }
        let pair = try await scene.channels()
        #expect(await connection.offer(pair.acceptor))
        await connection.shut(nil)
        await scene.clock.settle()
        await scene.finish()
    }

    @Test("a peer that is silent is noticed within the idle deadline, and dialed again")
    func silent() async throws {
        let scene = try Scene()
        let links = Locked<[FaultyLink]>([])
        let configuration = try scene.friends.configuration(.dialer)
        let acceptors = await PeerConnection.start(.offered, loop: scene.loop)
        let dialer = await PeerConnection.start(
            .dialing { _ throws(ChannelError) in
                let (first, second) = await scene.links()
                links.withLock { $0.append(first) }
                let acceptor: SecureChannel
                do {
                    acceptor = try scene.channel(over: second, .acceptor)
                } catch {
                    throw ChannelError(.internal, "\(error)")
                }
                let opening = scene.opening(acceptor)
                let channel = try await SecureChannel.open(
                    over: first, role: .dialer, configuration: configuration)
                Task(executorPreference: scene.loop) {
                    try? await opening.value
                    await acceptors.offer(acceptor)
                }
                return channel
            }, loop: scene.loop)
        await scene.clock.settle()
        #expect(await dialer.status.state == .connected)
        let silenced = links.withLock { $0[0] }
        await scene.loop.run { silenced.hold() }
        await scene.clock.advance(by: .seconds(59))
        #expect(links.withLock { $0.count } == 1)
        // The other side hears nothing at all, and notices first or at the same time.
        await scene.clock.advance(by: .seconds(2))
        #expect(links.withLock { $0.count } == 2)
        #expect(await dialer.status.state == .connected)
        for side in [dialer, acceptors] { await side.shut(nil) }
        await scene.clock.settle()
        await scene.finish()
    }

    @Test("where the peer's end is the end, everything is read and sent before both are closed")
    func peerEnds() async throws {
        let street = try Street()
        var rules = Street.rules
        rules.endsWithPeer = true
        let listener = try await street.listen()
        let acceptor = await street.accepting(from: listener, rules)
        let dialer = try await street.dialing(rules)
        async let first = dialer.send([1])
        #expect(try await acceptor.receive() == [1])
        try await #expect(first == .delivered)
        await dialer.finish()
        #expect(try await acceptor.receive() == nil)
        async let second = acceptor.send([2])
        #expect(try await dialer.receive() == [2])
        try await #expect(second == .delivered, "its own direction is open")
        // Over the next link the dialer says so again.
        await acceptor.cut()
        async let third = acceptor.send([3])
        #expect(try await dialer.receive() == [3])
        try await #expect(third == .delivered)
        await acceptor.finish()
        #expect(try await dialer.receive() == nil)
        await dialer.wait(for: .closed)
        await acceptor.wait(for: .closed)
        await listener.close()
    }

    @Test("a peer that leaves is looked for again, and loses nothing by leaving")
    func leaves() async throws {
        let street = try Street()
        let listener = try await street.listen()
        let acceptor = await street.accepting(from: listener)
        for text in ["one", "two"] {
            let dialer = try await street.dialing()
            let sent = Task { try await dialer.post(Array(text.utf8)) }
            let outgoing = try await sent.value
            async let closed: Void = dialer.close()
            #expect(try await acceptor.receive() == Array(text.utf8))
            try await closed
            #expect(await outgoing.delivery() == .delivered)
            await acceptor.wait(for: .searching)
        }
        try await acceptor.close()
        await listener.close()
    }

    @Test("a configuration that contradicts itself ends the connection, with the reason")
    func misconfigured() async throws {
        let street = try Street()
        var configuration = try street.friends.configuration(.dialer)
        configuration.protocols = []
        let dialer = await PeerConnection.start(
            .dialing(street.endpoint, configuration: configuration))
        await #expect(throws: ChannelError(.configuration, "")) { _ = try await dialer.receive() }
        await #expect(throws: ChannelError(.configuration, "")) { _ = try await dialer.send([1]) }
    }
}

extension PeerConnection {
    /// Sends a message from the other end of a link, and expects that it is the next one here.
    fileprivate func send(_ other: SecureChannel, _ message: [UInt8]) async throws {
        try await other.send(message)
        #expect(try await receive() == message)
    }
}
