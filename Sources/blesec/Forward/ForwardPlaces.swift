internal import BLESec
internal import BLESecLinks

/// Places for the connections that a side carries at the same time. Each connection takes a place,
/// and further connections wait until a place is free.
actor ForwardPlaces {
    private static let count = 64

    private let loop: EventLoop
    private let waiting: LoopCondition
    /// Called the first time that a connection has to wait.
    private let onFirstWait: @Sendable (_ count: Int) -> Void
    private var freeCount = ForwardPlaces.count
    private var hasWaited = false

    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    init(loop: EventLoop, onFirstWait: @escaping @Sendable (_ count: Int) -> Void) {
        self.loop = loop
        self.onFirstWait = onFirstWait
        waiting = LoopCondition(loop: loop)
    }

    /// Takes a place; waits until one is free. Returns false if the task is cancelled before that.
    func take() async -> Bool {
        while freeCount == 0 {
            if !hasWaited {
                hasWaited = true
                onFirstWait(Self.count)
            }
            let isCancelled = await waiting.wait(for: .room, isolation: self) {
                freeCount > 0
            }
            if isCancelled { return false }
        }
        freeCount -= 1
        return true
    }

    func giveBack() {
        freeCount += 1
        waiting.wake(.room)
    }
}
