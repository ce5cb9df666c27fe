/// The 16 random bytes that identify an instance or an epoch; zeros mean that there is none.
package struct Identifier: Sendable, Hashable {
    package let high, low: UInt64

    /// No instance, and no epoch.
    package static var none: Identifier { Identifier(high: 0, low: 0) }

    package init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }

    /// Draws an identifier, which is never ``none``.
    package init(using generator: inout some RandomNumberGenerator) {
        repeat {
            self.init(high: generator.next(), low: generator.next())
        } while self == .none
    }
}

extension Identifier: Comparable {
    package static func < (left: Identifier, right: Identifier) -> Bool {
        (left.high, left.low) < (right.high, right.low)
    }
}
