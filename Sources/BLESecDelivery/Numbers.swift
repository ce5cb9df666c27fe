// Numbers of at most 62 bits, as QUIC's variable-length integers (RFC 9000 §16), in as few bytes as
// possible.
extension Span<UInt8> {
    func byte(at position: inout Int) throws(DeliveryError) -> UInt8 {
        guard position < count else { throw .violation("a record that is too short") }
        defer { position += 1 }
        return self[position]
    }

    /// Reads the number at `position`, and moves `position` past it.
    package func number(at position: inout Int) throws(DeliveryError) -> UInt64 {
        let first = try byte(at: &position)
        if first < 1 << 6 { return UInt64(first) }
        let length = 1 << Int(first >> 6)
        var number = UInt64(first & 0x3F)
        for _ in 1..<length { number = number << 8 | UInt64(try byte(at: &position)) }
        guard [UInt8].length(of: number) == length else {
            throw .violation("a number in more bytes than it needs")
        }
        return number
    }
}

/// A destination for the bytes of encoded numbers.
package protocol ByteOutput {
    mutating func append(_ byte: UInt8)
}

extension [UInt8]: ByteOutput {}

extension [UInt8] {
    /// How many bytes a number takes in the form of RFC 9000 §16.
    package static func length(of number: UInt64) -> Int {
        switch number {
        case ..<(1 << 6): 1
        case ..<(1 << 14): 2
        case ..<(1 << 30): 4
        default: 8
        }
    }
}

extension ByteOutput {
    /// Appends a number in the form of RFC 9000 §16, in as few bytes as possible.
    package mutating func append(number: UInt64) {
        if number < 1 << 6 { return append(UInt8(number)) }
        precondition(number <= Resume.greatestNumber, "a number has at most 62 bits")
        let length = [UInt8].length(of: number)
        let prefix = UInt64(length.trailingZeroBitCount) << UInt64(8 * length - 2)
        for shift in stride(from: 8 * (length - 1), through: 0, by: -8) {
            append(UInt8(truncatingIfNeeded: (number | prefix) >> UInt64(shift)))
        }
    }
}
