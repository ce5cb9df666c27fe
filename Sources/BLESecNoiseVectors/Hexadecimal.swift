extension [UInt8] {
    /// The bytes of an even number of hexadecimal digits; nil for other text.
    package init?(hex text: String) {
        self = []
        reserveCapacity(text.utf8.count / 2)
        var digits = text.utf8.makeIterator()
        while let first = digits.next() {
            guard let high = Self.value(of: first), let second = digits.next(),
                let low = Self.value(of: second)
            else { return nil }
            append(high << 4 | low)
        }
    }

    private static func value(of digit: UInt8) -> UInt8? {
        switch digit {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): digit - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): digit - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): digit - UInt8(ascii: "A") + 10
        default: nil
        }
    }

    /// Appends the hexadecimal digits of `bytes` as ASCII.
    mutating func append(hex bytes: [UInt8]) {
        for byte in bytes {
            append(Self.digit(byte >> 4))
            append(Self.digit(byte & 15))
        }
    }

    private static func digit(_ value: UInt8) -> UInt8 {
        value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "a") + value - 10
    }
}
