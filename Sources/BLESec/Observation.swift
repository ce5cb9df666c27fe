public import BLESecChannelCore
package import BLESecLinks
internal import BLESecLocking

/// Values that one consumer observes as they arrive, until their source is closed.
///
/// Each call that returns an observation makes an independent one, for one consumer. Values that
/// arrive before the consumer asks wait in a bounded buffer. A slow consumer loses the oldest
/// values, which ``dropped`` counts. The buffer of a `states()` call holds only the newest value.
public struct Observation<Value: Sendable>: AsyncSequence, Sendable {
    let stream: AsyncStream<Value>
    let state: Locked<ObservationState>
    /// How many values have been dropped, because the consumer did not ask for them in time.
    public var dropped: UInt64 { state.withLock { $0.dropped } }
    /// Makes an iterator that begins with the oldest waiting value.
    public func makeAsyncIterator() -> Iterator { Iterator(base: stream.makeAsyncIterator()) }

    /// See ``Observation``.
    public struct Iterator: AsyncIteratorProtocol {
        var base: AsyncStream<Value>.AsyncIterator
        /// The next value, or `nil` after the last one or when the task is cancelled.
        public mutating func next() async -> Value? { await base.next(isolation: nil) }

        /// The requirement of `AsyncIteratorProtocol`; does the same as ``next()``.
        public mutating func next(isolation actor: isolated (any Actor)?) async -> Value? {
            await base.next(isolation: actor)
        }
    }
}

/// A peer that failed to get a channel, and the reason.
public struct PeerFailure: Sendable {
    /// The peer's address, for logs; it proves nothing. If this side could not accept a peer, for
    /// example for lack of file descriptors, the text is `a new peer`.
    public let peer: String
    /// What went wrong.
    public let error: ChannelError
    /// The peer's address as a value; `nil` for a failed dial, and for a link without addresses.
    let address: LinkAddress?

    package init(peer: String, address: LinkAddress? = nil, error: ChannelError) {
        self.peer = peer
        self.address = address
        self.error = error
    }
}

/// What an observation shares with the object that it observes.
struct ObservationState: Sendable {
    /// How many values the consumer has lost.
    var dropped: UInt64 = 0
    /// Whether the observation has ended, for example because the consumer has released it.
    var isOver = false
}

/// The observers of the object that owns this value. Their observations end when the object does.
struct Observers<Value: Sendable>: ~Copyable {
    private var observers:
        [(feed: AsyncStream<Value>.Continuation, state: Locked<ObservationState>)] = []
    deinit { for observer in observers { observer.feed.finish() } }
    /// How many observers are stored. Observers whose observations have ended are removed when the
    /// next observer is added, or when the next value arrives.
    var count: Int { observers.count }
    /// How many failures the buffer of one observer holds.
    static var failureCapacity: Int { 64 }

    /// Adds an observation that begins with `present` and buffers `capacity` values. If `isOver`, the
    /// observation ends after `present`.
    mutating func add(
        beginningWith present: Value? = nil, capacity: Int = 1, isOver: Bool = false
    ) -> Observation<Value> {
        let (stream, feed) = AsyncStream<Value>.makeStream(
            bufferingPolicy: .bufferingNewest(capacity))
        let state = Locked(ObservationState())
        if let present { feed.yield(present) }
        if isOver {
            feed.finish()
        } else {
            observers.removeAll { observer in observer.state.withLock { $0.isOver } }
            // This closure is called on any thread, so it only marks the observation as ended.
            feed.onTermination = { _ in state.withLock { $0.isOver = true } }
            observers.append((feed, state))
        }
        return Observation(stream: stream, state: state)
    }

    /// Passes a value to each observer.
    mutating func tell(_ value: Value) {
        observers.removeAll { feed, state in
            switch feed.yield(value) {
            case .dropped: state.withLock { $0.dropped += 1 }
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
