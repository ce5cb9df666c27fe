/// What is said of a number of samples.
struct Summary: Sendable, Equatable {
    /// Half of the samples lie below it.
    var median: Double
    /// The smallest and the largest.
    var least: Double
    var most: Double
    /// The middle half's width over the median: how noisy the samples are.
    var spread: Double
    /// How many samples there are.
    var count: Int

    /// Sums up at least one sample.
    init(_ samples: [Double]) {
        let sorted = samples.sorted()
        median = sorted.quantile(0.5)
        least = sorted[0]
        most = sorted[sorted.count - 1]
        count = sorted.count
        let width = sorted.quantile(0.75) - sorted.quantile(0.25)
        spread = median == 0 ? 0 : width / median
    }
}

extension [Double] {
    /// The value below which that share of these sorted samples lies, between two of them by
    /// proportion.
    func quantile(_ share: Double) -> Double {
        let position = share * Double(count - 1)
        let lower = Int(position)
        let upper = Swift.min(lower + 1, count - 1)
        return self[lower] + (self[upper] - self[lower]) * (position - Double(lower))
    }

    /// The middle of these samples in any order.
    var median: Double { sorted().quantile(0.5) }
}
