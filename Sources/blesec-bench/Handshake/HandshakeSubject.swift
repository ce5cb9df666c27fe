/// Both sides of one kind of handshake in memory.
///
/// Many handshakes run in parallel, step by step, so that the clock is read only around many equal
/// steps: reading the clock costs as much as a hash.
protocol HandshakeSubject: AnyObject {
    /// The name in reports: a protocol's name.
    var name: String { get }

    /// The work to compare with, if any.
    var limit: (any HandshakeLimit)? { get }

    /// Runs `count` handshakes from their beginning to the transport keys.
    func run(_ count: Int) throws -> HandshakeSample
}

/// The same work from C: the calls of primitives in a Noise handshake, or a handshake of OpenSSL
/// alone.
protocol HandshakeLimit: AnyObject {
    /// The calls of primitives, if they are the limit.
    var counts: HandshakeCalls.Counts? { get }

    /// Does the work of both sides of `repetitions` handshakes, and returns the nanoseconds of all
    /// of them.
    func run(_ repetitions: Int) throws -> Double
}

/// Two figures, one for each side.
struct BothSides<Value: Sendable>: Sendable {
    var dialer: Value
    var acceptor: Value
}

extension BothSides: Equatable where Value: Equatable {}

/// The cost of a number of parallel handshakes.
struct HandshakeSample {
    /// Nanoseconds of processor time of all handshakes together.
    var time = BothSides(dialer: 0.0, acceptor: 0.0)
    /// The number of flights that each side sent in one handshake.
    var flights = BothSides(dialer: 0, acceptor: 0)
    /// The bytes that each side sent in one handshake.
    var bytes = BothSides(dialer: 0, acceptor: 0)

    /// Adds the processor time of `body` to one side's time.
    mutating func charge(
        _ side: WritableKeyPath<BothSides<Double>, Double>, _ body: () throws -> Void
    ) rethrows {
        let start = Clock.threadTime
        try body()
        time[keyPath: side] += Double(Clock.threadTime - start)
    }
}
