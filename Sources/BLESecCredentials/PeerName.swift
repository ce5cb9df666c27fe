/// A peer's name, or its address, as the files about peers write it: ASCII letters, digits and
/// `-_.:@/+=,` stay, and every other byte becomes `%` and two hexadecimal digits.
enum PeerName {
    /// The longest name or address, in bytes of UTF-8 before escaping.
    static let maximumLength = 255

    /// The escaped form: one word without control characters, so that it is safe on a terminal.
    static func escape(_ name: String) -> String {
        var text = ""
        for byte in name.utf8 {
            switch byte {
            case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"),
                UInt8(ascii: "."), UInt8(ascii: ":"), UInt8(ascii: "@"), UInt8(ascii: "/"),
                UInt8(ascii: "+"), UInt8(ascii: "="), UInt8(ascii: ","):
                text.unicodeScalars.append(Unicode.Scalar(byte))
            default:
                text += (byte < 16 ? "%0" : "%") + String(byte, radix: 16, uppercase: true)
            }
        }
        return text
    }

    /// The name or address for an escaped form; nil if the form is invalid. Accepts characters that
    /// ``escape(_:)`` would have escaped, for files that are written by hand.
    static func unescape(_ text: Substring) -> String? {
        var bytes: [UInt8] = []
        var remaining = text.utf8[...]
        while let byte = remaining.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            guard let high = remaining.popFirst().flatMap(digit),
                let low = remaining.popFirst().flatMap(digit)
            else { return nil }
            bytes.append(UInt8(high << 4 | low))
        }
        guard (1...maximumLength).contains(bytes.count) else { return nil }
        return String(validating: bytes, as: UTF8.self)
    }

    private static func digit(_ byte: UInt8) -> Int? {
        Character(Unicode.Scalar(byte)).hexDigitValue
    }
}
