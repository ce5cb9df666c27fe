/// JSON values that the tools write (RFC 8259).
package enum JSON {
    /// A JSON value; an object keeps the order of its members.
    package enum Value: Sendable {
        case string(String)
        case number(Int)
        /// Written with up to six significant digits; infinity and NaN become `null`.
        case real(Double)
        case bool(Bool)
        case array([Value])
        case object([(String, Value)])
        case null
    }

    /// An object on one line, with its members in the given order. Characters that control a
    /// terminal are escaped, so that the line can be shown unchanged.
    package static func object(_ members: [(String, Value)]) -> String {
        let texts = members.map { name, value in "\(quote(name)): \(text(value))" }
        return "{" + texts.joined(separator: ", ") + "}"
    }

    /// A document of several lines: nested values are indented, and arrays and objects of plain
    /// values stay on one line.
    package static func document(_ value: Value) -> String { lines(value, indent: "") + "\n" }

    private static func lines(_ value: Value, indent: String) -> String {
        let deeper = indent + "  "
        switch value {
        case .array(let items) where items.contains(where: \.isNested):
            let texts = items.map { deeper + lines($0, indent: deeper) }
            return "[\n" + texts.joined(separator: ",\n") + "\n\(indent)]"
        case .object(let members) where members.contains(where: { $0.1.isNested }):
            let texts = members.map { name, value in
                "\(deeper)\(quote(name)): \(lines(value, indent: deeper))"
            }
            return "{\n" + texts.joined(separator: ",\n") + "\n\(indent)}"
        case .array, .object, .string, .number, .real, .bool, .null: return text(value)
        }
    }

    private static func text(_ value: Value) -> String {
        switch value {
        case .string(let string): quote(string)
        case .number(let number): String(number)
        case .real(let number): number.isFinite ? rounded(number) : "null"
        case .bool(let bool): bool ? "true" : "false"
        case .array(let items): "[" + items.map(text).joined(separator: ", ") + "]"
        case .object(let members): object(members)
        case .null: "null"
        }
    }

    private static func rounded(_ number: Double) -> String {
        var scale = 1.0
        while abs(number) * scale < 100_000, scale < 1e9 { scale *= 10 }
        return "\((number * scale).rounded() / scale)"
    }

    private static func quote(_ string: String) -> String {
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
    /// Whether a terminal can show the character unchanged: it is no control character, no
    /// character that changes how others are shown, and no line separator.
    package var isShown: Bool {
        switch properties.generalCategory {
        case .control, .format, .lineSeparator, .paragraphSeparator: false
        default: true
        }
    }
}

extension JSON.Value {
    /// Whether the value is an array or an object.
    fileprivate var isNested: Bool {
        switch self {
        case .array, .object: true
        case .string, .number, .real, .bool, .null: false
        }
    }
}
