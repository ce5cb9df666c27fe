import Glibc
import TestSupport
import Testing

/// The `blesec` that was built with these tests, or the one that `BLESEC_TOOL` names.
enum Tool {
    /// The tool's path. Unless `BLESEC_TOOL` gives another one, the tool is in the folder of the
    /// test executable.
    static let path: String = {
        if let given = unsafe getenv("BLESEC_TOOL") { return unsafe String(cString: given) }
        guard let tests = CommandLine.arguments.first, let slash = tests.lastIndex(of: "/") else {
            return "./blesec"
        }
        return tests[...slash] + "blesec"
    }()

    /// Runs the tool until it ends.
    static func run(_ arguments: String..., output: String? = nil) throws -> Subprocess.Outcome {
        try Subprocess.run(path, arguments, output: output)
    }

    /// Runs the tool until it ends.
    static func run(arguments: [String]) throws -> Subprocess.Outcome {
        try Subprocess.run(path, arguments)
    }

    /// Starts the tool.
    static func start(
        _ arguments: [String], input: Subprocess.Input = .bytes([]), output: String? = nil,
        within seconds: Double = 20
    ) throws -> Subprocess {
        try Subprocess(path, arguments, input: input, output: output, within: seconds)
    }

    /// Expects one line on standard error that contains `reason`, nothing on standard output, and
    /// the exit status.
    static func expect(
        _ outcome: Subprocess.Outcome, status: Int32, _ reason: String,
        at location: SourceLocation = #_sourceLocation
    ) {
        #expect(outcome.status == status, "\(outcome.errors)", sourceLocation: location)
        #expect(outcome.errors.hasPrefix("blesec: "), sourceLocation: location)
        #expect(outcome.errors.contains(reason), "\(outcome.errors)", sourceLocation: location)
        #expect(outcome.errors.filter { $0 == "\n" }.count == 1, sourceLocation: location)
        #expect(outcome.errors.hasSuffix("\n"), sourceLocation: location)
        #expect(outcome.output == [], sourceLocation: location)
    }
}
