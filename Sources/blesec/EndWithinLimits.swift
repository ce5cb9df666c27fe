internal import BLESec

/// Ends a channel or a connection. Queued bytes are still sent, so that the peer learns the reason,
/// but only for a limited time: `close` is called with the longest time to wait without progress,
/// 5 seconds, and `abort` is called if `close` takes longer than 20 seconds.
func endWithinLimits(
    on loop: EventLoop, _ close: (_ limit: Duration) async -> Void,
    orAbort abort: @escaping @Sendable () async -> Void
) async {
    let stop = Task(executorPreference: loop) {
        try await loop.sleep(for: .seconds(20))
        await abort()
    }
    await close(.seconds(5))
    stop.cancel()
}
