internal import BLESecChannelCore
internal import BLESecLinks

extension LoopCondition {
    /// Suspends until `isTrue`, checked at each `event`; throws `cancelled` if the task is
    /// cancelled.
    ///
    /// Other tasks may run before the caller continues, so a caller checks again whatever another
    /// task can make untrue.
    func wait(
        for event: LoopEvent, on actor: isolated (any Actor), until isTrue: () -> Bool
    ) async throws(ChannelError) {
        while !isTrue() {
            guard await wait(for: event, isolation: actor, unless: isTrue) else { continue }
            throw .waitCancelled
        }
    }
}

extension ChannelError {
    static var waitCancelled: ChannelError {
        ChannelError(.cancelled, "the task that waited was cancelled")
    }
}
