internal import BLESec
internal import BLESecLinks
internal import BLESecLocking
internal import BLESecRadioModel
internal import BLESecTesting

/// One simulated connection, from beginning to end, on a loop whose clock the run advances.
struct RadioRun: Sendable {
    private let clock: ManualClock
    private let loop: EventLoop
    private let parameters: RadioParameters
    private let central: RadioLink
    private let peripheral: RadioLink
    /// The time at which the connection began, in nanoseconds. The anchor points of the connection's
    /// events are this time plus multiples of the interval.
    private let origin: UInt64

    /// The longest wait for one result, in virtual time: an hour.
    private static let longestWait = Duration.seconds(3_600)
    /// How far the clock advances between two checks for a result.
    private static let step = Duration.milliseconds(100)
    /// A pause before a measurement. It is longer than the delay of acknowledgements, so the
    /// measurement counts no acknowledgement of an earlier message.
    private static let pause = Duration.seconds(1)

    init(_ parameters: RadioParameters) async throws {
        let clock = ManualClock()
        let loop = EventLoop(name: "bench-radio", clock: clock.loopClock)
        self.clock = clock
        self.loop = loop
        self.parameters = parameters
        origin = clock.now.nanoseconds
        (central, peripheral) = await loop.run { RadioLink.pair(parameters, loop: loop) }
    }

    func end() async {
        await loop.run { [central, peripheral] in
            central.close()
            peripheral.close()
        }
        await loop.shutdown()
    }

    /// Bytes a second of the bare L2CAP channel, which sends `volume` bytes in SDUs of the largest
    /// size.
    func bareGoodput(volume: Int, keepsQueueShort: Bool = false) async throws -> Double {
        try await onLoop {
            central.keepsQueueShort = keepsQueueShort
            let source = BareSource(central, volume: volume)
            let sink = BareSink(peripheral)
            // The link holds its handlers weakly, so they are kept alive here.
            defer { withExtendedLifetime((source, sink)) {} }
            let start = await waitForAnchor()
            source.start()
            sink.start()
            let end = try await advanceClock { sink.byteCount >= volume ? sink.lastArrival : nil }
            return Double(volume) / Double(end - start) * 1e9
        }
    }

    /// Opens a channel, and measures its first messages, a short message and many long messages.
    func measure(
        _ peers: PeerConfigurations, volume: Int
    ) async throws -> (costs: RadioScenario.MessageCosts, goodput: Double) {
        try await onLoop {
            let dialer = RadioEnd(central, .dialer, peers.dialer)
            let acceptor = RadioEnd(peripheral, .acceptor, peers.acceptor)
            defer {
                dialer.cancel()
                acceptor.cancel()
            }
            let message = [UInt8](repeating: 0x5A, count: RadioScenario.shortMessageSize)
            let openingTime = clock.now.nanoseconds
            dialer.open(andSend: message)
            acceptor.open(andSend: message)
            let acceptorReceived = try await advanceClock { try acceptor.arrival(of: 1) }
            let dialerReceived = try await advanceClock { try dialer.arrival(of: 1) }
            await clock.advance(by: Self.pause)

            let countBefore = central.count
            dialer.send(message, count: 1)
            _ = try await advanceClock { try acceptor.arrival(of: 2) }
            await clock.advance(by: Self.pause)
            let shortMessageTraffic = central.count - countBefore

            let messageSize = RadioScenario.messageSize
            let count = max(1, volume / messageSize)
            let start = await waitForAnchor()
            dialer.send([UInt8](repeating: 0xA5, count: messageSize), count: count)
            let end = try await advanceClock { try acceptor.arrival(of: 2 + count) }
            let costs = RadioScenario.MessageCosts(
                firstMessage: BothSides(
                    dialer: Double(acceptorReceived - openingTime),
                    acceptor: Double(dialerReceived - openingTime)),
                shortMessageTraffic: shortMessageTraffic)
            return (costs, Double(count * messageSize) / Double(end - start) * 1e9)
        }
    }

    /// Runs `body` with both ends of the link, and advances the clock until `body` returns.
    func whileTimePasses<Value: Sendable>(
        _ body: @escaping @Sendable (LinkEnds) async throws -> Value
    ) async throws -> Value {
        try await onLoop {
            let ends = LinkEnds(dialer: central, acceptor: peripheral)
            let hasReturned = Locked(false)
            let task = Task(executorPreference: loop) {
                defer { hasReturned.withLock { $0 = true } }
                return try await body(ends)
            }
            _ = try await advanceClock {
                hasReturned.withLock { $0 } ? clock.now.nanoseconds : nil
            }
            return try await task.value
        }
    }

    /// Advances the clock to the time that is `hostDelay` before the anchor point of a connection
    /// event, and returns the anchor point. So all measurements begin at the same point of the
    /// connection interval.
    private func waitForAnchor() async -> UInt64 {
        let earliest = clock.now.nanoseconds + parameters.hostDelay - origin
        let next = (earliest / parameters.interval + 1) * parameters.interval + origin
        let wait = next - parameters.hostDelay - clock.now.nanoseconds
        await clock.advance(by: .nanoseconds(Int64(wait)))
        return next
    }

    /// Advances the clock until `time` returns a value, and returns the value.
    private func advanceClock(until time: () throws -> UInt64?) async throws -> UInt64 {
        var remainingWait = Self.longestWait
        while remainingWait > .zero {
            if let time = try time() { return time }
            await clock.advance(by: Self.step)
            remainingWait -= Self.step
        }
        throw BenchError.wrongResult("modelled radio")
    }

    private func onLoop<Value: Sendable>(
        _ body: @escaping @Sendable () async throws -> Value
    ) async throws -> Value {
        try await Task(executorPreference: loop, operation: body).value
    }
}

/// Sends `volume` bytes over a link, in SDUs of the largest size, as fast as the link takes them.
private final class BareSource: LinkHandler {
    private let link: RadioLink
    private let sdu: [UInt8]
    private var unsentBytes: Int

    init(_ link: RadioLink, volume: Int) {
        self.link = link
        sdu = [UInt8](repeating: 0x5A, count: link.maximumSDU)
        unsentBytes = volume
    }

    func start() {
        link.setHandler(self)
        linkIsWritable()
    }

    func linkIsWritable() {
        let sdu = sdu
        while unsentBytes > 0, let sent = try? link.send(sdu.span.extracting(first: unsentBytes)),
            sent > 0
        {
            unsentBytes -= sent
        }
        link.wantsWrite = unsentBytes > 0
    }

    func linkIsReadable() {}
    func linkDidHangUp() {}
}

/// Reads a link and counts bytes.
private final class BareSink: LinkHandler {
    private let link: RadioLink
    private(set) var byteCount = 0
    /// The time in nanoseconds at which bytes arrived last.
    private(set) var lastArrival: UInt64 = 0

    init(_ link: RadioLink) { self.link = link }

    func start() {
        link.setHandler(self)
        link.wantsRead = true
    }

    func linkIsReadable() {
        let bytes = [UInt8](capacity: 64 << 10) { buffer in
            while (try? link.receive(into: &buffer)) == .bytes, !buffer.isFull {}
        }
        byteCount += bytes.count
        lastArrival = link.loop.now.nanoseconds
    }

    func linkIsWritable() {}
    func linkDidHangUp() {}
}
