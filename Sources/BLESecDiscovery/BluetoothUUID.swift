/// A UUID of a GATT service or characteristic (Core specification, Vol 3, Part B, §2.5.1).
public struct BluetoothUUID: Sendable, Hashable, LosslessStringConvertible {
    private let high, low: UInt64

    /// The Bluetooth base UUID, `00000000-0000-1000-8000-00805F9B34FB`. A short UUID stands for the
    /// base UUID with the short UUID as its first 32 bits.
    private static let base: (high: UInt64, low: UInt64) = (0x1000, 0x8000_0080_5F9B_34FB)
    /// The numbers of digits after which the full form has a hyphen.
    private static let hyphens: Set<Int> = [8, 12, 16, 20]

    /// Makes a UUID from its upper and lower 64 bits.
    public init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }

    /// Parses the full form, or the 4 or 8 digits of an assigned UUID, in upper or lower case.
    ///
    /// - Returns: nil for anything else.
    public init?(_ text: some StringProtocol) {
        var digits = 0
        var value: (high: UInt64, low: UInt64) = (0, 0)
        for character in text.utf8 {
            if character == UInt8(ascii: "-"), text.utf8.count == 36 { continue }
            guard digits < 32, let digit = Character(Unicode.Scalar(character)).hexDigitValue
            else { return nil }
            digits += 1
            value = (value.high << 4 | value.low >> 60, value.low << 4 | UInt64(digit))
        }
        switch (digits, text.utf8.count) {
        case (32, 36):
            self.init(high: value.high, low: value.low)
            // The hyphens must be at the places where the full form has them.
            guard text.lowercased() == description else { return nil }
        case (8, 8), (4, 4): self.init(high: value.low << 32 | Self.base.high, low: Self.base.low)
        default: return nil
        }
    }

    /// Whether the UUID has a short form, as UUIDs assigned by the Bluetooth SIG have.
    var isAssigned: Bool { low == Self.base.low && high & 0xFFFF_FFFF == Self.base.high }

    /// The full form in lower case, as BlueZ writes it.
    public var description: String {
        var text = ""
        for index in 0..<32 {
            if Self.hyphens.contains(index) { text += "-" }
            let half = index < 16 ? high : low
            text += String(half >> (60 - index % 16 * 4) & 0xF, radix: 16)
        }
        return text
    }
}

extension BluetoothUUID: Codable {
    /// Reads the text form.
    public init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        let text = try container.decode(String.self)
        guard let value = BluetoothUUID(text) else {
            throw DecodingError.dataCorruptedError(
                in: container, debugDescription: "\"\(text)\" is no UUID")
        }
        self = value
    }

    /// Writes the text form.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(description)
    }
}
