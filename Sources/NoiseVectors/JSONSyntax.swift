/// Finds where a text stops being JSON (RFC 8259).
struct JSONSyntax {
    private enum Expected {
        case value, valueOrEnd, key, keyOrEnd, colon, commaOrEnd
    }

    private let bytes: [UInt8]
    private var position = 0

    private init(_ bytes: [UInt8]) { self.bytes = bytes }

    /// Where the first byte stands that cannot be there, as line and column from 1 on, and whether
    /// it is the end of the text; nil if the grammar has nothing against it.
    static func firstError(in bytes: [UInt8]) -> (line: Int, column: Int, isEnd: Bool)? {
        var syntax = JSONSyntax(bytes)
        guard let error = syntax.firstError() else { return nil }
        let before = bytes[..<error]
        let line = before.count { $0 == UInt8(ascii: "\n") } + 1
        let start = before.lastIndex(of: UInt8(ascii: "\n")).map { $0 + 1 } ?? 0
        return (line, error - start + 1, error == bytes.count)
    }

    private mutating func firstError() -> Int? {
        var open: [UInt8] = []
        var expected = Expected.value
        while true {
            skip(while: { [0x20, 0x09, 0x0A, 0x0D].contains($0) })
            guard position < bytes.count else {
                return expected == .commaOrEnd && open.isEmpty ? nil : position
            }
            let byte = bytes[position]
            switch (expected, byte) {
            case (.valueOrEnd, UInt8(ascii: "]")), (.keyOrEnd, UInt8(ascii: "}")):
                open.removeLast()
                expected = .commaOrEnd
                position += 1
            case (.commaOrEnd, UInt8(ascii: ",")) where !open.isEmpty:
                expected = open.last == UInt8(ascii: "{") ? .key : .value
                position += 1
            // The closing ones are two behind the opening ones in ASCII.
            case (.commaOrEnd, _) where open.last.map { $0 + 2 } == byte:
                open.removeLast()
                position += 1
            case (.colon, UInt8(ascii: ":")):
                expected = .value
                position += 1
            case (.key, UInt8(ascii: "\"")), (.keyOrEnd, UInt8(ascii: "\"")):
                guard skipString() else { return position }
                expected = .colon
            case (.value, UInt8(ascii: "{")), (.valueOrEnd, UInt8(ascii: "{")):
                open.append(byte)
                expected = .keyOrEnd
                position += 1
            case (.value, UInt8(ascii: "[")), (.valueOrEnd, UInt8(ascii: "[")):
                open.append(byte)
                expected = .valueOrEnd
                position += 1
            case (.value, _), (.valueOrEnd, _):
                guard byte == UInt8(ascii: "\"") ? skipString() : skipScalar() else {
                    return position
                }
                expected = .commaOrEnd
            case (.key, _), (.keyOrEnd, _), (.colon, _), (.commaOrEnd, _): return position
            }
        }
    }

    private mutating func skip(while isPart: (UInt8) -> Bool) {
        while position < bytes.count, isPart(bytes[position]) { position += 1 }
    }

    /// Goes behind the string that begins here, or to the byte that cannot be in it.
    private mutating func skipString() -> Bool {
        position += 1
        while position < bytes.count, bytes[position] >= 0x20 {
            switch bytes[position] {
            case UInt8(ascii: "\""):
                position += 1
                return true
            case UInt8(ascii: "\\"):
                position += 1
                guard position < bytes.count, "\"\\/bfnrtu".utf8.contains(bytes[position]) else {
                    return false
                }
                position += 1
            default: position += 1
            }
        }
        return false
    }

    /// Goes behind the number or word that begins here, or stays if it is none.
    private mutating func skipScalar() -> Bool {
        let start = position
        skip(while: { byte in
            Self.isLetter(byte) || UInt8(ascii: "0")...UInt8(ascii: "9") ~= byte
                || "+-.".utf8.contains(byte)
        })
        let word = String(decoding: bytes[start..<position], as: UTF8.self)
        if ["true", "false", "null"].contains(word) { return true }
        // `Double` takes hexadecimal digits, `inf` and `nan` as well.
        let isDecimal = word.utf8.allSatisfy {
            !Self.isLetter($0) || $0 | 0x20 == UInt8(ascii: "e")
        }
        guard isDecimal, Double(word) != nil else {
            position = start
            return false
        }
        return true
    }

    private static func isLetter(_ byte: UInt8) -> Bool {
        UInt8(ascii: "a")...UInt8(ascii: "z") ~= byte | 0x20
    }
}
