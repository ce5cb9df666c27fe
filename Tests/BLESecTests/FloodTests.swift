import BLESecChannelCore
import BLESecLinks
import BLESecLocking
import BLESecTesting
import Testing

@testable import BLESec

/// Known peers dial a listener while unauthenticated peers take every place for a
/// handshake, on a manual clock.
@Suite("A listener in a flood", .timeLimit(.minutes(2)))
struct FloodTests {
    /// How many known peers have finished dialing, how many of them got a channel at their first
    /// dial, and how many at either of their two dials.
    final class Score: Sendable {
        private let counts = Locked<(peers: Int, atFirstDial: Int, served: Int)>((0, 0, 0))
        var all: (peers: Int, atFirstDial: Int, served: Int) { counts.withLock { $0 } }

        /// Counts a peer that got a channel at its first or second dial, or (`nil`) at neither.
        func addPeer(servedAtDial number: Int?) {
            counts.withLock { counts in
                counts.peers += 1
                if number == 1 { counts.atFirstDial += 1 }
                if number != nil { counts.served += 1 }
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
        // On the loop, so that the clock does not move while a peer has something to do.
        Task(executorPreference: fixture.loop) {
            for number in 1...2 {
                let dialing = try await fixture.pinnedDial(from: address, roundTrip: roundTrip)
                if let channel = try? await dialing.value {
                    await channel.abort()
                    return score.addPeer(servedAtDial: number)
                }
                try await fixture.loop.sleep(for: retryAfter)
            }
            score.addPeer(servedAtDial: nil)
        }
    }

    /// Accepts every channel that becomes ready, and keeps it until the peer ends it.
    private static func acceptAll(_ fixture: ListenerFixture) -> Task<Void, Never> {
        Task(executorPreference: fixture.loop) {
            await withDiscardingTaskGroup { group in
                while let channel = try? await fixture.listener.accept() {
                    group.addTask { try? await channel.waitUntilOver() }
                }
            }
        }
    }

    /// Unauthenticated peers that report no address. Each sends `firstBytes`, and opens a new link
    /// as soon as the listener has closed its link. Used on the loop's thread.
    private final class FullSpeedFlood: @unchecked Sendable {
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
            let (link, firstBytes) = (fixture.openLink(), firstBytes)
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
        "in a full-speed flood a handshake within the guaranteed time succeeds at the first dial",
        arguments: [[], ListenerTests.hello, ListenerTests.firstFlight])
    func fullSpeed(firstBytes: [UInt8]) async throws {
        let fixture = try await ListenerFixture(limits: ListenerTests.limits(handshakes: 32))
        let accepting = Self.acceptAll(fixture)
        let score = Score()
        var random = SeededGenerator(seed: 64)
        let flood = await fixture.loop.run { FullSpeedFlood(fixture, firstBytes, links: 128) }
        var dials: [Task<Void, any Error>] = []
        for millisecond in 0..<2_000 {
            // The hello arrives while the link waits for a place. Once the link has a place, the
            // handshake takes one round trip and the time that the loop needs to answer; together
            // they must fit into the guaranteed time of 100 ms.
            if millisecond % 20 == 0, millisecond < 1_000 {
                dials.append(
                    Self.dial(
                        fixture, from: nil,
                        roundTrip: .milliseconds(Int.random(in: 10...95, using: &random)),
                        retryAfter: .milliseconds(100), score))
            }
            await fixture.loop.run { flood.step() }
            await fixture.clock.advance(by: .milliseconds(1))
            #expect(await fixture.listener.load.handshakes <= 32)
        }
        for dial in dials { try await dial.value }
        #expect(score.all == (peers: 50, atFirstDial: 50, served: 50))
        await fixture.loop.run { flood.end() }
        await fixture.listener.close()
        await accepting.value
        await fixture.finish()
    }

    /// A flooder at the rate that LE permits. In this class a link is a device's LE connection, and
    /// a channel is an L2CAP channel on it. Each channel is simulated by a `MemoryLink`.
    ///
    /// An adapter holds links to a limited number of devices, each with its own address. A link
    /// holds 64 channels, the dynamic CIDs from 0x0040 to 0x007F (Core Specification, Volume 3,
    /// Part A, §2.1). A new link is made every 50 ms: for each link, the flooder has to wait for a
    /// connectable advertisement, and these are at least 20 ms apart. A new channel is opened every
    /// millisecond: the air has no room for more, since each channel needs at least two packets of
    /// signalling, and two more for hello and answer. Used on the loop's thread.
    private final class LowEnergyFlood: @unchecked Sendable {
        static let channelsPerLink = 64

        private struct Device {
            let address: String
            var channels: [MemoryLink] = []
        }

        private let fixture: ListenerFixture
        private var devices: [Device]
        /// How many devices have made a link so far.
        private var devicesMade: Int
        /// The index of the device that opens the next channel.
        private var current = 0

        init(_ fixture: ListenerFixture, devices count: Int) {
            self.fixture = fixture
            devices = (0..<count).map { Device(address: "flooder \($0)") }
            devicesMade = count
        }

        /// Simulates one millisecond of the flood; `millisecond` is its number.
        func step(_ millisecond: Int) {
            if millisecond % 50 == 0 {
                // The device whose link is oldest closes it, and a new device makes a link.
                for channel in devices.removeFirst().channels { channel.close() }
                devices.append(Device(address: "flooder \(devicesMade)"))
                devicesMade += 1
            }
            current = (current + 1) % devices.count
            devices[current].channels.removeAll { channel in
                guard FloodTests.hasEnded(channel) else { return false }
                channel.close()
                return true
            }
            // A device that has 64 channels closes its oldest one. The oldest channels have the
            // listener's places, so the closed channel's place becomes free for a later channel.
            if devices[current].channels.count == Self.channelsPerLink {
                devices[current].channels.removeFirst().close()
            }
            let channel = fixture.openLink(from: devices[current].address)
            let firstBytes = ListenerTests.firstFlight
            if millisecond % 2 == 0 { _ = try? channel.send(firstBytes.span) }
            devices[current].channels.append(channel)
        }

        func end() { for device in devices { for channel in device.channels { channel.close() } } }
    }

    @Test(
        "in LE's fastest flood, 99 of 100 known peers with long round trips succeed within two dials",
        arguments: [32, 64])
    func lowEnergy(devices: Int) async throws {
        let fixture = try await ListenerFixture()
        let accepting = Self.acceptAll(fixture)
        let score = Score()
        var random = SeededGenerator(seed: 500)
        let flood = await fixture.loop.run { LowEnergyFlood(fixture, devices: devices) }
        var dials: [Task<Void, any Error>] = []
        for millisecond in 0..<8_000 {
            // The known peers begin to dial after one second, when the flood has every place that
            // it can get.
            if millisecond % 50 == 0, (1_000..<6_000).contains(millisecond) {
                dials.append(
                    Self.dial(
                        fixture, from: "pinned \(millisecond)",
                        roundTrip: .milliseconds(Int.random(in: 100...500, using: &random)),
                        retryAfter: .milliseconds(Int.random(in: 100...500, using: &random)),
                        score))
            }
            await fixture.loop.run { flood.step(millisecond) }
            await fixture.clock.advance(by: .milliseconds(1))
            let load = await fixture.listener.load
            // The default limit for handshakes, and the limit for links that were turned away and
            // are not closed yet.
            #expect(load.handshakes <= 256 && load.turnedAway <= 32)
        }
        for dial in dials { try await dial.value }
        #expect(score.all.peers == 100)
        #expect(score.all.served >= 99, "\(score.all)")
        await fixture.loop.run { flood.end() }
        await fixture.listener.close()
        await accepting.value
        await fixture.finish()
    }
}
