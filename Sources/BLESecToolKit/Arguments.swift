package import BLESecChannelCore

/// A command's words, sorted into options and operands.
///
/// `--option VALUE` and `--option=VALUE` mean the same, and so do `-o VALUE` and `-oVALUE`. Short
/// options without values may share a dash: `-ab` means `-a -b`. `--` ends the options. Long
/// options cannot be abbreviated, and only options marked as repeatable may be repeated.
package struct Arguments: Sendable {
    private var values: [Option: [String]] = [:]
    private let command: Command
    /// Whether `--help` was given; then the words after it are not checked.
    private(set) var wantsHelp = false
    /// Whether `--version` was given; then the words after it are not checked.
    private(set) var wantsVersion = false
    /// The words that are neither options nor their values.
    package private(set) var operands: [String] = []

    /// Parses the words after the command's name.
    init(_ words: [String], of command: Command) throws(ChannelError) {
        self.command = command
        var rest = words[...]
        var takesOptions = true
        while let word = rest.popFirst() {
            guard takesOptions, word.hasPrefix("-"), word != "-" else {
                try requireNoInvitation(word)
                operands.append(word)
                continue
            }
            switch word {
            case "--": takesOptions = false
            case "--help":
                wantsHelp = true
                return
            case "--version":
                wantsVersion = true
                return
            case _ where word.hasPrefix("--"): try readLong(word, &rest)
            default:
                try readShort(word, &rest)
                if wantsHelp || wantsVersion { return }
            }
        }
    }

    /// Throws if a word is an invitation to pair. An invitation contains a secret, so no error may
    /// quote it.
    private func requireNoInvitation(_ word: String) throws(ChannelError) {
        if Self.isInvitation(word) { throw usage(Self.misplacedInvitation) }
    }

    /// Whether a word is an invitation to pair.
    static func isInvitation(_ word: String) -> Bool { word.hasPrefix("blesec:pair?") }

    static let misplacedInvitation =
        "an invitation to pair, which contains a secret, goes after --uri of `blesec pair`"

    private mutating func readLong(
        _ word: String, _ rest: inout ArraySlice<String>
    ) throws(ChannelError) {
        let parts = word.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
        let name = String(parts[0])
        guard let option = command.options.first(where: { $0.name == name }) else {
            let names = command.options.map(\.name) + ["--help", "--version"]
            throw usage("unknown option `\(name)`\(Suggestion.text(for: name, among: names))")
        }
        try read(option, name, parts.count > 1 ? String(parts[1]) : nil, &rest)
    }

    /// Reads one or more short options after one dash. The letters after an option that takes a
    /// value are its value.
    private mutating func readShort(
        _ word: String, _ rest: inout ArraySlice<String>
    ) throws(ChannelError) {
        var letters = word.dropFirst()
        while let letter = letters.popFirst() {
            let name = "-\(letter)"
            if letter == "h" { return wantsHelp = true }
            if letter == "V" { return wantsVersion = true }
            guard let option = command.options.first(where: { $0.short == letter }) else {
                throw usage("unknown option `\(name)`" + (word.count > 2 ? " in `\(word)`" : ""))
            }
            guard option.valueName != nil, !letters.isEmpty else {
                try read(option, name, nil, &rest)
                continue
            }
            return try read(option, name, String(letters), &rest)
        }
    }

    /// Reads an option that was given as `name`. `attachedValue` is its value if the same word has
    /// one, as in `--option=VALUE`.
    private mutating func read(
        _ option: Option, _ name: String, _ attachedValue: String?,
        _ rest: inout ArraySlice<String>
    ) throws(ChannelError) {
        var value = attachedValue
        if let valueName = option.valueName {
            // A word that looks like an option probably means that the value was forgotten.
            if value == nil, let next = rest.first, option.takes(next) {
                value = next
                rest.removeFirst()
            }
            guard value != nil || option.isValueOptional else {
                throw usage("\(name) needs a value: `\(name) \(valueName)`")
            }
            guard value != "" else { throw usage("the value of \(name) is empty") }
            if let value, option.name != "--uri" { try requireNoInvitation(value) }
        } else if value != nil {
            throw usage("\(name) takes no value")
        }
        guard option.isRepeatable || values[option] == nil else {
            throw usage("\(name) is given twice")
        }
        // An option without a value, or given without its optional value, has an empty one here.
        values[option, default: []].append(value ?? "")
    }

    /// Throws if a required operand is missing, or if an operand is unexpected or empty.
    func requireOperands() throws(ChannelError) {
        let names = command.operands
        if operands.count < names.count(where: { !$0.hasPrefix("[") }) {
            throw usage("\(names[operands.count]) is missing")
        }
        let isRepeatable = names.last?.hasSuffix("...") ?? false
        if operands.count > names.count, !isRepeatable {
            throw usage("unexpected argument `\(operands[names.count])`")
        }
        if let index = operands.firstIndex(of: "") {
            let name = names[min(index, names.count - 1)].filter { !"[].".contains($0) }
            throw usage("\(name) is empty")
        }
    }

    /// Throws if there is an operand. The error says that the operand does not go with `option`.
    func requireNoOperands(with option: String) throws(ChannelError) {
        if let operand = operands.first {
            throw usage("unexpected argument `\(operand)` with \(option)")
        }
    }

    package func has(_ option: Option) -> Bool { storedValues(option) != nil }

    /// How often an option was given.
    func count(_ option: Option) -> Int { storedValues(option)?.count ?? 0 }

    /// The value of an option, or nil when it was not given.
    package func value(_ option: Option) -> String? { storedValues(option)?.first }

    /// All values of an option that may be repeated, in their order.
    package func values(_ option: Option) -> [String] { storedValues(option) ?? [] }

    /// The values of an option; nil when it was not given. An option without a value has an empty
    /// text for each time that it was given.
    private func storedValues(_ option: Option) -> [String]? {
        assert(
            !command.options.contains { $0.name == option.name && $0 != option },
            "the command has another option of this name, whose value would be ignored")
        return values[option]
    }

    /// The value of an option as a number; nil when the option was not given.
    ///
    /// - Parameters:
    ///   - range: the accepted numbers.
    ///   - takesSign: whether the number may begin with `+` or `-`.
    package func number<Number: FixedWidthInteger>(
        _ option: Option, in range: ClosedRange<Number>, takesSign: Bool = true
    ) throws(ChannelError) -> Number? {
        try numbers(option, in: range, takesSign: takesSign).first
    }

    /// All values of an option that may be repeated, as numbers, in their order.
    package func numbers<Number: FixedWidthInteger>(
        _ option: Option, in range: ClosedRange<Number>, takesSign: Bool = true
    ) throws(ChannelError) -> [Number] {
        var numbers: [Number] = []
        for text in values(option) {
            let hasOnlyDigits = text.utf8.allSatisfy { UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 }
            guard takesSign || hasOnlyDigits, let number = Number(text), range.contains(number)
            else {
                throw usage(
                    "\(option.name) is a number from \(range.lowerBound) to "
                        + "\(range.upperBound), and not `\(text)`")
            }
            numbers.append(number)
        }
        return numbers
    }

    /// The choice whose word is the value of an option; nil when the option was not given.
    package func choice<Choice>(
        _ option: Option, of choices: [(word: String, choice: Choice)]
    ) throws(ChannelError) -> Choice? {
        guard let word = value(option) else { return nil }
        guard let chosen = choices.first(where: { $0.word == word }) else {
            throw usage("\(option.name) is \(choices.map(\.word).alternatives), and not `\(word)`")
        }
        return chosen.choice
    }

    /// Throws when any of the options was given. In the error, `predicate` follows the option's
    /// name, such as `goes with an ENDPOINT`.
    package func refuse(_ options: [Option], _ predicate: String) throws(ChannelError) {
        for option in options where has(option) { throw usage("\(option.name) \(predicate)") }
    }

    /// A usage error that refers to `--help`.
    package func usage(_ reason: String) -> ChannelError {
        .usage("\(reason); see `\(command.name) --help`")
    }

    /// Throws when both options are given.
    package func exclude(_ first: Option, _ second: Option) throws(ChannelError) {
        if has(first), has(second) {
            throw usage("\(first.name) and \(second.name) exclude each other")
        }
    }
}

extension [String] {
    /// The words as a phrase for a sentence: `a, b or c`.
    package var alternatives: String {
        count < 2 ? joined() : dropLast().joined(separator: ", ") + " or " + self[count - 1]
    }
}
