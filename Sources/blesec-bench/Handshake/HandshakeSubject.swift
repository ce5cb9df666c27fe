/// Both sides of one kind of handshake in memory.
protocol HandshakeSubject: AnyObject {
    /// The name in reports: the protocol's name, followed by ` resumed` if a session is resumed.
    var name: String { get }

    /// The work to compare the handshake with, if any. Reports call its time the limit.
    var reference: (any HandshakeReference)? { get }

    /// Runs `count` handshakes from their beginning to the transport keys.
    func run(_ count: Int) throws -> HandshakeSample
}

/// The work to compare a handshake with, done from C: the handshake's calls of primitives, or a
/// handshake of OpenSSL alone.
protocol HandshakeReference: AnyObject {
    /// The number of calls of each primitive, if the work is made of primitives.
    var counts: HandshakeCalls.Counts? { get }

    /// Does the work of both sides of `repetitions` handshakes, and returns the nanoseconds of
    /// processor time for all of them.
    func run(_ repetitions: Int) throws -> Double
}

/// Two values, one for each side.
struct BothSides<Value: Sendable>: Sendable {
    var dialer: Value
    var acceptor: Value
}

extension BothSides: Equatable where Value: Equatable {}

/// The cost of the handshakes of one batch.
struct HandshakeSample {
    /// Nanoseconds of processor time of all handshakes together.
    var time = BothSides(dialer: 0.0, acceptor: 0.0)
    /// The number of flights that each side sent in one handshake.
    var flights = BothSides(dialer: 0, acceptor: 0)
    /// The bytes that each side sent in one handshake.
    var bytes = BothSides(dialer: 0, acceptor: 0)

    /// Adds the processor time of `body` to one side's time.
    fileprivate mutating func charge(
        _ side: WritableKeyPath<BothSides<Double>, Double>, _ body: () throws -> Void
    ) rethrows {
        let start = Clock.threadTime
        try body()
        time[keyPath: side] += Double(Clock.threadTime - start)
    }
}

/// One side of a handshake in memory.
protocol HandshakeSide: AnyObject {
    /// The message that ``write()`` wrote last; empty if the side had nothing to send.
    var message: [UInt8] { get }
    func write() throws
    func read(_ message: [UInt8]) throws
}

/// Handshakes that one thread runs together: all of them take a step before any takes the next.
/// The clock is read once before and once after all handshakes take a step, and not for each
/// handshake, since reading the clock costs as much as a hash.
struct HandshakeBatch<Side: HandshakeSide> {
    private(set) var sample = HandshakeSample()
    private let dialers: [Side]
    private let acceptors: [Side]

    init(_ count: Int, _ make: () -> Side) {
        dialers = (0..<count).map { _ in make() }
        acceptors = (0..<count).map { _ in make() }
    }

    /// Both sides of the first handshake; the others are in the same state.
    var first: (dialer: Side, acceptor: Side) { (dialers[0], acceptors[0]) }

    /// Lets all dialers take a step, then all acceptors.
    mutating func step(
        _ dialing: (Side) throws -> Void, _ accepting: (Side) throws -> Void
    ) throws {
        try sample.charge(\.dialer) { for side in dialers { try dialing(side) } }
        try sample.charge(\.acceptor) { for side in acceptors { try accepting(side) } }
    }

    /// Lets all dialers write and all acceptors read, or the other way round.
    mutating func pass(fromDialers: Bool) throws {
        let (writers, readers) = fromDialers ? (dialers, acceptors) : (acceptors, dialers)
        try sample.charge(fromDialers ? \.dialer : \.acceptor) {
            for side in writers { try side.write() }
        }
        try sample.charge(fromDialers ? \.acceptor : \.dialer) {
            for index in readers.indices { try readers[index].read(writers[index].message) }
        }
        guard !writers[0].message.isEmpty else { return }
        let side: WritableKeyPath<BothSides<Int>, Int> = fromDialers ? \.dialer : \.acceptor
        sample.flights[keyPath: side] += 1
        sample.bytes[keyPath: side] += writers[0].message.count
    }
}
