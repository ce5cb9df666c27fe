internal import BLESec
internal import Glibc

/// A command-line tool, or a group of a tool's commands.
package struct Program: Sendable {
    /// The words that start the tool; for a group of commands, the last word is the group's.
    let name: String
    /// A summary in a few words, without a full stop.
    let summary: String
    /// The description on the tool's own page, in paragraphs.
    let description: [String]
    /// The commands by their words, in the order of `--help`. A command is made when its word is
    /// given or a page lists it, so that a tool starts without making all of its commands.
    private let commands: KeyValuePairs<String, @Sendable () -> Command>
    /// Groups of commands, listed after the commands.
    private let groups: KeyValuePairs<String, @Sendable () -> Program>
    /// The command that runs when none is named; nil if a command is required.
    private let defaultCommand: Command?
    /// Words, besides options, with which the default command's arguments may begin.
    private let wordsForDefaultCommand: [String]

    /// The page about concepts; nil if there is none.
    private let guide: ManualPage?

    /// The version. The package and the manuals take it from this line.
    package static let version = "0.1.0"

    package init(
        name: String, summary: String, description: [String],
        commands: KeyValuePairs<String, @Sendable () -> Command>,
        groups: KeyValuePairs<String, @Sendable () -> Program> = [:],
        defaultCommand: Command? = nil, wordsForDefaultCommand: [String] = [],
        guide: ManualPage? = nil
    ) {
        self.name = name
        self.summary = summary
        self.description = description
        self.commands = commands
        self.groups = groups
        self.defaultCommand = defaultCommand
        self.wordsForDefaultCommand = wordsForDefaultCommand
        self.guide = guide
    }

    /// Runs the command that the command line names, and ends the process.
    package func main() -> Never {
        // With these signals ignored, the process goes on: a write to a closed pipe or socket fails
        // with EPIPE, and a write beyond the limit on the size of a file fails with EFBIG.
        signal(SIGPIPE, SIG_IGN)
        signal(SIGXFSZ, SIG_IGN)
        StandardDescriptors.claim()
        DescriptorLimit.raise()
        Diagnostics.program = name
        let call: Call
        do throws(ChannelError) {
            // Pages and usage errors are printed at once, before any thread starts.
            let words = try Self.words(of: CommandLine.arguments)
            guard let found = try self.call(of: words) else { Self.endProcess(.success) }
            call = found
        } catch {
            Self.endProcess(Self.status(of: error))
        }
        // Before any other thread starts, so that only one thread handles signals.
        Signals.start()
        // On the loop of the channels, so that calls to them do not change threads.
        Task(executorPreference: EventLoop.shared) {
            Self.endProcess(await Self.status(of: call))
        }
        while true { pause() }
    }

    /// The words after the tool's name, which is the first of the process's arguments.
    ///
    /// - Throws: `noSuchFile` when there are no arguments, not even the name.
    static func words(of arguments: [String]) throws(ChannelError) -> [String] {
        guard !arguments.isEmpty else {
            // Swift's runtime reads them from `/proc/self/cmdline`.
            throw ChannelError(
                .noSuchFile, "the arguments cannot be read: /proc is not mounted")
        }
        return Array(arguments.dropFirst())
    }

    /// Ends the process, once the reader of standard error has taken all lines. The wait for the
    /// reader is limited (``StandardError/drain()``); lines that still wait at its end are lost.
    private static func endProcess(_ status: ExitStatus) -> Never {
        // The command is over: a signal ends the process, even while `drain` waits for the reader.
        _ = Signals.add { number in _exit(128 + number) }
        StandardError.drain()
        // Not `exit`: OpenSSL's cleanup must not run while other threads still use OpenSSL.
        _exit(status.rawValue)
    }

    /// A command and its arguments.
    private struct Call: Sendable {
        let command: Command
        let arguments: Arguments
    }

    private static func status(of call: Call) async -> ExitStatus {
        do throws(ChannelError) {
            try await call.command.run(call.arguments)
            return .success
        } catch {
            return status(of: error)
        }
    }

    private static func status(of error: ChannelError) -> ExitStatus {
        // An error without a reason is not printed: the command's output has reported it.
        if !error.reason.isEmpty { Diagnostics.print(error) }
        return ExitStatus(error)
    }

    /// The command to run; nil if the words request a page or the version, which is then printed.
    private func call(of words: [String]) throws(ChannelError) -> Call? {
        let rest = Array(words.dropFirst())
        if let make = commands.first(where: { $0.key == words.first })?.value {
            return try call(make(), rest)
        }
        if let make = groups.first(where: { $0.key == words.first })?.value {
            return try make().call(of: rest)
        }
        if let builtIn = builtIns.first(where: { $0.word == words.first })?.command {
            return try call(builtIn, rest)
        }
        if let defaultCommand, words.first.map(beginsDefaultArguments) ?? true {
            return try call(defaultCommand, words)
        }
        let commandWords = commands.map(\.key) + groups.map(\.key)
        guard let word = words.first else {
            throw .usage("a command is missing: \(commandWords.alternatives); see `\(name) --help`")
        }
        switch word {
        case "--help", "-h":
            try page.print()
            return nil
        case "--version", "-V":
            try printVersion()
            return nil
        default: break
        }
        throw unknown(word, among: commandWords + wordsForDefaultCommand + builtIns.map(\.word))
    }

    /// The error for a first word that is neither a command nor an option of the tool.
    private func unknown(_ word: String, among words: [String]) -> ChannelError {
        if Arguments.isInvitation(word) { return .usage(Arguments.misplacedInvitation) }
        let isOption = word.hasPrefix("-")
        let names = isOption ? ["--help", "--version"] : words
        var reason = "unknown \(isOption ? "option" : "command") `\(word)`"
        let commandsWithOption = commands.filter {
            $0.value().options.contains { $0.isNamed(word) }
        }.map(\.key)
        if isOption, let command = commandsWithOption.first {
            reason = "\(word) goes after a command, such as `\(name) \(command) \(word)`"
        } else {
            reason += Suggestion.text(for: word, among: names)
        }
        return .usage("\(reason); see `\(name) --help`")
    }

    private func beginsDefaultArguments(_ word: String) -> Bool {
        word.hasPrefix("-") || wordsForDefaultCommand.contains(word)
    }

    /// The call of `command` with the words after its name; nil if they request the command's page
    /// or the version, which is then printed.
    private func call(
        _ command: Command, _ words: [String]
    ) throws(ChannelError) -> Call? {
        // Before the words are parsed, since `--json` also holds for errors of the parser.
        Diagnostics.isJSON =
            command.options.contains(.json) && words.prefix { $0 != "--" }.contains("--json")
        let arguments = try Arguments(words, of: command)
        if arguments.wantsHelp {
            try ManualPage(command).print()
            return nil
        }
        if arguments.wantsVersion {
            try printVersion()
            return nil
        }
        try Self.requireUTF8()
        if command.options.contains(.verbose) {
            try arguments.exclude(.verbose, .quiet)
            Diagnostics.verbosity = arguments.has(.quiet) ? -1 : arguments.count(.verbose)
        }
        try arguments.requireOperands()
        return Call(command: command, arguments: arguments)
    }

    /// Throws if an argument of the process is not UTF-8: `CommandLine.arguments` replaces bytes of
    /// such an argument, which would then name another file.
    private static func requireUTF8() throws(ChannelError) {
        for (index, word) in CommandLine.arguments.enumerated().dropFirst() {
            guard let bytes = unsafe CommandLine.unsafeArgv[index],
                unsafe String(validatingCString: bytes) == nil
            else { continue }
            throw .usage("argument \(index) is not UTF-8: `\(word)`")
        }
    }

    private func printVersion() throws(ChannelError) {
        try StandardOutput.print("\(name) \(Self.version)\n")
    }

    /// The commands and groups, each with its summary.
    var commandSummaries: [(word: String, summary: String)] {
        commands.map { ($0.key, $0.value().summary) } + groups.map { ($0.key, $0.value().summary) }
            + builtIns.map { ($0.word, $0.command.summary) }
    }

    /// The exit statuses of all commands.
    var statuses: [ExitStatus] {
        let own = commands.flatMap { $0.value().statuses }
        let all = Set(own + groups.flatMap { $0.value().statuses })
        return ExitStatus.allCases.filter(all.contains)
    }
}

extension Program {
    /// The page that `--help` prints.
    var page: ManualPage {
        defaultCommand.map { ManualPage($0) } ?? ManualPage(self)
    }

    /// All pages of the tool.
    private var pages: [ManualPage] {
        [page] + (guide.map { [$0] } ?? []) + commands.map { ManualPage($0.value()) }
            + builtIns.map { ManualPage($0.command) } + groups.flatMap { $0.value().pages }
    }

    /// Whether this is a group of a tool's commands, and not a whole tool.
    private var isGroup: Bool { name.contains(" ") }

    /// The commands that every tool has.
    private var builtIns: [(word: String, command: Command)] {
        isGroup ? [] : [("help", helpCommand), ("completion", completionCommand)]
    }

    private static let mdoc = Option(
        name: "--mdoc", value: "DIR",
        help: "Write all pages into the folder DIR as sources for `man`, in the language mdoc(7). "
            + "The pages have the date of SOURCE_DATE_EPOCH, if it is set, and otherwise today's.")

    private var helpCommand: Command {
        let concepts = guide.map { " `\(name) help concepts` shows \($0.name)(7)." } ?? ""
        return Command(
            name: "\(name) help", summary: "show the manual page of a command",
            operands: ["[COMMAND]..."], options: [Self.mdoc],
            description: [
                "Shows the page of COMMAND, as `\(name) COMMAND --help` does, or without COMMAND the "
                    + "page of \(name)." + concepts
            ],
            examples: [
                "\(name) help": "Show the list of commands.",
                "\(name) help --mdoc man": "Write the pages into the folder man.",
            ], statuses: [.success, .usage, .cannotCreate, .inputOutput]
        ) { arguments throws(ChannelError) in
            if let folder = arguments.value(Self.mdoc) {
                try arguments.requireNoOperands(with: "--mdoc")
                return try self.writePages(into: folder)
            }
            try self.page(of: arguments.operands[...]).print()
        }
    }

    private var completionCommand: Command {
        Command(
            name: "\(name) completion", summary: "print a script that completes words in a shell",
            operands: ["bash"], options: [],
            description: [
                "Prints a script for bash. With it, the Tab key completes commands, options, "
                    + "adapters, names of remembered peers and files. Debian's package installs it."
            ],
            examples: [
                "source <(\(name) completion bash)": "Complete words in this shell from now on."
            ], statuses: [.success, .usage, .inputOutput]
        ) { arguments throws(ChannelError) in
            guard arguments.operands == ["bash"] else {
                throw arguments.usage(
                    "there is a script for bash only, not `\(arguments.operands[0])`")
            }
            try StandardOutput.print(BashCompletion(self).text)
        }
    }

    /// The page of the command, group or guide that `words` name.
    private func page(of words: ArraySlice<String>) throws(ChannelError) -> ManualPage {
        guard let word = words.first else { return page }
        let rest = words.dropFirst()
        if let group = groups.first(where: { $0.key == word })?.value {
            return try group().page(of: rest)
        }
        if let unexpected = rest.first {
            let page = isGroup ? "\(name) --help" : "\(name) help --help"
            throw .usage("unexpected argument `\(unexpected)`; see `\(page)`")
        }
        if let guide, word == "concepts" { return guide }
        if let command = commands.first(where: { $0.key == word })?.value {
            return ManualPage(command())
        }
        if let command = builtIns.first(where: { $0.word == word })?.command {
            return ManualPage(command)
        }
        let words = commandSummaries.map(\.word) + (guide == nil ? [] : ["concepts"])
        throw .usage(
            "there is no page on `\(word)`\(Suggestion.text(for: word, among: words)); "
                + "see `\(name) --help`")
    }

    /// Writes each page into a file of its own, such as `blesec-listen.1`.
    private func writePages(into folder: String) throws(ChannelError) {
        let date = try PageDate.now.description
        let pages = pages
        for var page in pages {
            // The tool's page refers to every other page. Each of these refers to the tool's page
            // and to the guide.
            let others =
                page.title == name
                ? pages : pages.filter { [name, guide?.name].contains($0.title) }
            page.references = others.filter { ($0.title, $0.chapter) != (page.title, page.chapter) }
                .map { ($0.title, $0.chapter) }
            let path = "\(folder)/\(page.title).\(page.chapter)"
            let flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC
            let descriptor = unsafe open(path, flags, 0o644)
            guard descriptor >= 0 else {
                throw .system(.cannotCreate, "\(path) cannot be created", errno)
            }
            do throws(ChannelError) {
                try StandardOutput.write(
                    Array(MdocPage(page, date: date).text.utf8), to: descriptor, named: path)
            } catch {
                close(descriptor)
                throw error
            }
            // Some file systems report the error of a write only here.
            guard close(descriptor) == 0 else {
                throw .system(.inputOutput, "\(path) cannot be written", errno)
            }
        }
    }

    /// The words that may follow `help` but name no command, for completion.
    var guideWords: [String] { guide == nil ? [] : ["concepts"] }

    /// All commands, each with its words after the tool's name, for completion.
    var commandsForCompletion: [(words: [String], command: Command)] {
        let own = commands.map { ([$0.key], $0.value()) } + builtIns.map { ([$0.word], $0.command) }
        let inGroups = groups.flatMap { word, group in
            group().commandsForCompletion.map { ([word] + $0.words, $0.command) }
        }
        return own + inGroups + (defaultCommand.map { [([], $0)] } ?? [])
    }
}

/// A day, in the form that mdoc(7) needs.
private struct PageDate: CustomStringConvertible {
    let description: String

    private static let months = [
        "January", "February", "March", "April", "May", "June", "July", "August", "September",
        "October", "November", "December",
    ]

    /// The day of SOURCE_DATE_EPOCH in UTC, or today's if the variable is not set.
    static var now: PageDate {
        get throws(ChannelError) {
            let variable = unsafe getenv("SOURCE_DATE_EPOCH").map { unsafe String(cString: $0) }
            let given: time_t? = if let variable { time_t(variable) } else { time(nil) }
            var parts = unsafe tm()
            guard var seconds = given, unsafe gmtime_r(&seconds, &parts) != nil else {
                throw .usage(
                    "SOURCE_DATE_EPOCH is a number of seconds since 1970, and not "
                        + "`\(variable ?? "")`")
            }
            let month = unsafe months[Int(parts.tm_mon)]
            return PageDate(
                description: "\(month) \(unsafe parts.tm_mday), \(unsafe Int(parts.tm_year) + 1900)"
            )
        }
    }
}
