import BLESecChannelCore
import BLESecLinks
import BLESecLocking
import BLESecTesting
import Testing

@testable import BLESec

/// Known peers dial a listener on which unauthenticated peers take every place, on a manual clock.
@Suite("A listener in a flood")
struct FloodTests {
    /// How the known peers' dials ended.
    final class Score: Sendable {
        private let counts = Locked<(dials: Int, atOnce: Int, served: Int)>((0, 0, 0))
        var all: (dials: Int, atOnce: Int, served: Int) { counts.withLock { $0 } }

        func add(tries: Int?) {
            counts.withLock { counts in
                counts.dials += 1
                if tries == 1 { counts.atOnce += 1 }
                if tries != nil { counts.served += 1 }
            }
        }
    }

    /// A known peer dials, and if that fails dials once more 100 to 500 ms later, as an application
    /// does.
    private static func dial(
        _ fixture: ListenerFixture, from address: String?, roundTrip: Duration,
        retryAfter: Duration,
        _ score: Score
    ) -> Task<Void, any Error> {
        Task {
            for number in 1...2 {
                let dialing = try await fixture.friend(from: address, roundTrip: roundTrip)
                if let channel = try? await dialing.value {
                    await channel.abort()
                    return score.add(tries: number)
                }
                try await fixture.fixture.loop.sleep(for: retryAfter)
            }
            score.add(tries: nil)
        }
    }

    /// Accepts every channel that becomes ready.
    private static func host(_ fixture: ListenerFixture) -> Task<Void, Never> {
        Task(executorPreference: fixture.fixture.loop) {
            while let channel = try? await fixture.listener.accept() { await channel.abort() }
        }
    }

    /// Unauthenticated peers without an address, which reopen each link as soon as it is closed.
    /// Used on the loop's thread.
    private final class FullSpeed: @unchecked Sendable {
        private let fixture: ListenerFixture
        private let words: [UInt8]
        private var links: [MemoryLink] = []

        init(_ fixture: ListenerFixture, _ words: [UInt8], links: Int) {
            self.fixture = fixture
            self.words = words
            for _ in 0..<links { self.links.append(dial()) }
        }

        func step() {
            for index in links.indices where FloodTests.hasEnded(links[index]) {
                links[index].close()
                links[index] = dial()
            }
        }

        func end() { for link in links { link.close() } }

        private func dial() -> MemoryLink {
            let (link, words) = (fixture.knock(), words)
            if !words.isEmpty { _ = try? link.send(words.span) }
            return link
        }
    }

    /// Reads all available bytes, and returns whether the other side has closed.
    private static func hasEnded(_ link: MemoryLink) -> Bool {
        var result: LinkReceive? = .bytes
        _ = [UInt8](capacity: 4_096) { space in
            while result == .bytes, space.freeCapacity > 0 {
                result = try? link.receive(into: &space)
            }
        }
        return result == nil || result == .end
    }

    @Test(
        "a peer that finishes within the guaranteed time is served at its first dial in any flood",
        arguments: [[], ListenerTests.hello, ListenerTests.firstFlight])
    func fullSpeed(words: [UInt8]) async throws {
        let fixture = try await ListenerFixture(limits: ListenerTests.limits(32))
        let host = Self.host(fixture)
        let score = Score()
        var random = SeededGenerator(seed: 64)
        let flood = await fixture.fixture.loop.run { FullSpeed(fixture, words, links: 128) }
        var dials: [Task<Void, any Error>] = []
        for time in 0..<2_000 {
            // Two round trips have to fit, and the time that the answer needs on the loop.
            if time % 20 == 0, time < 1_000 {
                dials.append(
                    Self.dial(
                        fixture, from: nil,
                        roundTrip: .milliseconds(Int.random(in: 10...45, using: &random)),
                        retryAfter: .milliseconds(100), score))
            }
            await fixture.fixture.loop.run { flood.step() }
            await fixture.fixture.clock.advance(by: .milliseconds(1))
            #expect(await fixture.listener.load.handshakes <= 32)
        }
        for dial in dials { try await dial.value }
        #expect(score.all == (50, 50, 50))
        await fixture.fixture.loop.run { flood.end() }
        await fixture.listener.close()
        await host.value
        await fixture.finish()
    }

    /// A flooder at the rate that LE permits.
    ///
    /// An adapter holds links to a limited number of devices, each with its own address. A link
    /// holds 64 channels, the dynamic CIDs from 0x0040 to 0x007F (Core Specification, Volume 3,
    /// Part A, §2.1). 20 new links are made each second, since each link needs a connectable
    /// advertisement of at least 20 ms and the time before it. The air has room for 1,000 new
    /// channels a second, each with at least two packets of signalling and two of hello and answer.
    /// Used on the loop's thread.
    private final class LowEnergy: @unchecked Sendable {
        static let channelsOfLink = 64

        private struct Device {
            let address: String
            var channels: [MemoryLink] = []
        }

        private let fixture: ListenerFixture
        private var devices: [Device]
        private var made: Int
        private var next = 0

        init(_ fixture: ListenerFixture, devices count: Int) {
            self.fixture = fixture
            devices = (0..<count).map { Device(address: "flooder \($0)") }
            made = count
        }

        /// Simulates one millisecond.
        func step(_ time: Int) {
            if time % 50 == 0 {
                // The oldest link ends, and another device takes its place.
                for channel in devices.removeFirst().channels { channel.close() }
                devices.append(Device(address: "flooder \(made)"))
                made += 1
            }
            next = (next + 1) % devices.count
            devices[next].channels.removeAll { channel in
                guard FloodTests.hasEnded(channel) else { return false }
                channel.close()
                return true
            }
            // The channels with a place are the oldest: a new channel gets the place of a channel
            // that ends.
            if devices[next].channels.count == Self.channelsOfLink {
                devices[next].channels.removeFirst().close()
            }
            let link = fixture.knock(from: devices[next].address)
            let words = ListenerTests.firstFlight
            if time % 2 == 0 { _ = try? link.send(words.span) }
            devices[next].channels.append(link)
        }

        func end() { for device in devices { for channel in device.channels { channel.close() } } }
    }

    @Test(
        "99 of 100 distant known peers are served within two dials in a flood at LE's highest rate",
        arguments: [32, 64])
    func lowEnergy(devices: Int) async throws {
        let fixture = try await ListenerFixture()
        let host = Self.host(fixture)
        let score = Score()
        var random = SeededGenerator(seed: 500)
        let flood = await fixture.fixture.loop.run { LowEnergy(fixture, devices: devices) }
        var dials: [Task<Void, any Error>] = []
        for time in 0..<8_000 {
            // Starts once the flood has taken every place that it can get.
            if time % 50 == 0, time >= 1_000, time < 6_000 {
                dials.append(
                    Self.dial(
                        fixture, from: "friend \(time)",
                        roundTrip: .milliseconds(Int.random(in: 100...500, using: &random)),
                        retryAfter: .milliseconds(Int.random(in: 100...500, using: &random)),
                        score))
            }
            await fixture.fixture.loop.run { flood.step(time) }
            await fixture.fixture.clock.advance(by: .milliseconds(1))
            let load = await fixture.listener.load
            #expect(load.handshakes <= 256 && load.leaving <= 32)
        }
        for dial in dials { try await dial.value }
        #expect(score.all.dials == 100)
        #expect(score.all.served >= 99, "\(score.all)")
        await fixture.fixture.loop.run { flood.end() }
        await fixture.listener.close()
        await host.value
        await fixture.finish()
    }
}
