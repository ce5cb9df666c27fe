/// Both sides of one kind of handshake in memory.
///
/// Many are run at once, step by step, so that a clock is read around many like steps: reading it
/// costs as much as a hash.
protocol HandshakeSubject: AnyObject {
    /// What reports call it: a protocol's name.
    var name: String { get }

    /// What it is compared with, if there is something.
    var limit: (any HandshakeLimit)? { get }

    /// Runs so many handshakes from their beginning to the keys for transport.
    func run(_ count: Int) throws -> HandshakeSample
}

/// The same work from C: the calls of primitives in a Noise handshake, or OpenSSL's own handshake.
protocol HandshakeLimit: AnyObject {
    /// The calls of primitives, where these are the limit.
    var counts: HandshakeCalls.Counts? { get }

    /// Does the work of both sides of so many handshakes; the nanoseconds of all of them.
    func run(_ repetitions: Int) throws -> Double
}

/// Two figures, one for each side.
struct BothSides<Value: Sendable>: Sendable {
    var dialer: Value
    var acceptor: Value
}

extension BothSides: Equatable where Value: Equatable {}

/// What some handshakes at once took.
struct HandshakeSample {
    /// Nanoseconds of processor time of all of them together.
    var time = BothSides(dialer: 0.0, acceptor: 0.0)
    /// How often a side sent something after the other one had, in one handshake.
    var flights = BothSides(dialer: 0, acceptor: 0)
    /// What a side sent in one handshake.
    var bytes = BothSides(dialer: 0, acceptor: 0)

    /// Adds what `body` computes to one side's time.
    mutating func charge(
        _ side: WritableKeyPath<BothSides<Double>, Double>, _ body: () throws -> Void
    ) rethrows {
        let start = Clock.threadTime
        try body()
        time[keyPath: side] += Double(Clock.threadTime - start)
    }
}
