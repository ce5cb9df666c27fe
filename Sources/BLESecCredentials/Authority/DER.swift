/// Writes the parts of DER (X.690) that certificates need.
enum DER {
    static let integer: UInt8 = 0x02
    static let octetString: UInt8 = 0x04
    static let utf8String: UInt8 = 0x0C
    static let sequence: UInt8 = 0x30
    static let set: UInt8 = 0x31

    /// An element: the tag, the length, and the concatenated parts.
    static func element(_ tag: UInt8, _ parts: [UInt8]...) -> [UInt8] {
        let content = Array(parts.joined())
        guard content.count > 0x7F else { return [tag, UInt8(content.count)] + content }
        let length = bytes(UInt64(content.count))
        return [tag, 0x80 | UInt8(length.count)] + length + content
    }

    static func sequence(_ parts: [UInt8]...) -> [UInt8] {
        element(sequence, Array(parts.joined()))
    }

    /// A BIT STRING of whole bytes.
    static func bitString(_ bytes: [UInt8]) -> [UInt8] { element(0x03, [0], bytes) }

    /// An INTEGER that is not negative.
    static func number(_ value: UInt64) -> [UInt8] {
        let bytes = bytes(value)
        return element(integer, bytes[0] & 0x80 == 0 ? bytes : [0] + bytes)
    }

    /// The big-endian bytes of a number, at least one, without leading zero bytes.
    private static func bytes(_ value: UInt64) -> [UInt8] {
        (value > 0xFF ? bytes(value >> 8) : []) + [UInt8(truncatingIfNeeded: value)]
    }

    /// An OBJECT IDENTIFIER from its encoded arcs.
    static func identifier(_ arcs: UInt8...) -> [UInt8] { element(0x06, arcs) }

    /// A constructed context-specific element, `[number]` in ASN.1.
    static func tagged(_ number: UInt8, _ content: [UInt8]) -> [UInt8] {
        element(0xA0 | number, content)
    }

    /// A time in seconds since 1970, in the form of RFC 5280 §4.1.2.5: a two-digit year until 2049,
    /// a four-digit year from then on.
    static func time(_ seconds: Int64) -> [UInt8] {
        let time = CalendarTime(seconds)
        let digits = time.digits
        return time.year < 2_050
            ? element(0x17, Array(digits.dropFirst(2))) : element(0x18, digits)
    }
}
