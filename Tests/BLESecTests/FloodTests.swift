import BLESecChannelCore
import BLESecLinks
import BLESecLocking
import BLESecTesting
import Testing

@testable import BLESec

/// Known peers dial a listener on which unauthenticated peers take every place, on a manual clock.
@Suite("A listener in a flood")
struct FloodTests {
    /// How many known peers have dialed, were served at the first dial, and were served at one of
    /// their two dials.
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

    /// A known peer dials. If that fails, the peer dials once more `retryAfter` later, as an
    /// application does.
    private static func dial(
        _ fixture: ListenerFixture, from address: String?, roundTrip: Duration,
        retryAfter: Duration,
        _ score: Score
    ) -> Task<Void, any Error> {
        Task {
            for number in 1...2 {
                let dialing = try await fixture.pinnedDial(from: address, roundTrip: roundTrip)
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

    /// Unauthenticated peers without an address. Each sends `firstBytes`, and opens a new link as
    /// soon as the listener has closed its link. Used on the loop's thread.
    private final class FullSpeed: @unchecked Sendable {
        private let fixture: ListenerFixture
        private let firstBytes: [UInt8]
        private var links: [MemoryLink] = []

        init(_ fixture: ListenerFixture, _ firstBytes: [UInt8], links: Int) {
            self.fixture = fixture
            self.firstBytes = firstBytes
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
            let (link, firstBytes) = (fixture.knock(), firstBytes)
            if !firstBytes.isEmpty { _ = try? link.send(firstBytes.span) }
            return link
        }
    }

    /// Reads the available bytes, at most 4,096, and returns whether the link has ended or failed.
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
    func fullSpeed(firstBytes: [UInt8]) async throws {
        let fixture = try await ListenerFixture(limits: ListenerTests.limits(32))
        let host = Self.host(fixture)
        let score = Score()
        var random = SeededGenerator(seed: 64)
        let flood = await fixture.fixture.loop.run { FullSpeed(fixture, firstBytes, links: 128) }
        var dials: [Task<Void, any Error>] = []
        for time in 0..<2_000 {
            // Two round trips, and the time for the answers on the loop, must fit into the 100 ms
            // of the guaranteed time.
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
    /// Part A, §2.1). A new link is made every 50 ms, since each needs a connectable advertisement
    /// of its own, of at least 20 ms, and the time before that advertisement. A new channel is
    /// opened every millisecond: the air has no room for more, since each needs at least two
    /// packets of signalling and two of hello and answer. Used on the loop's thread.
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
                // The device whose link is oldest closes it, and a new device makes a link.
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
            // At the limit the device closes its oldest channel. The oldest channels have the
            // places with the listener, so the closed channel's place goes to a later channel.
            if devices[next].channels.count == Self.channelsOfLink {
                devices[next].channels.removeFirst().close()
            }
            let link = fixture.knock(from: devices[next].address)
            let firstBytes = ListenerTests.firstFlight
            if time % 2 == 0 { _ = try? link.send(firstBytes.span) }
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
            // The known peers start after one second, when the flood has every place that it can
            // get.
            if time % 50 == 0, time >= 1_000, time < 6_000 {
                dials.append(
                    Self.dial(
                        fixture, from: "pinned \(time)",
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
