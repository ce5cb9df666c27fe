/// A strict parser for a JSON text (RFC 8259): only what the grammar allows is accepted.
///
/// A repeated member is refused, since parsers differ in which value they use. Nesting of more than
/// 32 levels is refused as well.
package struct JSONReader {
    private let bytes: [UInt8]
    private var position = 0
    private var depth = 0

    private static let maximumDepth = 32

    /// A parse error.
    package struct Failure: Error {
        /// The offset, in bytes, of the first invalid byte, or of the invalid word, number, string
        /// or name. If the text ends too early, the text's length in bytes.
        package let position: Int
        package let reason: String
    }

    /// Parses all of `bytes` as one value.
    package static func read(_ bytes: [UInt8]) throws(Failure) -> JSONValue {
        var reader = JSONReader(bytes: bytes)
        let value = try reader.readValue()
        reader.skipSpace()
        guard reader.current == nil else { throw reader.failure() }
        return value
    }

    // MARK: Bytes

    /// The current byte; nil at the end.
    private var current: UInt8? { position < bytes.count ? bytes[position] : nil }

    private func failure(_ reason: String = "not valid JSON") -> Failure {
        Failure(
            position: position,
            reason: position < bytes.count ? reason : "not valid JSON: the text ends too early")
    }

    private mutating func skipSpace() {
        while let byte = current, byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09 {
            position += 1
        }
    }

    /// Skips the current byte if it is `byte`, and returns whether it was.
    private mutating func take(_ byte: Unicode.Scalar) -> Bool {
        guard current == UInt8(ascii: byte) else { return false }
        position += 1
        return true
    }

    /// Skips white space, and then does what ``take(_:)`` does.
    private mutating func skipSpaceAndTake(_ byte: Unicode.Scalar) -> Bool {
        skipSpace()
        return take(byte)
    }

    /// Skips white space and the byte `byte`; throws if another byte or the end follows.
    private mutating func expect(_ byte: Unicode.Scalar) throws(Failure) {
        guard skipSpaceAndTake(byte) else { throw failure() }
    }

    // MARK: Values

    private mutating func readValue() throws(Failure) -> JSONValue {
        skipSpace()
        switch current {
        case UInt8(ascii: "{"):
            return try readNested { reader throws(Failure) in try reader.readObject() }
        case UInt8(ascii: "["):
            return try readNested { reader throws(Failure) in try reader.readArray() }
        case UInt8(ascii: "\""): return .string(try readString())
        default: return try readWordOrNumber()
        }
    }

    /// Skips the opening bracket, and calls `read` one level deeper.
    private mutating func readNested(
        _ read: (inout JSONReader) throws(Failure) -> JSONValue
    ) throws(Failure) -> JSONValue {
        guard depth < Self.maximumDepth else { throw failure("not valid here: nested too deep") }
        position += 1
        depth += 1
        let value = try read(&self)
        depth -= 1
        return value
    }

    private mutating func readObject() throws(Failure) -> JSONValue {
        var members: [(name: String, value: JSONValue)] = []
        var names: Set<String> = []
        if skipSpaceAndTake("}") { return .object(members) }
        repeat {
            skipSpace()
            let start = position
            guard current == UInt8(ascii: "\"") else { throw failure() }
            let name = try readString()
            guard names.insert(name).inserted else {
                throw Failure(
                    position: start, reason: "not valid here: a member that occurs a second time")
            }
            try expect(":")
            members.append((name, try readValue()))
        } while skipSpaceAndTake(",")
        try expect("}")
        return .object(members)
    }

    private mutating func readArray() throws(Failure) -> JSONValue {
        var items: [JSONValue] = []
        if skipSpaceAndTake("]") { return .array(items) }
        repeat { items.append(try readValue()) } while skipSpaceAndTake(",")
        try expect("]")
        return .array(items)
    }

    // MARK: Strings

    private mutating func readString() throws(Failure) -> String {
        let start = position
        position += 1
        var units: [UInt8] = []
        while let byte = current, byte >= 0x20 {
            position += 1
            switch byte {
            case UInt8(ascii: "\""):
                guard let text = String(validating: units, as: UTF8.self) else {
                    throw Failure(
                        position: start, reason: "not valid JSON: a string that is not UTF-8")
                }
                return text
            case UInt8(ascii: "\\"): units += String(try readEscape()).utf8
            default: units.append(byte)
            }
        }
        throw failure()
    }

    /// Reads the part of an escape after the backslash.
    private mutating func readEscape() throws(Failure) -> Unicode.Scalar {
        if take("u") { return try readEscapedScalar() }
        guard let scalar = current.flatMap({ Self.escapes[$0] }) else { throw failure() }
        position += 1
        return scalar
    }

    private static let escapes: [UInt8: Unicode.Scalar] = [
        UInt8(ascii: "\""): "\"", UInt8(ascii: "\\"): "\\", UInt8(ascii: "/"): "/",
        UInt8(ascii: "b"): "\u{8}", UInt8(ascii: "f"): "\u{C}", UInt8(ascii: "n"): "\n",
        UInt8(ascii: "r"): "\r", UInt8(ascii: "t"): "\t",
    ]

    /// Reads the digits after `\u`. If they are the first half of a surrogate pair, reads the
    /// second `\u` escape, too.
    private mutating func readEscapedScalar() throws(Failure) -> Unicode.Scalar {
        let start = position
        let first = try readFourDigits()
        if let scalar = Unicode.Scalar(first) { return scalar }
        if first < 0xDC00, take("\\") {
            guard take("u") else { throw failure() }
            let second = try readFourDigits()
            if 0xDC00...0xDFFF ~= second,
                let scalar = Unicode.Scalar(
                    0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00))
            {
                return scalar
            }
        }
        throw Failure(position: start, reason: "not valid JSON: half of a surrogate pair")
    }

    private mutating func readFourDigits() throws(Failure) -> UInt32 {
        var value: UInt32 = 0
        for _ in 0..<4 {
            guard let byte = current, let digit = UInt32(String(Unicode.Scalar(byte)), radix: 16)
            else { throw failure() }
            value = value << 4 | digit
            position += 1
        }
        return value
    }

    // MARK: Words and numbers

    /// A number, `true`, `false` or `null`.
    private mutating func readWordOrNumber() throws(Failure) -> JSONValue {
        let start = position
        while let byte = current, Self.isInWordOrNumber(byte) { position += 1 }
        switch String(decoding: bytes[start..<position], as: UTF8.self) {
        case "true": return .bool(true)
        case "false": return .bool(false)
        case "null": return .null
        case let word where Self.isNumber(word): return .real(Double(word) ?? .infinity)
        default:
            position = start
            throw failure()
        }
    }

    /// Whether a word is a number in JSON's grammar. `Double` accepts more: hexadecimal digits, a
    /// plus sign, leading zeros.
    private static func isNumber(_ word: String) -> Bool {
        var rest = Substring(word)
        func skipDigits() -> Int {
            let digits = rest.utf8.prefix { UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 }
            rest = rest.dropFirst(digits.count)
            return digits.count
        }
        if rest.first == "-" { rest.removeFirst() }
        let startsWithZero = rest.first == "0"
        let digitCount = skipDigits()
        guard digitCount == 1 || (digitCount > 1 && !startsWithZero) else { return false }
        if rest.first == "." {
            rest.removeFirst()
            guard skipDigits() > 0 else { return false }
        }
        if rest.first == "e" || rest.first == "E" {
            rest.removeFirst()
            if rest.first == "+" || rest.first == "-" { rest.removeFirst() }
            guard skipDigits() > 0 else { return false }
        }
        return rest.isEmpty
    }

    private static func isInWordOrNumber(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "+"), UInt8(ascii: "-"),
            UInt8(ascii: "."):
            true
        default: false
        }
    }
}
