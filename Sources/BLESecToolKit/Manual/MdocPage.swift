/// A manual page in the language mdoc(7), which `man` reads.
struct MdocPage {
    private(set) var text: String

    /// The width at which lines of prose wrap in the source, in characters.
    private static let width = 78

    /// Writes the source of `page`.
    ///
    /// - Parameter date: the date that the page shows, such as `November 24, 2026`.
    init(_ page: ManualPage, date: String) {
        text = ".Dd \(date)\n.Dt \(page.title.uppercased()) \(page.chapter)\n.Os\n"
        text += ".Sh NAME\n.Nm \(Self.argument(page.title))\n.Nd \(Self.escaped(page.summary))\n"
        for section in page.sections { add(section) }
        guard !page.references.isEmpty else { return }
        text += ".Sh SEE ALSO\n"
        let sorted = page.references.sorted { ($0.chapter, $0.name) < ($1.chapter, $1.name) }
        for (index, reference) in sorted.enumerated() {
            let comma = index + 1 < sorted.count ? " ," : ""
            text += ".Xr \(Self.argument(reference.name)) \(reference.chapter)\(comma)\n"
        }
    }

    private mutating func add(_ section: ManualPage.Section) {
        text += ".Sh \(section.title)\n"
        var isInList = false
        for (index, block) in section.blocks.enumerated() {
            if isInList != block.isListed {
                text += block.isListed ? ".Bl -tag -width Ds\n" : ".El\n"
                isInList = block.isListed
            }
            switch block {
            case .paragraph(let content):
                if index > 0 { text += ".Pp\n" }
                addProse(content)
            case .entry(let term, let description):
                text += ".It " + Self.arguments(term) + "\n"
                addProse(description)
            case .synopsis(let command, let parameters):
                text += ".Nm \(Self.arguments(command))\n"
                for parameter in parameters { text += Self.line(parameter) }
            case .option(let option):
                let short = option.short.map { "Fl \($0) , " } ?? ""
                text += ".It \(short)" + Self.arguments(of: option) + "\n"
                addProse(option.help)
            case .example(let command, let purpose):
                if index > 0 { text += ".Pp\n" }
                addProse(purpose)
                text += ".Dl \(Self.arguments(command))\n"
            }
        }
        if isInList { text += ".El\n" }
    }

    /// The line of source for a parameter of a synopsis.
    private static func line(_ parameter: ManualPage.Parameter) -> String {
        switch parameter {
        case .operand(let name):
            let isOptional = name.hasPrefix("[")
            let dots = name.hasSuffix("...") ? " Ns ..." : ""
            let bare = name.filter { !"[].".contains($0) }
            return (isOptional ? ".Op Ar " : ".Ar ") + argument(bare) + dots + "\n"
        case .option(let option) where option == .help: return ".Fl \\-help\n"
        case .option(let option):
            return ".Op " + arguments(of: option) + (option.isRepeatable ? " Ns ..." : "") + "\n"
        case .options(let option, let needed):
            return ".Op \(arguments(of: option)) \(arguments(of: needed))\n"
        }
    }

    private static func arguments(of option: Option) -> String {
        // `Fl` writes the first of the two dashes.
        let flag =
            "Fl \\-" + option.name.dropFirst(2).map { $0 == "-" ? "\\-" : String($0) }.joined()
        guard let value = option.valueName else { return flag }
        return "\(flag) \(option.isValueOptional ? "Op Ar" : "Ar") \(argument(value))"
    }

    /// Adds prose, in which backquotes enclose literals. Each sentence begins a line, as mdoc(7)
    /// recommends.
    private mutating func addProse(_ content: String) {
        var line = ""
        for (index, part) in content.split(separator: "`", omittingEmptySubsequences: false)
            .enumerated()
        {
            guard index % 2 == 1 else {
                addWords(String(part), followsLiteral: index > 0, to: &line)
                continue
            }
            end(&line)
            line = ".Ql " + Self.arguments(String(part))
        }
        end(&line)
    }

    /// Adds words to `line`. If `followsLiteral`, `line` is the macro line of a literal, and
    /// punctuation directly after the literal stays on that line.
    private mutating func addWords(
        _ words: String, followsLiteral: Bool, to line: inout String
    ) {
        var words = words[...]
        if followsLiteral {
            // Letters directly after a literal, such as a plural's `s`, are joined to the literal.
            let joined = words.prefix { $0 != " " }
            words = words.dropFirst(joined.count)
            if joined.allSatisfy({ ".,;:?!)".contains($0) }) {
                line += joined.map { " \($0)" }.joined()
            } else {
                line += " Ns " + Self.argument(String(joined))
            }
            end(&line)
        }
        for word in words.split(separator: " ") {
            let word = Self.escaped(String(word))
            if !line.isEmpty, line.count + 1 + word.count > Self.width { end(&line) }
            line += line.isEmpty ? word : " " + word
            let bare = word.last == ")" ? word.dropLast() : word[...]
            if let last = bare.last, ".?!".contains(last) { end(&line) }
        }
    }

    /// Adds `line` to the text, and empties `line`. Does nothing if `line` is empty.
    private mutating func end(_ line: inout String) {
        guard !line.isEmpty else { return }
        // A dot or an apostrophe at the beginning of a line of text would begin a macro.
        let isMacro = line.hasPrefix(".Ql ")
        text +=
            (!isMacro && (line.hasPrefix(".") || line.hasPrefix("'")) ? "\\&" : "") + line + "\n"
        line = ""
    }

    /// The words of `text`, each as an argument of a macro.
    private static func arguments(_ text: String) -> String {
        text.split(separator: " ").map { argument(String($0)) }.joined(separator: " ")
    }

    /// One argument of a macro. The zero-width `\&` in front keeps mdoc from reading the argument
    /// as a macro or a delimiter. `\&` at the end keeps it from reading the last character as a
    /// delimiter.
    private static func argument(_ word: String) -> String {
        let isPunctuation = word.allSatisfy { ".,:;()[]?!|".contains($0) }
        let looksLikeMacro = word.count <= 3 && word.first?.isUppercase ?? false
        let endsWithDelimiter = !isPunctuation && word.last.map { ".,:;)]?!".contains($0) } ?? false
        return (isPunctuation || looksLikeMacro ? "\\&" : "") + escaped(word, isLiteral: true)
            + (endsWithDelimiter ? "\\&" : "")
    }

    /// The text, with the characters escaped that are special in mdoc. Dashes become the minus
    /// signs of options if the text is literal or begins with a dash.
    private static func escaped(_ text: String, isLiteral: Bool = false) -> String {
        let usesMinusSigns = isLiteral || text.hasPrefix("-")
        var result = ""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\\": result += "\\e"
            case "-" where usesMinusSigns: result += "\\-"
            case "\"" where isLiteral: result += "\\(dq"
            case "'" where isLiteral: result += "\\(aq"
            case "`": result += "\\(ga"
            case "~": result += "\\(ti"
            case "^": result += "\\(ha"
            case _ where scalar.isASCII: result.unicodeScalars.append(scalar)
            default:
                result += "\\[u" + String(scalar.value, radix: 16, uppercase: true).leftPadded + "]"
            }
        }
        return result
    }
}

extension String {
    /// The hexadecimal number with at least four digits, as groff's names of characters need.
    fileprivate var leftPadded: String { String(repeating: "0", count: max(0, 4 - count)) + self }
}

extension ManualPage.Block {
    /// Whether the block belongs in a list of terms.
    fileprivate var isListed: Bool {
        switch self {
        case .entry, .option: true
        case .paragraph, .synopsis, .example: false
        }
    }
}
