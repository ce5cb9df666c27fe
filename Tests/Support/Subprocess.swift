internal import BLESecLocking
internal import Glibc

/// A program that a test runs, with a deadline.
///
/// No thread serves the program's pipes. They are read and written only while a method of this program
/// waits, or a method of another program waits that has this program among its `whileServing`. A method
/// that still waits at the deadline of the program on which it was called kills that program and those
/// in `whileServing`, and throws.
@safe public final class Subprocess {
    /// Where standard input comes from.
    public enum Input {
        /// These bytes, and then the end.
        case bytes([UInt8])
        /// The bytes that the test passes to ``send(_:)``; the input stays open until the test
        /// calls ``endInput()``.
        case keptOpen
        /// A file, from its beginning.
        case file(String)
    }

    /// Why a call has failed.
    public enum Failure: Error {
        /// The program, and the system's error number.
        case cannotStart(String, Int32)
        /// The deadline passed. The text is what the call's programs have written to standard error
        /// by then.
        case deadline(String)
        /// The program ended before it wrote what the call waited for, or ended with an error. The
        /// text is its standard error. If ``output(containing:after:)`` throws this, standard
        /// output precedes standard error in the text.
        case ended(String)
    }

    /// How the program ended and what it wrote.
    public struct Outcome: Sendable {
        /// The exit status, or the negative number of the signal that ended the program.
        public let status: Int32
        /// Standard output, unless it went to a file.
        public let output: [UInt8]
        /// Standard error.
        public let errors: String

        /// Standard output as text.
        public var text: String { String(decoding: output, as: UTF8.self) }
    }

    private enum Pipe { case input, output, errors, lifetime }

    private var process: pid_t = 0
    private var descriptors: [Pipe: Int32] = [:]
    private var pendingInput: [UInt8] = []
    private var endsInput: Bool
    private var output: [UInt8] = []
    private var errors: [UInt8] = []
    private let deadline: Double
    private var status: Int32?

    /// Starts `executable`, which is searched for in PATH if it has no slash.
    ///
    /// `output` names a file for standard output; without `output`, standard output is captured.
    /// The deadline is `seconds` after the start.
    public init(
        _ executable: String, _ arguments: [String], input: Input = .bytes([]),
        output: String? = nil, environment: [String: String] = [:], within seconds: Double = 20
    ) throws {
        deadline = Self.now + seconds
        switch input {
        case .bytes(let bytes):
            pendingInput = bytes
            endsInput = true
        case .keptOpen, .file: endsInput = false
        }
        // A child must not inherit the pipes of another child that starts at the same time.
        try Self.startLock.withLock { _ in
            try start(executable, arguments, input, output, environment)
        }
    }

    private static let startLock = Locked(0)

    deinit {
        if status == nil {
            kill(process, SIGKILL)
            waitpid(process, nil, 0)
        }
        for descriptor in descriptors.values { close(descriptor) }
    }

    /// Runs a program until it ends.
    public static func run(
        _ executable: String, _ arguments: [String], input: Input = .bytes([]),
        output: String? = nil, environment: [String: String] = [:], within seconds: Double = 20
    ) throws -> Outcome {
        try Subprocess(
            executable, arguments, input: input, output: output, environment: environment,
            within: seconds
        ).wait()
    }

    /// Appends bytes to standard input; a waiting call writes them.
    public func send(_ bytes: [UInt8]) { pendingInput += bytes }

    /// Ends standard input, once a waiting call has written the bytes that were sent.
    public func endInput() { endsInput = true }

    /// Sends a signal, unless the program is known to have ended: another process may then have its
    /// process ID.
    public func signal(_ number: Int32) { if status == nil { kill(process, number) } }

    /// Suspends the program with SIGSTOP. Returns when all its threads are suspended, or the program
    /// has ended.
    public func suspend() {
        signal(SIGSTOP)
        let events = WSTOPPED | WEXITED | WNOWAIT
        while waitid(P_PID, id_t(process), nil, events) < 0, errno == EINTR {}
    }

    /// Waits for a line of standard error that begins with `prefix`, and returns the first such
    /// line.
    public func line(_ prefix: String, whileServing others: [Subprocess] = []) throws -> String {
        while true {
            let lines = text(errors).split(separator: "\n", omittingEmptySubsequences: false)
            if let line = lines.dropLast().first(where: { $0.hasPrefix(prefix) }) {
                return String(line)
            }
            guard status == nil else { throw Failure.ended(text(errors)) }
            try Self.serve([self] + others, until: deadline)
        }
    }

    /// Waits until standard output contains `part` after the first `start` bytes, and returns how
    /// many bytes standard output has up to the end of that `part`.
    @discardableResult
    public func output(containing part: String, after start: Int = 0) throws -> Int {
        while true {
            if let end = endOffset(of: part, after: start) { return end }
            guard status == nil else { throw Failure.ended(text(output) + text(errors)) }
            try Self.serve([self], until: deadline)
        }
    }

    /// Searches the output after its first `start` bytes for `part`. Returns the offset of the end of
    /// the first `part`, or nil if there is none.
    private func endOffset(of part: String, after start: Int) -> Int? {
        let bytes = Array(part.utf8)
        let lastStart = output.count - bytes.count
        guard start <= lastStart else { return nil }
        let found = (start...lastStart).first {
            output[$0..<$0 + bytes.count].elementsEqual(bytes)
        }
        return found.map { $0 + bytes.count }
    }

    /// Waits until standard output has at least `count` bytes, and returns all its bytes so far.
    public func output(_ count: Int, whileServing others: [Subprocess] = []) throws -> [UInt8] {
        while output.count < count {
            guard status == nil else { throw Failure.ended(text(errors)) }
            try Self.serve([self] + others, until: deadline)
        }
        return output
    }

    /// Waits until the program has closed its standard output; the program may live on.
    public func waitForOutputEnd(whileServing others: [Subprocess] = []) throws {
        while descriptors[.output] != nil { try Self.serve([self] + others, until: deadline) }
    }

    /// Waits until the program has ended.
    public func wait(whileServing others: [Subprocess] = []) throws -> Outcome {
        while true {
            if let status { return Outcome(status: status, output: output, errors: text(errors)) }
            try Self.serve([self] + others, until: deadline)
        }
    }

    /// Waits until several programs have ended.
    public static func wait(_ programs: [Subprocess]) throws -> [Outcome] {
        try programs.map { try $0.wait(whileServing: programs.filter { $0.status == nil }) }
    }

    // MARK: - Serving the pipes

    private static func serve(_ programs: [Subprocess], until deadline: Double) throws {
        var entries: [(program: Subprocess, pipe: Pipe, descriptor: Int32)] = []
        for program in programs {
            program.closeInputIfDone()
            for (pipe, descriptor) in program.descriptors
            where pipe != .input || !program.pendingInput.isEmpty {
                if !entries.contains(where: { $0.descriptor == descriptor }) {
                    entries.append((program, pipe, descriptor))
                }
            }
        }
        var polled = entries.map { entry in
            let events = entry.pipe == .input ? POLLOUT : POLLIN
            return pollfd(fd: entry.descriptor, events: Int16(events), revents: 0)
        }
        let secondsLeft = deadline - now
        let ready = unsafe poll(&polled, nfds_t(polled.count), Int32(max(0, secondsLeft) * 1000))
        if ready == 0 || secondsLeft <= 0 {
            for program in programs { program.signal(SIGKILL) }
            throw Failure.deadline(
                programs.map { $0.text($0.errors) }.joined(separator: "\n--\n"))
        }
        for (entry, polled) in zip(entries, polled) where polled.revents != 0 {
            entry.program.serve(entry.pipe, entry.descriptor)
        }
    }

    private func serve(_ pipe: Pipe, _ descriptor: Int32) {
        if pipe == .input {
            let count = unsafe pendingInput.withUnsafeBytes {
                unsafe write(descriptor, $0.baseAddress, min($0.count, 4096))
            }
            if count > 0 { pendingInput.removeFirst(count) }
            if count < 0, errno == EPIPE { pendingInput = [] }
            return
        }
        var bytes = [UInt8](repeating: 0, count: 65536)
        let count = unsafe read(descriptor, &bytes, bytes.count)
        guard count <= 0 else {
            if pipe == .output { output += bytes[..<count] }
            if pipe == .errors { errors += bytes[..<count] }
            return
        }
        close(descriptor)
        descriptors[pipe] = nil
        if descriptors[.lifetime] == nil, descriptors[.output] == nil, descriptors[.errors] == nil {
            reap()
        }
    }

    private func closeInputIfDone() {
        guard endsInput, pendingInput.isEmpty, let input = descriptors[.input] else { return }
        close(input)
        descriptors[.input] = nil
    }

    /// Waits for the program's end. A program that has closed its pipes and lives on is killed at
    /// the deadline.
    private func reap() {
        var result: Int32 = 0
        while unsafe waitpid(process, &result, WNOHANG) == 0 {
            if Self.now < deadline {
                usleep(1_000)
            } else {
                kill(process, SIGKILL)
                while unsafe waitpid(process, &result, 0) < 0, errno == EINTR {}
                break
            }
        }
        let signal = result & 0x7F
        status = signal == 0 ? result >> 8 & 0xFF : -signal
        if let input = descriptors.removeValue(forKey: .input) { close(input) }
    }

    private func text(_ bytes: [UInt8]) -> String { String(decoding: bytes, as: UTF8.self) }

    private static var now: Double {
        var time = timespec()
        unsafe clock_gettime(CLOCK_MONOTONIC, &time)
        return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    }

    // MARK: - Starting

    /// The variables of this process's environment that a child gets.
    private static let inheritedVariables = [
        "PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "LAB_OUT", "ASAN_OPTIONS", "TSAN_OPTIONS",
        "LSAN_OPTIONS",
    ]

    private func start(
        _ executable: String, _ arguments: [String], _ input: Input, _ output: String?,
        _ environment: [String: String]
    ) throws {
        Glibc.signal(SIGPIPE, SIG_IGN)
        var actions = unsafe posix_spawn_file_actions_t()
        unsafe posix_spawn_file_actions_init(&actions)
        defer { unsafe posix_spawn_file_actions_destroy(&actions) }
        var childEnds: [Int32] = []
        defer { for descriptor in childEnds { close(descriptor) } }
        func give(_ pipe: Pipe, as number: Int32) {
            let ends = Self.pipe(toChild: pipe == .input)
            descriptors[pipe] = ends.ours
            childEnds.append(ends.theirs)
            unsafe posix_spawn_file_actions_adddup2(&actions, ends.theirs, number)
        }
        if case .file(let path) = input {
            unsafe posix_spawn_file_actions_addopen(&actions, 0, path, O_RDONLY, 0)
        } else {
            give(.input, as: 0)
        }
        if let output {
            let flags = O_WRONLY | O_CREAT | O_TRUNC
            unsafe posix_spawn_file_actions_addopen(&actions, 1, output, flags, 0o600)
        } else {
            give(.output, as: 1)
        }
        give(.errors, as: 2)
        // The child and the processes that it starts inherit this pipe too, and keep it open when
        // they close the other three pipes. So the end of this pipe shows that all these processes
        // have ended, except those that close every inherited descriptor.
        give(.lifetime, as: 9)
        try unsafe spawn(executable, arguments, &actions, environment)
    }

    /// `POSIX_SPAWN_SETSID` of `<spawn.h>`, which the Glibc module lacks. In a session of its own a
    /// program has no terminal, so it cannot prompt the person who runs the tests.
    private static let setSIDFlag: Int32 = 0x80

    private func spawn(
        _ executable: String, _ arguments: [String],
        _ actions: UnsafePointer<posix_spawn_file_actions_t>, _ environment: [String: String]
    ) throws {
        var attributes = posix_spawnattr_t()
        unsafe posix_spawnattr_init(&attributes)
        defer { unsafe posix_spawnattr_destroy(&attributes) }
        var signals = sigset_t()
        unsafe sigemptyset(&signals)
        unsafe posix_spawnattr_setsigmask(&attributes, &signals)
        for number in [SIGPIPE, SIGINT, SIGTERM, SIGHUP] { unsafe sigaddset(&signals, number) }
        unsafe posix_spawnattr_setsigdefault(&attributes, &signals)
        unsafe posix_spawnattr_setflags(
            &attributes,
            Int16(POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | Self.setSIDFlag))
        var variables: [String: String] = [:]
        for name in Self.inheritedVariables {
            if let value = unsafe getenv(name) { unsafe variables[name] = String(cString: value) }
        }
        variables.merge(environment) { _, override in override }
        // Otherwise the thread sanitizer makes each process sleep for a second at its end.
        variables["TSAN_OPTIONS", default: ""] += " atexit_sleep_ms=0"
        let argumentStrings = unsafe ([executable] + arguments).map { unsafe strdup($0) } + [nil]
        let variableStrings = unsafe variables.map { unsafe strdup("\($0)=\($1)") } + [nil]
        defer { unsafe (argumentStrings + variableStrings).forEach { unsafe free($0) } }
        let status = unsafe posix_spawnp(
            &process, executable, actions, &attributes, argumentStrings, variableStrings)
        guard status == 0 else {
            self.status = -1
            throw Failure.cannotStart(executable, status)
        }
    }

    private static func pipe(toChild: Bool) -> (ours: Int32, theirs: Int32) {
        var ends: [Int32] = [-1, -1]
        let result = unsafe Glibc.pipe(&ends)
        precondition(result == 0, "no descriptors left for a pipe")
        let (ours, theirs) = toChild ? (ends[1], ends[0]) : (ends[0], ends[1])
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        if toChild { _ = fcntl(ours, F_SETFL, O_NONBLOCK) }
        return (ours, theirs)
    }
}
