package import BLESecChannelCore

/// The only name in a device certificate: a URI (RFC 3986), compared byte by byte.
package struct SubjectURI: Sendable, Hashable {
    /// The longest name in bytes. Long names make handshakes long, since every handshake carries
    /// the certificates of both sides.
    package static let maximumLength = 255

    package let text: String

    /// Checks a name: it needs a scheme, a colon, and at least one character after the colon.
    /// Characters that a URI cannot contain must be escaped.
    ///
    /// - Throws: `configuration`, whose reason explains the mistake.
    package init(_ text: String) throws(ChannelError) {
        let bytes = Array(text.utf8)
        func mistake(_ what: String) -> ChannelError {
            ChannelError(
                .configuration,
                "\(what) in the URI `\(text.prefix(80))`: a URI looks like blesec://devices/lamp")
        }
        guard bytes.count <= Self.maximumLength else {
            throw mistake("\(bytes.count) bytes, and at most \(Self.maximumLength) are allowed,")
        }
        guard let colon = bytes.firstIndex(of: UInt8(ascii: ":")), colon > 0,
            Self.isLetter(bytes[0]), bytes[..<colon].allSatisfy({ Self.isPlain($0, ".+-") })
        else { throw mistake("there is no scheme") }
        guard colon + 1 < bytes.count else { throw mistake("there is nothing after the scheme") }
        for index in bytes.indices {
            let byte = bytes[index]
            if byte == UInt8(ascii: "%") {
                guard index + 2 < bytes.count, Self.isHexadecimal(bytes[index + 1]),
                    Self.isHexadecimal(bytes[index + 2])
                else { throw mistake("there is a % without two hexadecimal digits") }
            }
            guard Self.isPlain(byte, Self.marks) else {
                throw mistake("there is a character that has to be written as % and two digits")
            }
        }
        self.text = text
    }

    /// The characters that RFC 3986 §2 allows besides letters and digits.
    private static let marks = "-._~:/?#[]@!$&'()*+,;=%"

    private static func isLetter(_ byte: UInt8) -> Bool {
        (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte | 0x20)
    }

    /// Whether a byte is a letter, a digit, or one of `marks`.
    private static func isPlain(_ byte: UInt8, _ marks: String) -> Bool {
        isLetter(byte) || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte)
            || marks.utf8.contains(byte)
    }

    private static func isHexadecimal(_ byte: UInt8) -> Bool {
        Character(Unicode.Scalar(byte)).isHexDigit
    }
}
