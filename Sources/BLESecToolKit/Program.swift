internal import BLESec
internal import Glibc

/// A command-line tool, or a group of its commands.
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
    private let defaultWords: [String]

    /// The version that `--version` prints.
    package static let version = "0.1.0"

    package init(
        name: String, summary: String, description: [String],
        commands: KeyValuePairs<String, @Sendable () -> Command>,
        groups: KeyValuePairs<String, @Sendable () -> Program> = [:],
        defaultCommand: Command? = nil, defaultWords: [String] = []
    ) {
        self.name = name
        self.summary = summary
        self.description = description
        self.commands = commands
        self.groups = groups
        self.defaultCommand = defaultCommand
        self.defaultWords = defaultWords
    }

    /// Runs the command that the command line names, and ends the process.
    package func main() -> Never {
        // So that a write to a closed pipe or socket fails with an error.
        signal(SIGPIPE, SIG_IGN)
        StandardDescriptors.claim()
        DescriptorLimit.raise()
        Diagnostics.program = name
        let call: Call
        do throws(ChannelError) {
            // Pages and usage errors are printed at once, before any thread starts.
            guard let found = try self.call(of: Array(CommandLine.arguments.dropFirst())) else {
                _exit(ExitStatus.success.rawValue)
            }
            call = found
        } catch {
            _exit(Self.status(of: error).rawValue)
        }
        // Before any other thread starts, so that only one thread handles signals.
        Signals.start()
        // On the loop of the channels, so that their calls do not change threads.
        Task(executorPreference: EventLoop.shared) {
            // Not `exit`: OpenSSL's cleanup must not run while other threads still use OpenSSL.
            _exit(await Self.status(of: call).rawValue)
        }
        while true { pause() }
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

    /// The command to run; nil if the words asked for a page or the version, which is then printed.
    private func call(of words: [String]) throws(ChannelError) -> Call? {
        let rest = Array(words.dropFirst())
        if let make = commands.first(where: { $0.key == words.first })?.value {
            return try call(make(), rest)
        }
        if let make = groups.first(where: { $0.key == words.first })?.value {
            return try make().call(of: rest)
        }
        if let defaultCommand, words.first.map(beginsDefault) ?? true {
            return try call(defaultCommand, words)
        }
        let commandWords = commands.map(\.key) + groups.map(\.key)
        guard let word = words.first else {
            throw .usage("a command is missing: \(commandWords.alternatives); see `\(name) --help`")
        }
        switch word {
        case "--help", "-h", "help":
            try ManualPage.print(self)
            return nil
        case "--version":
            try printVersion()
            return nil
        default: break
        }
        let what = word.hasPrefix("-") ? "option" : "command"
        let names = commandWords + defaultWords + ["--help", "--version"]
        throw .usage(
            "unknown \(what) `\(word)`\(Suggestion.text(for: word, among: names)); "
                + "see `\(name) --help`")
    }

    private func beginsDefault(_ word: String) -> Bool {
        word.hasPrefix("-") || defaultWords.contains(word)
    }

    private func call(
        _ command: Command, _ words: [String]
    ) throws(ChannelError) -> Call? {
        let arguments = try Arguments(words, of: command)
        if arguments.wantsHelp {
            try ManualPage.print(command)
            return nil
        }
        if arguments.wantsVersion {
            try printVersion()
            return nil
        }
        Diagnostics.isJSON = arguments.has(.json)
        try arguments.requireOperands()
        return Call(command: command, arguments: arguments)
    }

    private func printVersion() throws(ChannelError) {
        try StandardOutput.print("\(name) \(Self.version)\n")
    }

    /// The commands and groups, each with its summary.
    var table: [(word: String, summary: String)] {
        commands.map { ($0.key, $0.value().summary) } + groups.map { ($0.key, $0.value().summary) }
    }
}
