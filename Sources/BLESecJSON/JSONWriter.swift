/// Writes JSON values as text (RFC 8259).
package enum JSONWriter {
    /// The value on one line. Characters that control a terminal are escaped, so that the line can
    /// be shown unchanged.
    package static func line(_ value: JSONValue) -> String { text(value, comma: ", ", colon: ": ") }

    /// The value on one line, without spaces.
    package static func compact(_ value: JSONValue) -> String {
        text(value, comma: ",", colon: ":")
    }

    /// The value on several lines, indented. An array or object that contains neither arrays nor
    /// objects stays on one line.
    package static func document(_ value: JSONValue) -> String { lines(value, indent: "") + "\n" }

    private static func lines(_ value: JSONValue, indent: String) -> String {
        let innerIndent = indent + "  "
        switch value {
        case .array(let items) where items.contains(where: \.isNested):
            let texts = items.map { innerIndent + lines($0, indent: innerIndent) }
            return "[\n" + texts.joined(separator: ",\n") + "\n\(indent)]"
        case .object(let members) where members.contains(where: { $0.value.isNested }):
            let texts = members.map { name, value in
                "\(innerIndent)\(quote(name)): \(lines(value, indent: innerIndent))"
            }
            return "{\n" + texts.joined(separator: ",\n") + "\n\(indent)}"
        case .array, .object, .string, .number, .real, .bool, .null: return line(value)
        }
    }

    private static func text(_ value: JSONValue, comma: String, colon: String) -> String {
        switch value {
        case .string(let string): return quote(string)
        case .number(let number): return String(number)
        case .real(let number): return number.isFinite ? rounded(number) : "null"
        case .bool(let bool): return bool ? "true" : "false"
        case .array(let items):
            let texts = items.map { text($0, comma: comma, colon: colon) }
            return "[" + texts.joined(separator: comma) + "]"
        case .object(let members):
            let texts = members.map { name, value in
                quote(name) + colon + text(value, comma: comma, colon: colon)
            }
            return "{" + texts.joined(separator: comma) + "}"
        case .null: return "null"
        }
    }

    /// The text of a finite number, rounded as ``JSONValue/real(_:)`` says.
    private static func rounded(_ number: Double) -> String {
        // The least power of ten with which the whole part has six digits or more; at most that for
        // nine decimals.
        var scale = 1.0
        while abs(number) * scale < 100_000, scale < 1e9 { scale *= 10 }
        return "\((number * scale).rounded() / scale)"
    }

    private static func quote(_ string: String) -> String {
        if string.utf8.allSatisfy({ 0x20..<0x7F ~= $0 && $0 != 0x22 && $0 != 0x5C }) {
            return "\"\(string)\""
        }
        var text = "\""
        for scalar in string.unicodeScalars {
            switch scalar {
            case "\"": text += "\\\""
            case "\\": text += "\\\\"
            case _ where scalar.isShown: text.unicodeScalars.append(scalar)
            default:
                for unit in scalar.utf16 {
                    let digits = String(unit, radix: 16)
                    text += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
                }
            }
        }
        return text + "\""
    }
}

extension Unicode.Scalar {
    /// Whether a terminal can show the character unchanged. False for control characters, for
    /// characters that change how others are shown, and for separators of lines and paragraphs.
    package var isShown: Bool {
        switch properties.generalCategory {
        case .control, .format, .lineSeparator, .paragraphSeparator: false
        default: true
        }
    }
}

extension JSONValue {
    /// Whether the value is an array or an object.
    fileprivate var isNested: Bool {
        switch self {
        case .array, .object: true
        case .string, .number, .real, .bool, .null: false
        }
    }
}
