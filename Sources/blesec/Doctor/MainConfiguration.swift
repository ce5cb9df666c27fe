/// bluetoothd's configuration file.
struct MainConfiguration {
    private var values: [String: [String: String]] = [:]
    /// The number of the first wrong line, counted from 1; nil if no line is wrong. If a line is
    /// wrong, bluetoothd ignores the whole file.
    private(set) var faultyLine: Int?

    /// Reads the file by the rules of GLib's key files. If any line is wrong, no setting counts.
    init(_ bytes: [UInt8]) {
        faultyLine = read(bytes)
        if faultyLine != nil { values = [:] }
    }

    /// Reads the lines up to the first wrong line, and returns the number of that line; nil if no
    /// line is wrong.
    private mutating func read(_ bytes: [UInt8]) -> Int? {
        var group: String?
        let lines = bytes.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
        for (index, line) in lines.enumerated() {
            let trimmedLine = Self.trimmed(line)
            if trimmedLine.isEmpty || trimmedLine.first == UInt8(ascii: "#") { continue }
            // GLib refuses a line that is not UTF-8.
            guard let text = String(validating: trimmedLine, as: UTF8.self) else {
                return index + 1
            }
            if text.hasPrefix("["), text.hasSuffix("]"), text.utf8.count > 2 {
                group = String(text.dropFirst().dropLast())
                continue
            }
            let parts = text.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            guard parts.count == 2, let group else { return index + 1 }
            let key = String(decoding: Self.trimmed(Array(parts[0].utf8)[...]), as: UTF8.self)
            let value = String(decoding: Self.trimmed(Array(parts[1].utf8)[...]), as: UTF8.self)
            guard !key.isEmpty else { return index + 1 }
            values[group, default: [:]][key] = value
        }
        return nil
    }

    private static func trimmed(_ line: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
        let isSpace: (UInt8) -> Bool = { $0 == 32 || (9...13).contains($0) }
        var line = line.drop(while: isSpace)
        while let last = line.last, isSpace(last) { line.removeLast() }
        return line
    }

    /// The value of a key; nil if the file does not set it.
    func text(_ group: String, _ key: String) -> String? { values[group]?[key] }

    /// A value that is a number, as bluetoothd reads it: hexadecimal after 0x, octal after another
    /// leading 0, and otherwise decimal. Nil if the file does not set the key, or if the value is
    /// no number.
    func number(_ group: String, _ key: String) -> Int? {
        guard let text = text(group, key) else { return nil }
        if text.hasPrefix("0x") || text.hasPrefix("0X") {
            return Int(text.dropFirst(2), radix: 16)
        }
        return Int(text, radix: text.hasPrefix("0") ? 8 : 10)
    }
}
