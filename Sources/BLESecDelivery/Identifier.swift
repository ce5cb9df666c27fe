/// The 16 bytes that identify an instance or an epoch; zeros mean that there is none. The first 8
/// bytes are drawn at random once for each store, the other 8 for each identifier.
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

    /// Draws an identifier of the same store as `other`: their first halves are equal.
    package init(
        sharingStoreOf other: Identifier, using generator: inout some RandomNumberGenerator
    ) {
        repeat { self.init(high: other.high, low: generator.next()) } while self == .none
    }

    /// Whether both identifiers were drawn for the same store, or for copies of it.
    package func sharesStore(with other: Identifier) -> Bool { high == other.high }
}

extension Identifier: Comparable {
    package static func < (left: Identifier, right: Identifier) -> Bool {
        (left.high, left.low) < (right.high, right.low)
    }
}
