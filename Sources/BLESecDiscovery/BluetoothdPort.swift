internal import BLESecLinks

/// Where the bus and a timer call bluetoothd's actor, on the loop's thread.
final class BluetoothdPort: BusHandler, TimerHandler, @unchecked Sendable {
    // Sendable because it is used on the loop's thread only.
    weak var bluetoothd: Bluetoothd?

    func busDidSignal(_ message: BusMessage) {
        deliver { $0.take(signal: message) }
    }

    func busWasCalled(_ message: BusMessage) {
        deliver { $0.answer(message) }
    }

    func busDidEnd() { deliver { $0.busEnded() } }

    func timerFired(_ timer: LoopTimer) { deliver { $0.timerFired() } }

    func deliver(_ body: @Sendable (isolated Bluetoothd) -> Void) {
        bluetoothd?.assumeIsolated { body($0) }
    }
}
