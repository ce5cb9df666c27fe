/// Four random bytes that distinguish one peer's advertisements from another's.
///
/// A peer draws a new tag at each start, and again after a while (15 minutes by default), so that
/// nobody can track the peer by its tags. Anyone can copy a tag: it proves nothing.
package struct AdvertisementTag: Sendable, Hashable, Comparable, CustomStringConvertible {
    /// The four bytes as a big-endian number.
    package let rawValue: UInt32

    package init(rawValue: UInt32) { self.rawValue = rawValue }

    /// Draws a new tag.
    package static func random(using generator: inout some RandomNumberGenerator) -> Self {
        Self(rawValue: .random(in: .min ... .max, using: &generator))
    }

    /// Orders by number: of two peers, the one with the lower tag dials first.
    package static func < (left: AdvertisementTag, right: AdvertisementTag) -> Bool {
        left.rawValue < right.rawValue
    }

    /// Eight hexadecimal digits.
    package var description: String {
        let digits = String(rawValue, radix: 16)
        return String(repeating: "0", count: 8 - digits.count) + digits
    }
}
