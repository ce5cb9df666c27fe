internal import BLESecChannelCore
internal import BLESecLinks

extension LoopCondition {
    /// Suspends until `isTrue` returns true; calls `isTrue` first and at each `event`. Throws
    /// `cancelled` if the task is cancelled.
    ///
    /// Another task may run after `isTrue` has returned true and before the caller continues. So if
    /// another task can make `isTrue` return false again, the caller must call `isTrue` once more.
    func wait(
        for event: LoopEvent, number: UInt64 = 0, on actor: isolated (any Actor),
        until isTrue: () -> Bool
    ) async throws(ChannelError) {
        while !isTrue() {
            let isCancelled = await wait(
                for: event, number: number, isolation: actor, unless: isTrue)
            guard isCancelled else { continue }
            throw .waitCancelled
        }
    }
}

extension ChannelError {
    static var waitCancelled: ChannelError {
        ChannelError(.cancelled, "the task that waited was cancelled")
    }
}
