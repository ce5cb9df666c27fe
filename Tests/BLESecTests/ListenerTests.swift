import BLESecChannelCore
import BLESecLinks
import BLESecLocking
import BLESecTesting
import Testing

@testable import BLESec

/// What strangers can do to a listener.
@Suite("A listener among strangers")
struct ListenerTests {
    static let hello = UnauthenticatedTests.hello
    /// A hello and a first message of XX that anyone can make up.
    static let firstFlight = hello + [0, 32] + (1...32).map { UInt8($0) }

    static func limits(
        _ handshakes: Int, perAddress: Int = 4, backlog: Int = 16
    ) -> SecureListener.Limits {
        var limits = SecureListener.Limits()
        limits.handshakes = handshakes
        limits.handshakesPerAddress = perAddress
        limits.backlog = backlog
        return limits
    }

    static let busy = Answer(.busy).encoded

    @Test("more strangers than there is room for do not keep a friend out")
    func crowd() async throws {
        let town = try await Town(limits: Self.limits(8))
        var strangers: [Stranger] = []
        for index in 0..<100 { strangers.append(await town.stranger(from: "stranger \(index)")) }
        let friend = try await town.friend(from: "friend")
        // 93 of them have to go for the others and the friend, eight at a time.
        for _ in 0..<12 {
            #expect(await town.listener.load.handshakes == 8)
            #expect(await town.listener.load.ready == 0)
            await town.scene.clock.advance(by: .milliseconds(100))
        }
        let accepted = try await town.listener.accept()
        let dialed = try await friend.value
        try await dialed.send([1])
        #expect(try await accepted.receive() == [1])
        await town.scene.clock.advance(by: .seconds(2))
        #expect(town.failures.all == Array(repeating: .busy, count: 93))
        await dialed.abort()
        await accepted.abort()
        for stranger in strangers { await stranger.leave() }
        await town.finish()
    }

    @Test("a link has its time, and then the oldest goes for a newer one, however far it has come")
    func oldest() async throws {
        let town = try await Town(limits: Self.limits(4))
        var strangers: [Stranger] = []
        for index in 0..<4 {
            strangers.append(await town.stranger())
            if index % 2 == 0 { await strangers[index].say(Self.firstFlight) }
            await town.scene.clock.advance(by: .milliseconds(10))
        }
        strangers += [await town.stranger(), await town.stranger()]
        await town.scene.clock.advance(by: .milliseconds(59))
        for stranger in strangers { #expect(await !stranger.isTurnedAway) }
        await town.scene.clock.advance(by: .milliseconds(1))
        // It was answered before, so that there is nothing to say.
        #expect(await strangers[0].isTurnedAway)
        #expect(await strangers[1].hears().isEmpty)
        await town.scene.clock.advance(by: .milliseconds(10))
        #expect(await strangers[1].hears() == Self.busy)
        // Nobody else needs a place.
        await town.scene.clock.advance(by: .seconds(1))
        for stranger in strangers[2...] { #expect(await !stranger.isTurnedAway) }
        #expect(await town.listener.load == (4, 1, 0))
        await town.finish()
    }

    @Test("a link that was turned away has two seconds to go, and no more than 32 have")
    func leaving() async throws {
        let town = try await Town()
        var strangers: [Stranger] = []
        for _ in 0..<104 { strangers.append(await town.stranger(from: "one")) }
        #expect(await town.listener.load == (4, 32, 0))
        #expect(town.failures.all == Array(repeating: .busy, count: 68))
        for stranger in strangers[72...] { #expect(await stranger.hears() == Self.busy) }
        // What it says counts for nothing.
        await strangers[72].say(Self.firstFlight)
        // One that goes is gone.
        await strangers[103].leave()
        await town.scene.clock.settle()
        #expect(await town.listener.load == (4, 31, 0))
        await town.scene.clock.advance(by: .seconds(2))
        #expect(await town.listener.load == (4, 0, 0))
        #expect(await strangers[72].hears().isEmpty)
        #expect(await strangers[72].isTurnedAway)
        await town.finish()
    }

    @Test("what came in time counts, even if a process that was stopped has not read it yet")
    func stopped() async throws {
        let scene = try Scene()
        let (first, second) = await scene.links()
        let channels = [
            try scene.channel(over: first, .dialer), try scene.channel(over: second, .acceptor),
        ]
        let acceptor = channels[1]
        let openings = [scene.opening(channels[0])]
        await scene.clock.settle()
        await scene.loop.run { first.hold() }
        let accepting = scene.opening(acceptor)
        await scene.clock.settle()
        // Its last message and its ready come now, and the listener needs the place in this moment.
        let isTurnedAway = await scene.loop.run {
            first.release()
            return acceptor.assumeIsolated { $0.turnAway(ChannelError(.busy, "no room")) }
        }
        #expect(!isTurnedAway)
        for opening in openings + [accepting] { try await opening.value }
        for channel in channels { await channel.abort() }
        await scene.finish()
    }

    @Test("a direct peer that has not proven itself keeps its place no longer than others")
    func unproven() async throws {
        let direct = { (configuration: inout ChannelConfiguration) in
            configuration.mode = .direct
            configuration.protocols = ["Noise_IK_25519_ChaChaPoly_SHA256"]
        }
        let town = try await Town(limits: Self.limits(2), change: direct)
        // The friend's first message, which a stranger has recorded.
        let (near, far) = await town.scene.loop.run { [loop = town.scene.loop] in
            MemoryLink.pair(loop: loop)
        }
        let channel = try town.scene.channel(over: near, .dialer, change: direct)
        let opening = town.scene.opening(channel)
        await town.scene.clock.settle()
        let recording = await Stranger(far).hears()
        #expect(!recording.isEmpty)
        var strangers: [Stranger] = []
        for _ in 0..<3 {
            strangers.append(await town.stranger())
            await strangers.last?.say(recording)
            await town.scene.clock.settle()
        }
        #expect(await !strangers[0].hears().isEmpty)
        await town.scene.clock.advance(by: .milliseconds(99))
        #expect(await !strangers[0].isTurnedAway)
        await town.scene.clock.advance(by: .milliseconds(1))
        #expect(await strangers[0].isTurnedAway)
        #expect(await town.listener.load == (2, 0, 0))
        await channel.abort()
        _ = await failure(of: opening)
        await town.finish()
    }

    @Test("a peer that a policy thinks about keeps its place")
    func judging() async throws {
        let person = JudgingTests.Person()
        let town = try await Town(limits: Self.limits(2)) { $0.trust = person.policy }
        let friend = try await town.friend()
        while person.questions.withLock(\.isEmpty) { await town.scene.clock.settle() }
        for _ in 0..<10 {
            _ = await town.stranger()
            await town.scene.clock.advance(by: .milliseconds(100))
        }
        person.answer(.admit)
        _ = try await friend.value
        await town.finish()
    }

    @Test("closing ends the wait for a place")
    func closesInACrowd() async throws {
        let town = try await Town(limits: Self.limits(2))
        var strangers: [Stranger] = []
        for _ in 0..<4 { strangers.append(await town.stranger()) }
        await town.listener.close()
        await town.scene.clock.settle()
        for stranger in strangers { #expect(await stranger.isTurnedAway) }
        await town.finish()
    }

    @Test("one address has four handshakes at once, however many there is room for")
    func perAddress() async throws {
        let town = try await Town()
        var strangers: [Stranger] = []
        for _ in 0..<10 { strangers.append(await town.stranger(from: "one")) }
        #expect(await town.listener.load == (4, 6, 0))
        for (index, stranger) in strangers.enumerated() {
            #expect(await stranger.hears() == (index >= 4 ? Self.busy : []))
        }
        // Another address is not kept out, and a place that comes free can be used.
        let friend = try await town.friend(from: "another")
        _ = try await friend.value
        await strangers[0].leave()
        await town.scene.clock.settle()
        let again = try await town.friend(from: "one")
        _ = try await again.value
        await town.finish()
    }

    @Test("links without an address are not one address")
    func noAddress() async throws {
        let town = try await Town()
        var strangers: [Stranger] = []
        for _ in 0..<10 { strangers.append(await town.stranger()) }
        #expect(await town.listener.load.handshakes == 10)
        for stranger in strangers { await stranger.leave() }
        await town.finish()
    }

    @Test("who says nothing, half a hello, or drips has gone after five seconds")
    func slow() async throws {
        let town = try await Town()
        let silent = await town.stranger()
        let half = await town.stranger()
        await half.say(Array(Self.hello.prefix(10)))
        let dripping = await town.stranger()
        for index in 0..<10 {
            await dripping.say([Self.hello[index]])
            await town.scene.clock.advance(by: .milliseconds(499))
        }
        #expect(await town.listener.load.handshakes == 3)
        await town.scene.clock.advance(by: .milliseconds(10))
        #expect(await town.listener.load.handshakes == 0)
        for stranger in [silent, half, dripping] { #expect(await stranger.isTurnedAway) }
        #expect(town.failures.all == [.timedOut, .timedOut, .timedOut])
        await town.finish()
    }

    @Test("who begins a handshake and stops has gone after the handshake's deadline")
    func unfinished() async throws {
        let town = try await Town()
        let stranger = await town.stranger()
        await stranger.say(Self.firstFlight)
        await town.scene.clock.advance(by: .seconds(9))
        #expect(await !stranger.isTurnedAway)
        await town.scene.clock.advance(by: .seconds(2))
        #expect(await stranger.isTurnedAway)
        await town.finish()
    }

    @Test("garbage ends a handshake at once")
    func garbage() async throws {
        let town = try await Town()
        var random = SeededGenerator(seed: 21)
        for _ in 0..<50 {
            let stranger = await town.stranger()
            await stranger.say([0xFF] + random.bytes(Int.random(in: 1...200, using: &random)))
            await town.scene.clock.settle()
            #expect(await stranger.isTurnedAway)
        }
        #expect(town.failures.all == Array(repeating: .protocolViolation, count: 50))
        #expect(await town.listener.load.handshakes == 0)
        await town.finish()
    }

    @Test("too much ends a handshake, and little more than the bound was ever taken in")
    func tooMuch() async throws {
        let town = try await Town()
        let stranger = await town.stranger()
        await stranger.say(Self.hello + [0x80, 0x00])
        var said = 0
        while await stranger.say(Array(repeating: 0, count: 8_192)), said < 1 << 20 {
            said += 8_192
            await town.scene.clock.settle()
        }
        #expect(said <= 5 * 8_192)
        #expect(town.failures.all.count == 1)
        await town.finish()
    }

    @Test("channels that nobody accepts hold the next peers up, and none is lost")
    func backlog() async throws {
        let town = try await Town(limits: Self.limits(8, backlog: 2))
        var friends: [Task<SecureChannel, any Error>] = []
        for _ in 0..<5 { friends.append(try await town.friend()) }
        await town.scene.clock.settle()
        #expect(await town.listener.load.ready == 2)
        var channels: [SecureChannel] = []
        for _ in 0..<5 {
            channels.append(try await town.listener.accept())
            await town.scene.clock.settle()
        }
        for friend in friends { channels.append(try await friend.value) }
        for channel in channels { #expect(await !channel.isOver) }
        for channel in channels { await channel.abort() }
        await town.finish()
    }

    @Test("closing tells who waits, and ends what is under way and what nobody has accepted")
    func closes() async throws {
        let town = try await Town()
        let accepting = Task(executorPreference: town.scene.loop) {
            _ = try await town.listener.accept()
            _ = try await town.listener.accept()
        }
        let kept = try await town.friend().value
        let waiting = await town.stranger()
        await town.listener.close()
        #expect(await failure(of: accepting) == .closed)
        await town.scene.clock.settle()
        #expect(await waiting.isTurnedAway)
        await town.listener.close()
        await kept.abort()
        await town.finish()
    }

    @Test("an accept that is cancelled does not take a peer away from the next")
    func cancelled() async throws {
        let town = try await Town()
        let accepting = Task(executorPreference: town.scene.loop) {
            _ = try await town.listener.accept()
        }
        await town.scene.clock.settle()
        accepting.cancel()
        #expect(await failure(of: accepting) == .cancelled)
        let friend = try await town.friend()
        let accepted = try await town.listener.accept()
        #expect(await accepted.peer.fingerprint == town.scene.friends.dialer.fingerprint)
        await accepted.abort()
        _ = try await friend.value
        await town.finish()
    }

    @Test("an accept hears of it when the loop is shut down", arguments: [0, 4])
    func shutdown(strangers count: Int) async throws {
        let scene = try Scene()
        let path = "/tmp/blesec-test-\(UInt64.random(in: 0...UInt64.max)).sock"
        let address = try UnixAddress(path: path)
        let listener = try await SecureListener.listen(
            on: Endpoint(address), configuration: scene.friends.configuration(.acceptor),
            limits: Self.limits(2), loop: scene.loop)
        let accepting = Task(executorPreference: scene.loop) { _ = try await listener.accept() }
        let outside = EventLoop(name: "strangers")
        var strangers: [any Link] = []
        // Some of whom wait for a place.
        for _ in 0..<count {
            strangers.append(try await UnixLink.dial(address, loop: outside))
            await scene.clock.settle()
        }
        await scene.loop.shutdown()
        #expect(await failure(of: accepting) == .closed)
        for stranger in strangers { await outside.run { stranger.close() } }
        await outside.shutdown()
    }

    @Test("a listener that is dropped is gone, with its strangers")
    func dropped() async throws {
        weak var weakly: SecureListener?
        let scene: Scene
        do {
            let town = try await Town()
            weakly = town.listener
            scene = town.scene
            let stranger = await town.stranger()
            await stranger.leave()
        }
        await scene.finish()
        #expect(weakly == nil)
    }
}
