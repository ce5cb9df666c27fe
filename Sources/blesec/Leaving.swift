internal import BLESec

extension EventLoop {
    /// Ends a channel early: what is already queued is still sent while it makes progress, so that
    /// the peer learns the reason, but not for long.
    ///
    /// `close` gets the longest time without progress. `abort` runs when closing takes too long in
    /// all.
    func leave(
        _ close: (_ limit: Duration) async -> Void,
        orElse abort: @escaping @Sendable () async -> Void
    ) async {
        let stop = Task(executorPreference: self) {
            try await self.sleep(for: .seconds(20))
            await abort()
        }
        await close(.seconds(5))
        stop.cancel()
    }
}
