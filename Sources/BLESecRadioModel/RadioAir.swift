internal import BLESecLinks
internal import BLESecPrimitives

/// The link layer between two ends. In a connection event, the central's packets and the
/// peripheral's answers alternate (Core Specification, Vol 6, Part B, §4.5).
///
/// Both controllers schedule perfectly: no other activity shortens an event, and a packet is sent
/// only if there is time for it.
final class RadioAir: TimerHandler, @unchecked Sendable {
    // Sendable because its state is used only on the loop's thread.

    /// What happens when the timer fires the next time. `isHeard` says whether the packet arrives with
    /// a correct CRC.
    private enum Phase {
        /// Nothing: neither end has anything to send, and the timer is off.
        case idle
        /// A connection event begins.
        case anchor
        /// The central's packet ends.
        case centralPacketEnd(RadioPacket, isHeard: Bool)
        /// The peripheral's packet ends.
        case peripheralPacketEnd(RadioPacket, isHeard: Bool)
    }

    let loop: EventLoop
    private let parameters: RadioParameters
    /// The time from which connection intervals are counted.
    private let origin: UInt64
    private var lossGenerator: SeededGenerator
    private weak var central: RadioLink?
    private weak var peripheral: RadioLink?
    private var timer: LoopTimer?
    private var phase = Phase.idle
    /// The time by which the current event must have ended: the anchor point of the next event.
    private var eventEnd: UInt64 = 0
    /// Whether the central has more to send, or knows from the peripheral's MD (more data) bit that
    /// the peripheral has more.
    private var hasMore = false
    /// The number of consecutive packets with a wrong CRC that each end received in this event.
    private var wrongInARow = (central: 0, peripheral: 0)

    init(_ parameters: RadioParameters, loop: EventLoop) {
        self.parameters = parameters
        self.loop = loop
        origin = loop.now.nanoseconds
        lossGenerator = SeededGenerator(seed: parameters.seed)
    }

    func connect(_ central: RadioLink, _ peripheral: RadioLink) {
        self.central = central
        self.peripheral = peripheral
        timer = LoopTimer(loop: loop, handler: self)
    }

    /// Tells the link layer that the central or the peripheral may have something to send.
    func wake() {
        switch phase {
        case .idle, .anchor: sleepUntilNeeded()
        case .centralPacketEnd, .peripheralPacketEnd: break
        }
    }

    func timerFired(_ timer: LoopTimer) {
        guard let central, let peripheral else { return }
        let now = loop.now.nanoseconds
        switch phase {
        case .idle: break
        case .anchor:
            eventEnd = now + parameters.interval
            wrongInARow = (0, 0)
            sendCentralPacket(central, peripheral, at: now)
        case .centralPacketEnd(let packet, let isHeard):
            if isHeard { peripheral.hear(packet, central.bits, now: now) }
            sendPeripheralPacket(peripheral, at: now + RadioParameters.spacing)
        case .peripheralPacketEnd(let packet, let isHeard):
            if isHeard { central.hear(packet, peripheral.bits, now: now) }
            let next = now + RadioParameters.spacing
            if hasMore, max(wrongInARow.central, wrongInARow.peripheral) < 2 {
                sendCentralPacket(central, peripheral, at: next)
            } else {
                sleepUntilNeeded()
            }
        }
    }

    /// Sends the central's next packet. Ends the event if there is no time for the packet, or if
    /// neither end has anything to send.
    private func sendCentralPacket(
        _ central: RadioLink, _ peripheral: RadioLink, at start: UInt64
    ) {
        let answerLength = peripheral.unacknowledged?.length ?? 0
        let timeLeft = eventEnd > start ? eventEnd - start : 0
        let length = central.unacknowledged?.length ?? 0
        // Each side's unacknowledged packet, or else an empty packet, must fit.
        guard timeLeft >= parameters.exchangeTime(length, answer: answerLength)
        else { return sleepUntilNeeded() }
        let limit = longestPayload(
            within: timeLeft, reserving: parameters.exchangeTime(0, answer: answerLength))
        // After the first exchange, an empty packet is useful only if the peripheral has data to
        // send in answer.
        let isFirst = start + parameters.interval == eventEnd
        guard
            isFirst || central.canSend(now: start, atMost: limit)
                || peripheral.readyAt ?? .max <= start
        else { return sleepUntilNeeded() }
        let packet = central.transmit(now: start, atMost: limit)
        hasMore = central.frames.isReady(now: start)
        phase = .centralPacketEnd(packet, isHeard: drawArrival(&wrongInARow.peripheral))
        timer?.arm(at: MonotonicTime(nanoseconds: start + parameters.airTime(packet.length)))
    }

    /// Sends the peripheral's packet, which answers the central's.
    private func sendPeripheralPacket(_ peripheral: RadioLink, at start: UInt64) {
        let timeLeft = eventEnd > start ? eventEnd - start : 0
        let overhead = parameters.airTime(0) + RadioParameters.spacing
        let packet = peripheral.transmit(
            now: start, atMost: longestPayload(within: timeLeft, reserving: overhead))
        let isHeard = drawArrival(&wrongInARow.central)
        if isHeard, peripheral.frames.isReady(now: start) { hasMore = true }
        phase = .peripheralPacketEnd(packet, isHeard: isHeard)
        timer?.arm(at: MonotonicTime(nanoseconds: start + parameters.airTime(packet.length)))
    }

    /// The longest payload, in octets, for which there is time. `timeLeft` is the time until the end of
    /// the event. `rest` is the time for the packet without its payload, and for what must follow the
    /// packet. Both are in nanoseconds.
    private func longestPayload(within timeLeft: UInt64, reserving rest: UInt64) -> Int {
        guard timeLeft > rest else { return 0 }
        let mic = parameters.isLinkEncrypted ? 4 : 0
        return max(0, Int((timeLeft - rest) / parameters.phy.octetTime) - mic)
    }

    /// Draws at random whether the next packet arrives with a correct CRC, and returns true if it
    /// does. `wrong` counts consecutive packets with a wrong CRC.
    private func drawArrival(_ wrong: inout Int) -> Bool {
        guard parameters.loss > 0 else { return true }
        let isLost = Double.random(in: 0..<1, using: &lossGenerator) < parameters.loss
        wrong = isLost ? wrong + 1 : 0
        return !isLost
    }

    /// Sets the timer to the first connection event in which there is something to send. Events
    /// without data are skipped, since they change nothing.
    private func sleepUntilNeeded() {
        guard let ready = [central?.readyAt, peripheral?.readyAt].compactMap({ $0 }).min() else {
            phase = .idle
            timer?.disarm()
            return
        }
        phase = .anchor
        let interval = parameters.interval
        // The numbers of the next event, and of the first event in which the data can be sent.
        let nextEvent = (loop.now.nanoseconds - origin) / interval + 1
        let neededEvent = ready > origin ? (ready - origin + interval - 1) / interval : 0
        let event = max(nextEvent, neededEvent)
        timer?.arm(at: MonotonicTime(nanoseconds: origin + event * interval))
    }
}
