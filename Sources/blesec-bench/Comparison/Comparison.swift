/// The changes from an earlier run to this one. Only ratios are compared.
struct Comparison: Sendable {
    /// A ratio that changed by more than noise.
    struct Change: Sendable, Equatable {
        var name: String
        /// The name of the limit, by which the measured figure is divided.
        var referenceName: String
        /// The medians of the earlier run and of this one.
        var before: Double
        var now: Double
        /// The largest change that may be noise, as a fraction.
        var margin: Double
        var isWorse: Bool
    }

    /// The number of ratios that both runs have.
    private(set) var commonCount = 0
    /// The changes: worse ratios before better ones, and in each group the larger changes first.
    private(set) var changes: [Change] = []

    var isWorse: Bool { changes.contains(where: \.isWorse) }

    /// Compares the ratios that both runs have.
    init(_ ratios: [Ratio], to old: [RecordedReport.Ratio]) {
        let before = Dictionary(old.map { ($0.name, $0) }) { first, _ in first }
        for ratio in ratios {
            guard let recorded = before[ratio.name] else { continue }
            commonCount += 1
            if let change = Change(ratio, recorded) { changes.append(change) }
        }
        changes.sort { ($0.isWorse ? 1 : 0, $0.size) > ($1.isWorse ? 1 : 0, $1.size) }
    }

    /// Keeps only the changes that `other` has too, in the same direction. `other` compares a
    /// second run of the present build with the same earlier run.
    mutating func confirm(by other: Comparison) {
        changes.removeAll { change in
            !other.changes.contains { $0.name == change.name && $0.isWorse == change.isWorse }
        }
    }

    /// The scenarios whose ratios changed.
    var scenarios: Set<Settings.Scenario> {
        Set(
            changes.compactMap { change in
                let word = String(change.name.prefix { $0 != "/" })
                // The scenario `link` also measures packets and SDU sizes.
                return ["packets", "sdus"].contains(word) ? .link : .init(rawValue: word)
            })
    }
}

extension Comparison.Change {
    /// Nil if the change may be noise, or if a median is not positive.
    ///
    /// A change counts only if it is larger than three standard errors of both medians combined. It
    /// also has to be larger than `leastMargin`, since all samples of one run can be slower or
    /// faster than those of the other run.
    fileprivate init?(_ ratio: Ratio, _ old: RecordedReport.Ratio) {
        let current = ratio.summary
        let errors = [current.standardError, old.standardError]
        let noise = 3 * errors.reduce(0) { $0 + $1 * $1 }.squareRoot()
        guard current.median > 0, old.median > 0 else { return nil }
        self.init(
            name: ratio.name, referenceName: ratio.referenceName, before: old.median,
            now: current.median, margin: max(ratio.basis.leastMargin, noise),
            isWorse: Ratio.isWorse(
                current.median, than: old.median, lessIsBetter: ratio.lessIsBetter))
        guard size > margin else { return nil }
    }

    /// The size of the change, as a fraction of the smaller median.
    fileprivate var size: Double { max(now / before, before / now) - 1 }
}

extension Ratio.Basis {
    /// The smallest change that is reported, as a fraction.
    var leastMargin: Double {
        switch self {
        case .processor: 0.08
        case .wall: 0.25
        case .counted: 0.001
        }
    }
}

extension Summary {
    /// An approximation of the standard error of the median, as a fraction of the median: the
    /// spread divided by the square root of the number of samples.
    fileprivate var standardError: Double { spread / Double(count).squareRoot() }
}

extension Comparison {
    /// The changes as text. `path` is that of the earlier run's report.
    func text(comparedWith path: String) -> String {
        let word = commonCount == 1 ? "ratio" : "ratios"
        guard !changes.isEmpty else {
            return "\nCompared with \(path): no change in \(commonCount) \(word)\n"
        }
        let rows = changes.map {
            [
                $0.name, $0.referenceName, $0.isWorse ? "worse" : "better", $0.before.fixed(3),
                $0.now.fixed(3), (100 * ($0.now / $0.before - 1)).fixed(1),
                (100 * $0.margin).fixed(1),
            ]
        }
        let table = Table(
            ["ratio", "limit", "result", "before", "now", "change, %", "largest noise, %"],
            words: [0, 1, 2], rows: rows)
        return "\nCompared with \(path): \(changes.count) of \(commonCount) \(word) changed\n\n"
            + table.text
    }
}
