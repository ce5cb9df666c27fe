import BLESec
import BLESecL2CAP
import BLESecLinks
import BLESecTesting
import Testing

@testable import BLESecDiscovery

/// Simulates the radio between the two ends of a stream. The fragments that are under way at the
/// same time are delivered in a random order.
private final class SimulatedRadio: DeferredWork, @unchecked Sendable {
    // Sendable because its state is accessed on its loop's thread only.
    private let loop: EventLoop
    private var random = SeededGenerator(seed: 11)
    private var underWay: [(fragment: [UInt8], toDialer: Bool)] = []
    private weak var dialer: GATTStreamLink?
    private weak var listener: GATTStreamLink?
    /// How many data fragments are still to be lost.
    var fragmentsToLose = 0
    var fragmentsSent = 0
    /// How many links have closed their carrier.
    var closedLinks = 0

    init(_ loop: EventLoop) { self.loop = loop }

    /// A dialer and a listener whose stream is open; no fragment is longer than `fragmentSize`
    /// bytes.
    static func pair(_ loop: EventLoop, fragmentSize: Int) async throws -> (
        radio: SimulatedRadio, dialer: GATTStreamLink, listener: GATTStreamLink
    ) {
        let radio = SimulatedRadio(loop)
        var dialing = FragmentStream(
            dialing: 7, sendableSize: fragmentSize, acceptedSize: fragmentSize)
        let opening = StreamFragment(dialing.opening())
        let answering = try #require(opening.flatMap { FragmentStream(answering: $0) })
        let address = DeviceAddress(try #require(BluetoothAddress("AA:BB:CC:DD:EE:FF")), .random)
        let dialer = GATTStreamLink(
            dialing, to: address, loop: loop, over: radio.carrier(toDialer: false))
        let listener = GATTStreamLink(
            answering, to: address, loop: loop, over: radio.carrier(toDialer: true))
        (radio.dialer, radio.listener) = (dialer, listener)
        listener.open()
        await loop.settle()
        #expect(dialer.isOpen && listener.isOpen)
        return (radio, dialer, listener)
    }

    func carrier(toDialer: Bool) -> GATTStreamLink.Carrier {
        GATTStreamLink.Carrier(
            carry: { fragment, done in
                if self.underWay.isEmpty { self.loop.runSoon(self) }
                self.fragmentsSent += 1
                self.underWay.append((fragment, toDialer))
                done(nil)
            }, close: { self.closedLinks += 1 })
    }

    func runDeferred() {
        let batch = underWay.shuffled(using: &random)
        underWay = []
        for (bytes, toDialer) in batch {
            guard let fragment = StreamFragment(bytes) else { continue }
            if fragmentsToLose > 0, fragment.kind == .data {
                fragmentsToLose -= 1
                continue
            }
            (toDialer ? dialer : listener)?.take(fragment)
        }
    }
}

/// Counts what a link reports.
private final class Recorder: LinkHandler {
    var writableReports = 0
    var hangUps = 0
    var whenWritable: () -> Void = {}
    func linkIsReadable() {}
    func linkIsWritable() {
        writableReports += 1
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
    func order(fragmentSize: Int) async throws {
        try await withLoop { loop in
            let (_, dialer, listener) = try await SimulatedRadio.pair(
                loop, fragmentSize: fragmentSize)
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

    @Test(
        "the link takes no more than the peer's window, and is writable once the peer has read"
    )
    func backpressure() async throws {
        try await withLoop { loop in
            let (_, dialer, listener) = try await SimulatedRadio.pair(loop, fragmentSize: 20)
            let handler = Recorder()
            dialer.setHandler(handler)
            var sent = 0
            while case let count = try dialer.send([UInt8](repeating: 1, count: 100)), count > 0 {
                sent += count
            }
            // The peer's window is 32 fragments. A fragment of 20 bytes carries at most 13 bytes of
            // the stream; the last fragment of each send carries fewer.
            #expect(sent >= 32 * 7 && sent <= 32 * 13)
            handler.whenWritable = { dialer.wantsWrite = false }
            dialer.wantsWrite = true
            await loop.settle()
            #expect(handler.writableReports == 0)
            try #expect(listener.receive().bytes.count == sent)
            await loop.settle()
            #expect(handler.writableReports == 1)
            try #expect(dialer.send([2]) == 1)
            dialer.close()
            listener.close()
        }
    }

    @Test("when the peer closes, a hang-up is reported, and the link ends once all bytes are read")
    func end() async throws {
        try await withLoop { loop in
            let (radio, dialer, listener) = try await SimulatedRadio.pair(loop, fragmentSize: 20)
            let handler = Recorder()
            listener.setHandler(handler)
            let content = [UInt8](1...100)
            try #expect(dialer.send(content) == 100)
            #expect(dialer.isDrained && !dialer.halfClose())
            dialer.close()
            dialer.close()
            await loop.settle()
            #expect(handler.hangUps == 1 && radio.closedLinks == 1)
            #expect(throws: LinkError.self) { try listener.send([1]) }
            #expect(throws: LinkError.self) { try dialer.send([1]) }
            try #expect(listener.receive(60).bytes == Array(content[..<60]))
            try #expect(listener.receive().bytes == Array(content[60...]))
            try #expect(listener.receive().outcome == .end)
            listener.close()
            await loop.settle()
            #expect(handler.hangUps == 1 && radio.closedLinks == 2)
        }
    }

    @Test("the link fails when a fragment is missing for ten seconds, and not before")
    func loss() async throws {
        let clock = ManualClock()
        try await withLoop(clock: clock.loopClock) { loop in
            let (radio, dialer, listener) = try await SimulatedRadio.pair(loop, fragmentSize: 20)
            let handler = Recorder()
            listener.setHandler(handler)
            radio.fragmentsToLose = 1
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
    func disconnected() async throws {
        try await withLoop { loop in
            let (radio, dialer, listener) = try await SimulatedRadio.pair(loop, fragmentSize: 20)
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
            let count = radio.fragmentsSent
            listener.close()
            #expect(radio.fragmentsSent == count, "no `end` is sent to a device that is gone")
            dialer.close()
        }
    }

    @Test(
        "the link ends two seconds after the subscription ends, and receives bytes until then"
    )
    func unsubscribed() async throws {
        let clock = ManualClock()
        try await withLoop(clock: clock.loopClock) { loop in
            let (_, dialer, listener) = try await SimulatedRadio.pair(loop, fragmentSize: 20)
            let handler = Recorder()
            listener.setHandler(handler)
            listener.expectEnd()
            await clock.advance(by: .milliseconds(1_999))
            _ = try dialer.send([1, 2, 3])
            await loop.settle()
            try #expect(
                listener.receive().bytes == [1, 2, 3], "bytes may arrive after the unsubscription")
            try #expect(listener.receive().outcome == .wouldBlock)
            #expect(handler.hangUps == 0)
            await clock.advance(by: .milliseconds(1))
            #expect(handler.hangUps == 1)
            try #expect(listener.receive().outcome == .end)
            listener.close()
            dialer.close()
        }
    }

    @Test("a link that is released without a call to close is closed")
    func released() async throws {
        try await withLoop { loop in
            var pair: (radio: SimulatedRadio, dialer: GATTStreamLink, listener: GATTStreamLink)? =
                try await SimulatedRadio.pair(loop, fragmentSize: 20)
            let radio = try #require(pair?.radio)
            pair = nil
            await loop.settle()
            #expect(radio.closedLinks == 2)
        }
    }

    @Test("a link whose stream was not opened sends no `end` when it is closed or released")
    func notOpened() async throws {
        try await withLoop { loop in
            let radio = SimulatedRadio(loop)
            func makeLink() -> GATTStreamLink {
                let stream = FragmentStream(dialing: 7, sendableSize: 20, acceptedSize: 20)
                return GATTStreamLink(
                    stream, to: DeviceAddress(.any, .random), loop: loop,
                    over: radio.carrier(toDialer: false))
            }
            makeLink().close()
            #expect(radio.closedLinks == 1 && radio.fragmentsSent == 0)
            _ = makeLink()
            await loop.settle()
            #expect(radio.closedLinks == 2 && radio.fragmentsSent == 0)
        }
    }

    @Test("the link carries a channel over reordered fragments of 20 bytes")
    func channel() async throws {
        try await withLoop { loop in
            let (_, dialer, listener) = try await SimulatedRadio.pair(loop, fragmentSize: 20)
            let (alice, bob) = (try IdentityKey.generate(), try IdentityKey.generate())
            func configuration(
                _ identity: IdentityKey, pinning peer: IdentityKey
            ) -> ChannelConfiguration {
                .init(identity: identity, trust: .pinned([PeerKey(fingerprint: peer.fingerprint)]))
            }
            async let accepting = SecureChannel.open(
                over: listener, role: .acceptor, configuration: configuration(bob, pinning: alice))
            let dialed = try await SecureChannel.open(
                over: dialer, role: .dialer, configuration: configuration(alice, pinning: bob))
            let accepted = try await accepting
            var random = SeededGenerator(seed: 9)
            let (question, reply) = (random.bytes(20_000), random.bytes(20_000))
            async let receivedQuestion = accepted.receive()
            #expect(try await dialed.deliver(question) == .delivered)
            try await #expect(receivedQuestion == question)
            async let receivedReply = dialed.receive()
            #expect(try await accepted.deliver(reply) == .delivered)
            try await #expect(receivedReply == reply)
            async let closed: Void = accepted.close()
            try await dialed.close()
            try await closed
        }
    }
}
