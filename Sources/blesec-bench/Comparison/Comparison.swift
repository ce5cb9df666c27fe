/// What has changed from one run to another, by their ratios alone.
struct Comparison: Sendable {
    /// A ratio that moved further than noise moves one.
    struct Change: Sendable, Equatable {
        var name: String
        var limit: String
        /// The medians.
        var before: Double
        var now: Double
        /// The least move that would have counted, as a share.
        var margin: Double
        var isWorse: Bool
    }

    /// How many ratios both runs have.
    private(set) var common = 0
    /// The changes, the worst first.
    private(set) var changes: [Change] = []

    /// Whether anything got slower, or sends more.
    var isWorse: Bool { changes.contains(where: \.isWorse) }

    /// Compares what both have.
    init(_ ratios: [Ratio], to old: [OldReport.Ratio]) {
        let before = Dictionary(old.map { ($0.name, $0) }) { first, _ in first }
        for ratio in ratios {
            guard let old = before[ratio.name] else { continue }
            common += 1
            if let change = Change(ratio, old) { changes.append(change) }
        }
        changes.sort { ($0.isWorse ? 1 : 0, $0.move) > ($1.isWorse ? 1 : 0, $1.move) }
    }

    /// Forgets what another run of the same build does not confirm.
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
                // These two are measured together with links.
                return ["packets", "sdus"].contains(word) ? .link : .init(rawValue: word)
            })
    }
}

extension Comparison.Change {
    /// Nil when noise may have moved it as far.
    ///
    /// The spread over the root of the number of samples is about the standard error of a median.
    /// Three of those, of both runs together, are noise; and never less than what a ratio of that
    /// basis wavers between runs for reasons that samples of one run share.
    fileprivate init?(_ ratio: Ratio, _ old: OldReport.Ratio) {
        let own = ratio.summary
        let noise = 3 * (own.error * own.error + old.error * old.error).squareRoot()
        let margin = max(ratio.basis.leastMargin, noise)
        guard own.median > 0, old.median > 0 else { return nil }
        let isLess = own.median < old.median
        let move = (isLess ? old.median / own.median : own.median / old.median) - 1
        guard move > margin else { return nil }
        self.init(
            name: ratio.name, limit: ratio.limit, before: old.median, now: own.median,
            margin: margin, isWorse: isLess != ratio.lessIsBetter)
    }

    /// How far it moved, as a share of the smaller one.
    fileprivate var move: Double { max(now / before, before / now) - 1 }
}

extension Ratio.Basis {
    /// Smaller moves are never reported, as a share.
    var leastMargin: Double {
        switch self {
        case .processor: 0.08
        case .wall: 0.25
        case .counted: 0.001
        }
    }
}

extension Summary {
    /// About the standard error of the median, as a share of it.
    fileprivate var error: Double { spread / Double(count).squareRoot() }
}

extension Comparison {
    /// What changed, as a table.
    func text(_ path: String) -> String {
        let word = common == 1 ? "ratio" : "ratios"
        guard !changes.isEmpty else {
            return "\nCompared with \(path): no change in \(common) \(word)\n"
        }
        var table = Table(
            ["", "to", "", "before", "now", "change, %", "noise, %"], words: [0, 1, 2])
        for change in changes {
            table.append([
                change.name, change.limit, change.isWorse ? "worse" : "better",
                change.before.fixed(3), change.now.fixed(3),
                (100 * (change.now / change.before - 1)).fixed(1), (100 * change.margin).fixed(1),
            ])
        }
        return "\nCompared with \(path): \(changes.count) of \(common) \(word) changed\n\n"
            + table.text
    }
}
