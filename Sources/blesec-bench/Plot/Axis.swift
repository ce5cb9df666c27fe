internal import Glibc

/// A logarithmic axis between two values.
struct Axis {
    /// The values at the two ends, both positive.
    let least: Double
    let most: Double
    /// The positions of `least` and of `most` in the drawing.
    let start: Double
    let end: Double
}

extension Axis {
    /// An axis at the positions `start` to `end`. Its range covers the positive `values`, and
    /// extends on either side to the next 1, 2 or 5 times a power of ten.
    init(_ values: [Double], from start: Double, to end: Double) {
        let positive = values.filter { $0 > 0 && $0.isFinite }
        let low = Self.step(below: positive.min() ?? 1)
        let high = Self.step(above: positive.max() ?? 1)
        self.init(least: low, most: high > low ? high : 10 * low, start: start, end: end)
    }

    /// The position of a value; a value outside of the axis is placed at the nearer end.
    func position(_ value: Double) -> Double {
        guard most > least else { return (start + end) / 2 }
        let share = log(min(max(value, least), most) / least) / log(most / least)
        return start + share * (end - start)
    }

    /// The powers of ten on the axis; also 2 and 5 times these if the axis covers a factor of at
    /// most 1,000.
    var ticks: [Double] {
        let factors = most / least > 1_000 ? [1.0] : [1.0, 2, 5]
        var ticks: [Double] = []
        var power = pow(10, floor(log10(least)))
        while power <= most {
            ticks += factors.map { $0 * power }
            power *= 10
        }
        // 0.1 % more or less allows for rounding errors of the powers.
        return ticks.filter { $0 >= 0.999 * least && $0 <= 1.001 * most }
    }

    private static func step(below value: Double) -> Double {
        let power = pow(10, floor(log10(value)))
        return ([5.0, 2].first { $0 * power <= value } ?? 1) * power
    }

    private static func step(above value: Double) -> Double {
        let power = pow(10, floor(log10(value)))
        return ([1.0, 2, 5].first { $0 * power >= value } ?? 10) * power
    }
}
