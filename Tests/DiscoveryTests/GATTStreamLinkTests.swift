import BLESec
import BLESecL2CAP
import BLESecLinks
import BLESecTesting
import Testing

@testable import BLESecDiscovery

/// Simulates the radio between two ends of a stream: it delivers the fragments under way in any
/// order.
private final class Air: DeferredWork, @unchecked Sendable {
    // Sendable because its state is accessed on its loop's thread only.
    private let loop: EventLoop
    private var random = SeededGenerator(seed: 11)
    private var underWay: [(fragment: [UInt8], toDialer: Bool)] = []
    private weak var dialer: GATTStreamLink?
    private weak var listener: GATTStreamLink?
    /// How many of the next data fragments are lost.
    var losses = 0
    var fragments = 0
    var closed = 0

    init(_ loop: EventLoop) { self.loop = loop }

    /// Two open ends.
    static func pair(_ loop: EventLoop, size: Int) async throws -> (
        air: Air, dialer: GATTStreamLink, listener: GATTStreamLink
    ) {
        let air = Air(loop)
        var opening = FragmentStream(dialing: 7, sending: size, taking: size)
        let first = StreamFragment(opening.opening())
        let answer = try #require(first.flatMap { FragmentStream(answering: $0) })
        let address = DeviceAddress(try #require(BluetoothAddress("AA:BB:CC:DD:EE:FF")), .random)
        let dialer = GATTStreamLink(
            opening, to: address, loop: loop, over: air.carrier(toDialer: false))
        let listener = GATTStreamLink(
            answer, to: address, loop: loop, over: air.carrier(toDialer: true))
        (air.dialer, air.listener) = (dialer, listener)
        listener.open()
        await loop.settle()
        #expect(dialer.isOpen && listener.isOpen)
        return (air, dialer, listener)
    }

    private func carrier(toDialer: Bool) -> GATTStreamLink.Carrier {
        GATTStreamLink.Carrier(
            carry: { fragment, done in
                if self.underWay.isEmpty { self.loop.runSoon(self) }
                self.fragments += 1
                self.underWay.append((fragment, toDialer))
                done(nil)
            }, close: { self.closed += 1 })
    }

    func runDeferred() {
        let batch = underWay.shuffled(using: &random)
        underWay = []
        for (bytes, toDialer) in batch {
            guard let fragment = StreamFragment(bytes) else { continue }
            if losses > 0, fragment.kind == .data {
                losses -= 1
                continue
            }
            (toDialer ? dialer : listener)?.take(fragment)
        }
    }
}

/// Records what a link reports.
private final class Recorder: LinkHandler {
    var writable = 0
    var hangUps = 0
    var whenWritable: () -> Void = {}
    func linkIsReadable() {}
    func linkIsWritable() {
        writable += 1
        whenWritable()
    }
    func linkDidHangUp() { hangUps += 1 }
}

extension Link {
    fileprivate func send(_ bytes: [UInt8]) throws(LinkError) -> Int { try send(bytes.span) }

    fileprivate func receive(_ capacity: Int = 65_536) throws(LinkError) -> (
        bytes: [UInt8], outcome: LinkReceive
    ) {
        var outcome = LinkReceive.wouldBlock
        let bytes = try [UInt8](capacity: capacity) { buffer throws(LinkError) in
            outcome = try receive(into: &buffer)
        }
        return (bytes, outcome)
    }
}

private func withLoop(
    clock: LoopClock = .system, _ body: @escaping @Sendable (EventLoop) async throws -> Void
) async throws {
    let loop = EventLoop(name: "stream", clock: clock)
    let outcome = await Task(executorPreference: loop) { try await body(loop) }.result
    await loop.shutdown()
    try outcome.get()
}

@Suite("The link over GATT")
struct GATTStreamLinkTests {
    @Test(
        "the link carries bytes in order over a reordering radio, in fragments of 20 and 508 bytes",
        arguments: [20, 508])
    func order(size: Int) async throws {
        try await withLoop { loop in
            let (_, dialer, listener) = try await Air.pair(loop, size: size)
            var random = SeededGenerator(seed: 3)
            let content = random.bytes(100_000)
            var (sent, received): (Int, [UInt8]) = (0, [])
            while received.count < content.count {
                let piece = Array(content[sent...].prefix(dialer.maximumSDU))
                if !piece.isEmpty { sent += try dialer.send(piece) }
                await loop.settle()
                let count = Int.random(in: 1...2_000, using: &random)
                received += try listener.receive(count).bytes
            }
            #expect(received == content)
            dialer.close()
            listener.close()
        }
    }

    @Test("the link takes nothing while the peer does not read, and reports when the peer has read")
    func backpressure() async throws {
        try await withLoop { loop in
            let (_, dialer, listener) = try await Air.pair(loop, size: 20)
            let handler = Recorder()
            dialer.setHandler(handler)
            var sent = 0
            while case let count = try dialer.send([UInt8](repeating: 1, count: 100)), count > 0 {
                sent += count
            }
            #expect(sent >= 32 * 7 && sent <= 32 * 13)
            handler.whenWritable = { dialer.wantsWrite = false }
            dialer.wantsWrite = true
            await loop.settle()
            #expect(handler.writable == 0)
            try #expect(listener.receive().bytes.count == sent)
            await loop.settle()
            #expect(handler.writable == 1)
            try #expect(dialer.send([2]) == 1)
            dialer.close()
            listener.close()
        }
    }

    @Test("the link ends when the peer closes, after all bytes that were sent")
    func end() async throws {
        try await withLoop { loop in
            let (air, dialer, listener) = try await Air.pair(loop, size: 20)
            let handler = Recorder()
            listener.setHandler(handler)
            let content = [UInt8](1...100)
            try #expect(dialer.send(content) == 100)
            #expect(dialer.isDrained && !dialer.halfClose())
            dialer.close()
            dialer.close()
            await loop.settle()
            #expect(handler.hangUps == 1 && air.closed == 1)
            #expect(throws: LinkError.self) { try listener.send([1]) }
            #expect(throws: LinkError.self) { try dialer.send([1]) }
            try #expect(listener.receive(60).bytes == Array(content[..<60]))
            try #expect(listener.receive().bytes == Array(content[60...]))
            try #expect(listener.receive().outcome == .end)
            listener.close()
            await loop.settle()
            #expect(handler.hangUps == 1 && air.closed == 2)
        }
    }

    @Test("the link fails when a fragment is missing for ten seconds, and not before")
    func loss() async throws {
        let clock = ManualClock()
        try await withLoop(clock: clock.loopClock) { loop in
            let (air, dialer, listener) = try await Air.pair(loop, size: 20)
            let handler = Recorder()
            listener.setHandler(handler)
            air.losses = 1
            for _ in 0..<8 { try #expect(dialer.send([1]) == 1) }
            await loop.settle()
            _ = try listener.receive()
            try #expect(listener.receive().outcome == .wouldBlock)
            await clock.advance(by: .milliseconds(9_999))
            try #expect(listener.receive().outcome == .wouldBlock)
            await clock.advance(by: .milliseconds(1))
            let error = #expect(throws: LinkError.self) { try listener.receive() }
            #expect(error?.code == .timedOut)
            #expect(handler.hangUps == 1)
            dialer.close()
            listener.close()
        }
    }

    @Test("the link ends when the device disconnects; received bytes stay readable, sending fails")
    func device() async throws {
        try await withLoop { loop in
            let (air, dialer, listener) = try await Air.pair(loop, size: 20)
            let handler = Recorder()
            listener.setHandler(handler)
            _ = try dialer.send([1, 2, 3])
            await loop.settle()
            listener.lose()
            await loop.settle()
            #expect(handler.hangUps == 1)
            try #expect(listener.receive().bytes == [1, 2, 3])
            try #expect(listener.receive().outcome == .end)
            let error = #expect(throws: LinkError.self) { try listener.send([1]) }
            #expect(error?.code == .reset)
            let count = air.fragments
            listener.close()
            #expect(air.fragments == count, "no end is sent to a device that is gone")
            dialer.close()
        }
    }

    @Test(
        "the link ends two seconds after the subscription ends, unless the stream's end comes first"
    )
    func unsubscribed() async throws {
        let clock = ManualClock()
        try await withLoop(clock: clock.loopClock) { loop in
            let (_, dialer, listener) = try await Air.pair(loop, size: 20)
            let handler = Recorder()
            listener.setHandler(handler)
            listener.expectEnd()
            await clock.advance(by: .milliseconds(1_999))
            _ = try dialer.send([1, 2, 3])
            await loop.settle()
            try #expect(listener.receive().bytes == [1, 2, 3], "it was on its way")
            try #expect(listener.receive().outcome == .wouldBlock)
            #expect(handler.hangUps == 0)
            await clock.advance(by: .milliseconds(1))
            #expect(handler.hangUps == 1)
            try #expect(listener.receive().outcome == .end)
            listener.close()
            dialer.close()
        }
    }

    @Test("a link that is dropped is closed")
    func dropped() async throws {
        try await withLoop { loop in
            var pair: (air: Air, dialer: GATTStreamLink, listener: GATTStreamLink)? =
                try await Air.pair(loop, size: 20)
            let air = try #require(pair?.air)
            pair = nil
            await loop.settle()
            #expect(air.closed == 2)
        }
    }

    @Test("the link carries a channel over reordered fragments of 20 bytes")
    func channel() async throws {
        try await withLoop { loop in
            let (_, dialer, listener) = try await Air.pair(loop, size: 20)
            let (alice, bob) = (try IdentityKey.generate(), try IdentityKey.generate())
            func configuration(_ own: IdentityKey, _ other: IdentityKey) -> ChannelConfiguration {
                .init(identity: own, trust: .pinned([PeerKey(fingerprint: other.fingerprint)]))
            }
            async let accepted = SecureChannel.open(
                over: listener, role: .acceptor, configuration: configuration(bob, alice))
            let channel = try await SecureChannel.open(
                over: dialer, role: .dialer, configuration: configuration(alice, bob))
            let theirs = try await accepted
            var random = SeededGenerator(seed: 9)
            let (question, reply) = (random.bytes(20_000), random.bytes(20_000))
            async let got = theirs.receive()
            #expect(try await channel.deliver(question) == .delivered)
            try await #expect(got == question)
            async let answer = channel.receive()
            #expect(try await theirs.deliver(reply) == .delivered)
            try await #expect(answer == reply)
            async let closed: Void = theirs.close()
            try await channel.close()
            try await closed
        }
    }
}
