/// The options on the command line of a running bluetoothd.
struct BluetoothdArguments {
    /// The name or path with which the program was started.
    let program: String
    /// The path of the configuration file: the value of `--configfile`, or the default.
    private(set) var configurationPath = "/etc/bluetooth/main.conf"
    /// Whether `--experimental` is given.
    private(set) var isExperimental = false
    /// The patterns of `--plugin`: only matching plugins run. Nil without the option.
    private var includedPatterns: [String]?
    /// The patterns of `--noplugin`: no matching plugin runs.
    private(set) var excludedPatterns: [String] = []
    /// The options other than `--noplugin`.
    private var others: [String] = []

    /// Reads the words as bluetoothd does: by the rules of GLib's option parser.
    init(_ words: [String]) {
        program = words.first ?? "bluetoothd"
        var rest = words.dropFirst()
        while let word = rest.popFirst() {
            guard word.hasPrefix("-"), word != "-" else { continue }
            if word == "--" { break }
            if word.hasPrefix("--") {
                readLong(word, &rest)
            } else {
                readShort(word, &rest)
            }
        }
    }

    private mutating func readLong(_ word: String, _ rest: inout ArraySlice<String>) {
        let parts = word.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
        switch parts[0] {
        case "--plugin", "--noplugin", "--configfile":
            let value = parts.count > 1 ? String(parts[1]) : rest.popFirst() ?? ""
            set(String(parts[0]), value)
        case "--debug", "--kernel":
            others.append(word)
            if parts.count == 1, let value = Self.takeOptionalValue(&rest) { others.append(value) }
        default:
            if word == "--experimental" { isExperimental = true }
            others.append(word)
        }
    }

    /// Takes the next word as the value of an option whose value is optional, unless the word is
    /// empty or an option itself.
    private static func takeOptionalValue(_ rest: inout ArraySlice<String>) -> String? {
        guard let next = rest.first, !next.isEmpty, !next.hasPrefix("-") else { return nil }
        return rest.popFirst()
    }

    private mutating func readShort(_ word: String, _ rest: inout ArraySlice<String>) {
        var letters = word.dropFirst()
        var kept = "-"
        var optionalValue: String?
        while let letter = letters.popFirst() {
            switch letter {
            case "p", "P", "f":
                let names: [Character: String] = [
                    "p": "--plugin", "P": "--noplugin", "f": "--configfile",
                ]
                set(names[letter] ?? "", rest.popFirst() ?? "")
            case "d", "K":
                kept.append(letter)
                optionalValue = Self.takeOptionalValue(&rest)
            default:
                if letter == "E" { isExperimental = true }
                kept.append(letter)
            }
        }
        if kept != "-" { others.append(kept) }
        if let optionalValue { others.append(optionalValue) }
    }

    private mutating func set(_ name: String, _ value: String) {
        let patterns = value.split { $0 == "," || $0 == " " }.map(String.init)
        switch name {
        case "--plugin":
            includedPatterns = patterns
            others.append("--plugin=" + value)
        case "--noplugin": excludedPatterns = patterns
        default:
            configurationPath = value
            others.append("--configfile=" + value)
        }
    }

    /// Whether the options let a plugin of this name run.
    func runs(_ plugin: String) -> Bool {
        if excludedPatterns.contains(where: { Self.matches($0, plugin) }) { return false }
        return includedPatterns?.contains { Self.matches($0, plugin) } ?? true
    }

    /// The command line that also excludes `plugins`. Nil if it would have characters that systemd
    /// reads differently, or if the program's path is not absolute.
    func commandLine(leavingOut plugins: [String]) -> String? {
        let patterns = (excludedPatterns + plugins).joined(separator: ",")
        let words = [program] + others + ["--noplugin=" + patterns]
        let isPlain = words.allSatisfy { word in
            word.utf8.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"):
                    true
                default: "-_=,./:*?".utf8.contains(byte)
                }
            }
        }
        return isPlain && program.hasPrefix("/") ? words.joined(separator: " ") : nil
    }

    /// Whether a pattern with `*` and `?` matches the whole name.
    private static func matches(_ pattern: String, _ name: String) -> Bool {
        // `row[n]` says whether the symbols read so far match the first n letters of the name.
        let letters = Array(name.utf8)
        var row = [true] + letters.map { _ in false }
        // Symbols after the first 1,000 are ignored, which limits the time for a very long pattern.
        for symbol in pattern.utf8.prefix(1_000) {
            var next = row.map { _ in false }
            if symbol == UInt8(ascii: "*") { next[0] = row[0] }
            for (index, letter) in letters.enumerated() {
                next[index + 1] =
                    symbol == UInt8(ascii: "*")
                    ? row[index + 1] || next[index]
                    : row[index] && (symbol == letter || symbol == UInt8(ascii: "?"))
            }
            row = next
        }
        return row.last ?? false
    }
}
