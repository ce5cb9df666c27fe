internal import BLESec

/// Ends a channel or a connection, and first sends the queued bytes, so that the peer learns the
/// reason for the end.
///
/// `close` is passed a limit of 5 seconds, the longest that it may wait without progress. If
/// `close` takes longer than 20 seconds in all, `abort` is called.
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
