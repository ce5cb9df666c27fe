import BLESecTesting
import ChannelCore
import Links
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

    @Test("more strangers than there is room for do not keep a friend out")
    func crowd() async throws {
        let town = try await Town(limits: Self.limits(8))
        var strangers: [Stranger] = []
        for index in 0..<100 {
            strangers.append(await town.stranger(from: "stranger \(index)"))
            #expect(await town.listener.load.handshakes <= 8)
        }
        let friend = try await town.friend(from: "friend")
        let accepted = try await town.listener.accept()
        let dialed = try await friend.value
        try await dialed.send([1])
        #expect(try await accepted.receive() == [1])
        #expect(town.failures.all == Array(repeating: .busy, count: 93))
        await dialed.abort()
        await accepted.abort()
        for stranger in strangers { await stranger.leave() }
        await town.finish()
    }

    @Test("who has come less far goes first, and of those the oldest")
    func leastProgress() async throws {
        let town = try await Town(limits: Self.limits(4))
        let far = [await town.stranger(), await town.stranger()]
        for stranger in far { await stranger.say(Self.firstFlight) }
        let near = [await town.stranger(), await town.stranger()]
        await town.scene.clock.settle()
        let first = await town.stranger()
        #expect(await near[0].isTurnedAway)
        #expect(await !near[1].isTurnedAway)
        let second = await town.stranger()
        #expect(await near[1].isTurnedAway)
        let third = await town.stranger()
        #expect(await first.isTurnedAway)
        for stranger in far + [second, third] { #expect(await !stranger.isTurnedAway) }
        await town.finish()
    }

    @Test("one address has four handshakes at once, however many there is room for")
    func perAddress() async throws {
        let town = try await Town()
        var strangers: [Stranger] = []
        for _ in 0..<10 { strangers.append(await town.stranger(from: "one")) }
        #expect(await town.listener.load.handshakes == 4)
        for (index, stranger) in strangers.enumerated() {
            #expect(await stranger.isTurnedAway == (index >= 4))
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

    @Test("an accept hears of it when the loop is shut down")
    func shutdown() async throws {
        let scene = try Scene()
        let path = "/tmp/blesec-test-\(UInt64.random(in: 0...UInt64.max)).sock"
        let listener = try await SecureListener.listen(
            on: try Endpoint("unix:\(path)"), configuration: scene.friends.configuration(.acceptor),
            loop: scene.loop)
        let accepting = Task(executorPreference: scene.loop) { _ = try await listener.accept() }
        await scene.clock.settle()
        await scene.loop.shutdown()
        #expect(await failure(of: accepting) == .closed)
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
