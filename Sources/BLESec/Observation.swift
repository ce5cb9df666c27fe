public import BLESecChannelCore
internal import BLESecLocking

/// Values that one caller observes as they come, until what it observes is closed.
///
/// Each call that returns an observation makes an independent one, for one consumer. What comes while
/// nobody asks waits in a bounded buffer; slow consumers lose the oldest values, and ``dropped`` counts
/// them. Where the values are states, the buffer holds one: states coalesce to the newest.
public struct Observation<Value: Sendable>: AsyncSequence, Sendable {
    let stream: AsyncStream<Value>
    let losses: Locked<UInt64>

    /// How many values were dropped so far, because nobody asked for them in time.
    public var dropped: UInt64 { losses.withLock { $0 } }

    /// Goes on with the oldest value that waits.
    public func makeAsyncIterator() -> Iterator { Iterator(base: stream.makeAsyncIterator()) }

    /// See ``Observation``.
    public struct Iterator: AsyncIteratorProtocol {
        var base: AsyncStream<Value>.AsyncIterator

        /// The next value, or `nil` after the last one or when the task is cancelled.
        public mutating func next() async -> Value? { await base.next(isolation: nil) }

        /// The next value, or `nil` after the last one or when the task is cancelled.
        public mutating func next(isolation actor: isolated (any Actor)?) async -> Value? {
            await base.next(isolation: actor)
        }
    }
}

/// A peer that has got no channel, and why.
public struct PeerFailure: Sendable {
    /// Where its link led, for logs; proves nothing.
    public let peer: String
    /// What went wrong.
    public let error: ChannelError

    package init(peer: String, error: ChannelError) {
        self.peer = peer
        self.error = error
    }
}

/// Who observes a kind of value; belongs to what is observed.
struct Observers<Value: Sendable> {
    private var observers: [(feed: AsyncStream<Value>.Continuation, losses: Locked<UInt64>)] = []

    /// How many failures wait for who observes them.
    static var failureCapacity: Int { 64 }

    /// A new observation that begins with `present`, and ends with it where nothing more can come.
    mutating func add(
        beginningWith present: Value? = nil, capacity: Int = 1, isOver: Bool = false
    ) -> Observation<Value> {
        let (stream, feed) = AsyncStream<Value>.makeStream(
            bufferingPolicy: .bufferingNewest(capacity))
        let losses = Locked<UInt64>(0)
        if let present { feed.yield(present) }
        if isOver { feed.finish() } else { observers.append((feed, losses)) }
        return Observation(stream: stream, losses: losses)
    }

    mutating func tell(_ value: Value) {
        observers.removeAll { feed, losses in
            switch feed.yield(value) {
            case .dropped: losses.withLock { $0 += 1 }
            case .terminated: return true
            default: break
            }
            return false
        }
    }

    mutating func finish() {
        for observer in observers { observer.feed.finish() }
        observers = []
    }
}
