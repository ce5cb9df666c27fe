internal import CBLESecOpenSSL

/// The serial number of a certificate (RFC 5280 §4.1.2.2), unique among those of its issuer.
public struct SerialNumber: Sendable, Hashable {
    /// The DER INTEGER, header included; every number has exactly one form.
    package let der: [UInt8]

    /// Makes a number from its shortest big-endian two's complement form, which has 1 to 20 bytes.
    package init?(bytes: [UInt8]) {
        guard (1...Self.maximumLength).contains(bytes.count) else { return nil }
        der = [0x02, UInt8(bytes.count)] + bytes
    }

    /// Reads the hexadecimal digits of a positive number, in the form of `openssl x509 -serial` or
    /// with colons between the bytes.
    public init?(_ text: String) {
        let characters = text.utf8.filter { $0 != UInt8(ascii: ":") }
        var digits = characters.compactMap { Character(Unicode.Scalar($0)).hexDigitValue }
        guard digits.count == characters.count, (1...2 * Self.maximumLength).contains(digits.count)
        else { return nil }
        if digits.count % 2 == 1 { digits.insert(0, at: 0) }
        let bytes = stride(from: 0, to: digits.count, by: 2)
            .map { UInt8(digits[$0] << 4 | digits[$0 + 1]) }.drop { $0 == 0 }
        guard let first = bytes.first else { return nil }
        // A leading 1 bit would make the number negative.
        self.init(bytes: first & 0x80 == 0 ? Array(bytes) : [0] + bytes)
    }

    /// Reads an INTEGER of OpenSSL.
    init?(_ integer: UnsafePointer<ASN1_INTEGER>?) {
        der = unsafe DERForm.bytes { unsafe i2d_ASN1_INTEGER(integer, $0) }
        guard der.count > 2 else { return nil }
    }

    /// The greatest length that RFC 5280 allows, in bytes.
    private static let maximumLength = 20
}

extension SerialNumber: CustomStringConvertible {
    /// Upper-case hexadecimal digits, two for each byte.
    public var description: String {
        // The DER header of a number has 2 bytes, if the number has at most the 20 bytes that RFC
        // 5280 allows. An invalid number of 128 bytes or more has a longer header; the bytes of the
        // header after the second are then shown as part of the number.
        let bytes = der.dropFirst(2)
        let magnitude = bytes.count > 1 && bytes.first == 0 ? bytes.dropFirst() : bytes
        return magnitude.map { byte in
            (byte < 16 ? "0" : "") + String(byte, radix: 16, uppercase: true)
        }.joined()
    }
}
