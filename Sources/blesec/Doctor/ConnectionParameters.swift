/// The parameters with which the kernel opens an LE link, unless a program requests others.
struct ConnectionParameters: Equatable {
    /// The shortest and the longest time between two connection events, in units of 1.25 ms.
    var minimumInterval = 24, maximumInterval = 40
    /// The number of connection events in a row that the peripheral may skip.
    var latency = 0
    /// The time without a packet after which the link is lost, in units of 10 ms.
    var supervisionTimeout = 42

    /// The longest interval that is not slow, in units of 1.25 ms: 50 ms, which is the kernel's
    /// default for ``maximumInterval``.
    private static let longestFastInterval = 40

    /// The settings below `[LE]` in main.conf, and their valid numbers (Core Specification, volume
    /// 4, part E, 7.8.12).
    static let settings: [(key: String, range: ClosedRange<Int>)] = [
        ("MinConnectionInterval", 6...3_200), ("MaxConnectionInterval", 6...3_200),
        ("ConnectionLatency", 0...499), ("ConnectionSupervisionTimeout", 10...3_200),
    ]

    /// The kernel's defaults, replaced by the valid settings of the configuration file.
    init(_ configuration: MainConfiguration?) {
        let numbers = Self.settings.map { key, range -> Int? in
            guard let number = configuration?.number("LE", key), range.contains(number) else {
                return nil
            }
            return number
        }
        minimumInterval = numbers[0] ?? minimumInterval
        maximumInterval = numbers[1] ?? maximumInterval
        latency = numbers[2] ?? latency
        supervisionTimeout = numbers[3] ?? supervisionTimeout
    }

    /// The kernel's parameters for an adapter, which only root may read; nil if they cannot be
    /// read, or are not valid.
    init?(adapter: String, _ facts: SystemFacts) {
        let folder = "/sys/kernel/debug/bluetooth/\(adapter)/"
        let names = [
            "conn_min_interval", "conn_max_interval", "conn_latency", "supervision_timeout",
        ]
        let numbers = names.compactMap { facts.number(in: folder + $0) }
        guard numbers.count == names.count,
            zip(numbers, Self.settings).allSatisfy({ $1.range.contains($0) })
        else { return nil }
        (minimumInterval, maximumInterval) = (numbers[0], numbers[1])
        (latency, supervisionTimeout) = (numbers[2], numbers[3])
    }

    /// Whether the other side may be reached less often than every 50 ms.
    var isSlow: Bool { maximumInterval * (latency + 1) > Self.longestFastInterval }

    /// How these parameters contradict each other; nil if they do not.
    var contradiction: String? {
        if minimumInterval > maximumInterval {
            return "the shortest interval is longer than the longest"
        }
        // The timeout has to be longer than 2 × (latency + 1) × the maximum interval. The timeout's
        // unit, 10 ms, is 8 units of the interval.
        if supervisionTimeout * 8 <= maximumInterval * (latency + 1) * 2 {
            return "the supervision timeout is not longer than twice the longest interval, times "
                + "the latency plus 1"
        }
        return nil
    }

    var text: String {
        "an interval of \(Self.milliseconds(minimumInterval)) to "
            + "\(Self.milliseconds(maximumInterval)) ms, latency \(latency), a supervision timeout "
            + "of \(supervisionTimeout * 10) ms"
    }

    private static func milliseconds(_ units: Int) -> String {
        let hundredths = units * 125
        let whole = "\(hundredths / 100)"
        switch hundredths % 100 {
        case 0: return whole
        case let rest where rest % 10 == 0: return whole + ".\(rest / 10)"
        case let rest: return whole + ".\(rest)"
        }
    }
}
