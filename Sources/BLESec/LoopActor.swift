internal import BLESecLinks

/// An actor whose executor is an event loop.
protocol LoopActor: Actor {
    nonisolated var loop: EventLoop { get }
}

extension LoopActor {
    /// Runs `body` at once; traps unless the caller is on the thread of the actor's loop.
    ///
    /// `assumeIsolated` does the same. But it allocates memory twice, and its checks take longer
    /// than a short `body`. Each message leads to several such calls.
    nonisolated func runOnItsLoop(_ body: @escaping (isolated Self) -> Void) {
        loop.assertCurrent()
        // A function has the same representation with and without the isolation.
        unsafe unsafeBitCast(body, to: ((Self) -> Void).self)(self)
    }
}

extension SecureChannel: LoopActor {}
extension PeerConnection: LoopActor {}
