/// Four random bytes by which a peer's advertisements are told from another's.
///
/// It is renewed with the advertisement and derived from nothing, so it follows nobody about. Anyone
/// can copy it: it proves nothing.
package struct AdvertisementTag: Sendable, Hashable, Comparable, CustomStringConvertible {
    /// The four bytes as a number, the first the highest.
    package let rawValue: UInt32

    /// Takes the number.
    package init(rawValue: UInt32) {
        self.rawValue = rawValue
    }

    /// A fresh one.
    package static func random(using generator: inout some RandomNumberGenerator)
        -> AdvertisementTag
    {
        AdvertisementTag(rawValue: .random(in: .min ... .max, using: &generator))
    }

    /// Orders by number: the lower one of two dials first.
    package static func < (left: AdvertisementTag, right: AdvertisementTag) -> Bool {
        left.rawValue < right.rawValue
    }

    /// Eight hexadecimal digits.
    package var description: String {
        let digits = String(rawValue, radix: 16)
        return String(repeating: "0", count: 8 - digits.count) + digits
    }
}
