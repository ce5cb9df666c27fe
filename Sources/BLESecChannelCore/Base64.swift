/// Strict Base64 (RFC 4648 §4): no white space, unused bits are zero, and the padding is complete
/// or absent, as the caller says.
package enum Base64 {
    private static let alphabet = Array(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)

    /// Encodes `bytes`; if `padded`, adds `=` signs up to a multiple of four characters.
    package static func encode(_ bytes: [UInt8], padded: Bool) -> String {
        var text: [UInt8] = []
        for start in stride(from: 0, to: bytes.count, by: 3) {
            let group = bytes[start...].prefix(3)
            let bits = (group + [0, 0]).prefix(3).reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
            for position in 0...group.count {
                text.append(alphabet[Int(bits >> (18 - 6 * UInt32(position)) & 0x3F)])
            }
            if padded {
                text.append(contentsOf: repeatElement(UInt8(ascii: "="), count: 3 - group.count))
            }
        }
        return String(decoding: text, as: UTF8.self)
    }

    /// Decodes `text`; `nil` if it is not the canonical encoding of any bytes.
    package static func decode(_ text: some StringProtocol, padded: Bool) -> [UInt8]? {
        var digits = Array(text.utf8)
        if padded {
            guard digits.count % 4 == 0 else { return nil }
            for _ in 0..<2 where digits.last == UInt8(ascii: "=") { digits.removeLast() }
        }
        guard digits.count % 4 != 1 else { return nil }
        var bytes: [UInt8] = []
        var bits: UInt32 = 0
        var bitCount = 0
        for digit in digits {
            guard let value = alphabet.firstIndex(of: digit) else { return nil }
            bits = bits << 6 | UInt32(value)
            bitCount += 6
            if bitCount >= 8 {
                bitCount -= 8
                bytes.append(UInt8(truncatingIfNeeded: bits >> UInt32(bitCount)))
                bits &= (1 << UInt32(bitCount)) - 1
            }
        }
        // The bits after the last whole byte are unused, and must be zero.
        return bits == 0 ? bytes : nil
    }
}
