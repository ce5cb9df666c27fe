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

    /// Runs the tool in a working directory until it ends.
    static func run(in directory: String, _ arguments: String...) throws -> Subprocess.Outcome {
        let script = """
            tool=$(realpath "$0") && cd "$1" && shift && exec "$tool" "$@"
            """
        return try Subprocess.run("sh", ["-c", script, path, directory] + arguments)
    }

    /// The capabilities with which root may do what permissions forbid.
    private static let droppedCapabilities = "-dac_override,-dac_read_search,-fowner"

    /// Runs the tool until it ends. Permissions bind the tool even if root runs the tests.
    static func runBoundByPermissions(
        _ arguments: [String], input: Subprocess.Input = .bytes([])
    ) throws -> Subprocess.Outcome {
        guard geteuid() == 0 else { return try Subprocess.run(path, arguments, input: input) }
        return try Subprocess.run(
            "setpriv",
            ["--bounding-set=\(droppedCapabilities)", "--inh-caps=\(droppedCapabilities)", path]
                + arguments, input: input)
    }

    /// Some system calls, with their numbers on this machine.
    #if arch(x86_64)
        enum SystemCall: Int { case flock = 73, fsync = 74, getdents64 = 217 }
    #else
        enum SystemCall: Int { case flock = 32, fsync = 82, getdents64 = 61 }
    #endif

    /// Runs the tool until it ends. The system call `call` fails with ENOSYS.
    static func run(
        without call: SystemCall, _ arguments: [String]
    ) throws -> Subprocess.Outcome {
        let script = #filePath.replacing("Tool.swift", with: "Peers/without_syscall.py")
        return try Subprocess.run("python3", [script, "\(call.rawValue)", path] + arguments)
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
