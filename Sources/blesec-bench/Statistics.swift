/// A summary of the samples of one measured quantity.
struct Summary: Sendable, Equatable {
    var median: Double
    var least: Double
    var most: Double
    /// The interquartile range divided by the median: a measure of scatter.
    var spread: Double
    var count: Int

    /// Summarizes the quotients of two equally long lists of samples.
    init(_ samples: [Double], over others: [Double]) {
        self.init(zip(samples, others).map { $0 / $1 })
    }

    /// Summarizes `samples`, which must not be empty.
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
    /// The quantile of sorted samples for the given fraction, interpolated linearly between two
    /// samples.
    func quantile(_ fraction: Double) -> Double {
        let position = fraction * Double(count - 1)
        let lower = Int(position)
        let upper = Swift.min(lower + 1, count - 1)
        return self[lower] + (self[upper] - self[lower]) * (position - Double(lower))
    }

    /// The median of samples in any order.
    var median: Double { sorted().quantile(0.5) }
}
