internal import BLESec
internal import Glibc

/// The tool: one command a file, and the commands in a table.
@main enum Blesec {
    /// The version that `--version` prints.
    static let version = "0.1.0"

    /// Every command, in the order in which `--help` lists them.
    static let commands = [
        KeygenCommand.command, PubkeyCommand.command, ListenCommand.command, ConnectCommand.command,
    ]

    static func main() {
        // Before there is any other thread, so that all of them leave signals to one.
        Signals.start()
        StandardDescriptors.claim()
        let words = Array(CommandLine.arguments.dropFirst())
        // On the loop that channels live on, so that no call of theirs changes threads.
        Task(executorPreference: EventLoop.shared) {
            // Not `exit`: OpenSSL's clean-up must not meet threads that still work.
            _exit(await status(of: words).rawValue)
        }
        while true { pause() }
    }

    private static func status(of words: [String]) async -> ExitStatus {
        do throws(ChannelError) {
            try await run(words)
            return .success
        } catch {
            Diagnostics.print(error)
            return ExitStatus(error)
        }
    }

    private static func run(_ words: [String]) async throws(ChannelError) {
        guard let word = words.first else {
            throw .usage("a command is missing: \(commandNames); see `blesec --help`")
        }
        switch word {
        case "--help", "-h", "help": return try ManualPage.printOverview()
        case "--version": return try StandardOutput.print("blesec \(version)\n")
        default: break
        }
        guard let command = commands.first(where: { $0.manual.name == word }) else {
            let what = word.hasPrefix("-") ? "option" : "command"
            let names = commands.map(\.manual.name) + ["--help", "--version"]
            throw .usage(
                "unknown \(what) `\(word)`\(Suggestion.text(for: word, among: names)); "
                    + "see `blesec --help`")
        }
        let arguments = try Arguments(
            Array(words.dropFirst()), of: command.manual, command: word)
        if arguments.wantsHelp { return try ManualPage(command.manual).print() }
        if arguments.wantsVersion { return try StandardOutput.print("blesec \(version)\n") }
        Diagnostics.isJSON = arguments.has(.json)
        try arguments.requireOperands()
        try await command.run(arguments)
    }

    private static var commandNames: String {
        let names = commands.map(\.manual.name)
        return names.dropLast().joined(separator: ", ") + " or " + (names.last ?? "")
    }
}
