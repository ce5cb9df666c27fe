internal import BLESec
internal import BLESecToolKit

/// What is to be measured, and how thoroughly.
struct Settings: Sendable {
    /// One group of figures.
    enum Scenario: String, CaseIterable, Sendable {
        case engine, handshake, link, many, radio

        /// All of them, as a sentence has them.
        static var names: String {
            let names = allCases.map(\.rawValue)
            return names.dropLast().joined(separator: ", ") + " or " + names[names.count - 1]
        }
    }

    /// Which groups.
    var scenarios = Set(Scenario.allCases)
    /// The protocols beside the plain link.
    var protocols = [EngineChoice.noise, .tls]
    /// Those and the plain link, which comes first.
    var engines: [EngineChoice] { [.plain] + protocols }
    /// The protocols whose handshakes are measured; nil for all patterns and suites.
    var handshakes: [String]?
    /// Bytes of a message; 64 B to 64 KiB by default.
    var sizes = [64, 256, 1_024, 4_096, 16_384, 65_536] {
        didSet { sweepsSDUs = false }
    }
    /// Whether bulk over l2cap is sent in SDUs of several sizes too.
    private(set) var sweepsSDUs = true
    /// How many channels are open at once, one number after another.
    var channels = [1, 10, 100, 1_000]
    /// Samples of each kind, one kind after the other, over and over.
    var rounds = 5
    /// Whether messages also go there and back.
    var measuresRoundTrips = true
    /// How long one sample of a link takes, in nanoseconds.
    var sampleTime = 30_000_000.0
    /// What all but many channels and radio may take, in seconds; rounds are left out when time runs
    /// short.
    var seconds = 55

    /// Whether some of what is measured is left out.
    private(set) var isQuick = false

    /// Half as many samples, and shorter ones.
    mutating func makeQuick() {
        isQuick = true
        channels = [1, 100]
        rounds = 3
        sampleTime = 10_000_000
        seconds = 9
    }
}

/// How long a run may still take, shared fairly among what is still to be measured.
struct TimeBudget: Sendable {
    private let end: UInt64
    private var steps: Int

    init(seconds: Int, steps: Int) {
        end = Clock.time + UInt64(seconds) * 1_000_000_000
        self.steps = steps
    }

    /// Takes the next step's share; the time when it is used up.
    mutating func next() -> UInt64 {
        let now = Clock.time
        let share = end > now ? (end - now) / UInt64(max(1, steps)) : 0
        steps -= 1
        return now + share
    }
}
