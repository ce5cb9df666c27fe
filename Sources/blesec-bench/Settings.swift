internal import BLESec

/// The measurements to make, and the number and length of their samples.
struct Settings: Sendable {
    enum Scenario: String, CaseIterable, Sendable {
        case engine, handshake, link, many, radio
    }

    var scenarios = Set(Scenario.allCases)
    /// The protocols to measure besides the plain link.
    var protocols = [EngineChoice.noise, .tls]
    var engines: [EngineChoice] { [.plain] + protocols }
    /// The protocols whose handshakes are measured; nil for the defaults of `BenchRun`.
    var handshakeProtocols: [String]?
    /// The sizes of messages, in bytes.
    var sizes = [64, 256, 1_024, 4_096, 16_384, 65_536] { didSet { sweepsSDUs = false } }
    /// The lengths of records' plaintexts: the sizes of messages, but no more than the longest
    /// plaintext. A plaintext is one byte for the record's type, and the payload.
    var recordSizes: [Int] { sizes.map { min($0, Record.maximumPayload + 1) }.unique }

    /// Whether bulk data over L2CAP is also measured with several SDU sizes; false once `sizes` is
    /// set.
    private(set) var sweepsSDUs = true
    /// The numbers of channels to open at once.
    var channels = [1, 100, 1_000, 9_900]
    /// The number of loops over which many channels are also spread; nil if they are not.
    var loops: Int?
    /// The number of samples of each measurement; samples of different measurements alternate.
    var rounds = 5
    /// Whether messages that go there and back are measured, and streams.
    var measuresRoundTrips = true
    /// The length of one sample of a link, in nanoseconds.
    var sampleTime = 30_000_000.0
    /// The time limit in seconds that `engine`, `handshake` and `link` share. When time runs short,
    /// `link` leaves out rounds; the other two make all rounds, even beyond the limit.
    var timeLimitSeconds = 55

    private(set) var isQuick = false

    /// Selects fewer and shorter samples, and fewer numbers of channels.
    mutating func makeQuick() {
        isQuick = true
        channels = [1, 100]
        rounds = 3
        sampleTime = 10_000_000
        timeLimitSeconds = 9
    }
}

/// The remaining time of a run, divided equally among the remaining steps.
struct TimeBudget: Sendable {
    private let end: UInt64
    private var remainingSteps: Int

    init(seconds: Int, steps: Int) {
        end = Clock.time + UInt64(seconds) * 1_000_000_000
        remainingSteps = steps
    }

    /// Takes the next step's share, and returns the time at which the step has to end.
    mutating func next() -> UInt64 {
        let now = Clock.time
        let share = end > now ? (end - now) / UInt64(max(1, remainingSteps)) : 0
        remainingSteps -= 1
        return now + share
    }
}
