/// The little JSON that the tool writes (RFC 8259).
enum JSON {
    enum Value: Sendable {
        case string(String)
        case number(Int)
    }

    /// An object on one line, with its members in the given order.
    static func object(_ members: [(String, Value)]) -> String {
        let texts = members.map { name, value in "\(quote(name)): \(text(value))" }
        return "{" + texts.joined(separator: ", ") + "}"
    }

    private static func text(_ value: Value) -> String {
        switch value {
        case .string(let string): quote(string)
        case .number(let number): String(number)
        }
    }

    private static func quote(_ string: String) -> String {
        var text = "\""
        for scalar in string.unicodeScalars {
            switch scalar {
            case "\"": text += "\\\""
            case "\\": text += "\\\\"
            case _ where scalar.value < 0x20 || (0x7F...0x9F).contains(scalar.value):
                let digits = String(scalar.value, radix: 16)
                text += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
            default: text.unicodeScalars.append(scalar)
            }
        }
        return text + "\""
    }
}
