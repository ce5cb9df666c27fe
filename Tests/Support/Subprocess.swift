internal import BLESecLocking
internal import Glibc

/// A program that a test runs, with a deadline.
///
/// Nothing runs in the background: the pipes of a program are served only while a test waits for
/// it, together with those of the other programs that the call names. A call that is waiting at the
/// deadline kills all these programs, and throws.
@safe public final class Subprocess {
    /// Where standard input comes from.
    public enum Input {
        /// These bytes, and then the end.
        case bytes([UInt8])
        /// The bytes that the test passes to ``send(_:)``, until the test calls ``endInput()``.
        case held
        /// A file, from its beginning.
        case file(String)
    }

    /// Why a test cannot go on.
    public enum Failure: Error {
        /// The program, and the system's error number.
        case cannotStart(String, Int32)
        /// The deadline passed; with the standard error so far of all programs that were waited
        /// for.
        case deadline(String)
        /// The program ended before what the test waited for, or failed; with its standard error,
        /// in ``output(containing:after:)`` after its standard output.
        case ended(String)
    }

    /// How the program ended and what it wrote.
    public struct Outcome: Sendable {
        /// The exit status, or the negative number of the signal that ended it.
        public let status: Int32
        /// Standard output, unless it went to a file.
        public let output: [UInt8]
        /// Standard error.
        public let errors: String

        /// Standard output as text.
        public var text: String { String(decoding: output, as: UTF8.self) }
    }

    private enum Channel { case input, output, errors, life }

    private var process: pid_t = 0
    private var descriptors: [Channel: Int32] = [:]
    private var pending: [UInt8] = []
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
            pending = bytes
            endsInput = true
        case .held, .file: endsInput = false
        }
        // A child must not inherit the pipes of another child that starts at the same time.
        try Self.oneAtATime.withLock { _ in
            try start(executable, arguments, input, output, environment)
        }
    }

    private static let oneAtATime = Locked(0)

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

    /// Appends bytes to standard input; they are written while a test waits.
    public func send(_ bytes: [UInt8]) { pending += bytes }

    /// Ends standard input after the bytes that were sent, while a test waits.
    public func endInput() { endsInput = true }

    /// Sends a signal.
    public func signal(_ number: Int32) { kill(process, number) }

    /// Waits for a line of standard error that begins with `prefix`, and returns the first such
    /// line.
    public func line(_ prefix: String, with others: [Subprocess] = []) throws -> String {
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
    /// many bytes standard output has by then.
    @discardableResult
    public func output(containing part: String, after start: Int = 0) throws -> Int {
        while !text(Array(output.dropFirst(start))).contains(part) {
            guard status == nil else { throw Failure.ended(text(output) + text(errors)) }
            try Self.serve([self], until: deadline)
        }
        return output.count
    }

    /// Waits until standard output has at least `count` bytes, and returns all its bytes so far.
    public func output(_ count: Int, with others: [Subprocess] = []) throws -> [UInt8] {
        while output.count < count {
            guard status == nil else { throw Failure.ended(text(errors)) }
            try Self.serve([self] + others, until: deadline)
        }
        return output
    }

    /// Waits for the program's end.
    public func wait(with others: [Subprocess] = []) throws -> Outcome {
        while true {
            if let status { return Outcome(status: status, output: output, errors: text(errors)) }
            try Self.serve([self] + others, until: deadline)
        }
    }

    /// Waits for the ends of several programs.
    public static func wait(_ all: [Subprocess]) throws -> [Outcome] {
        try all.map { try $0.wait(with: all.filter { $0.status == nil }) }
    }

    // MARK: - Serving the pipes

    private static func serve(_ all: [Subprocess], until deadline: Double) throws {
        var entries: [(Subprocess, Channel, Int32)] = []
        for one in all {
            one.closeInputIfDone()
            for (channel, descriptor) in one.descriptors
            where channel != .input || !one.pending.isEmpty {
                if !entries.contains(where: { $0.2 == descriptor }) {
                    entries.append((one, channel, descriptor))
                }
            }
        }
        var polled = entries.map { entry in
            pollfd(fd: entry.2, events: Int16(entry.1 == .input ? POLLOUT : POLLIN), revents: 0)
        }
        let left = deadline - now
        let ready = unsafe poll(&polled, nfds_t(polled.count), Int32(max(0, left) * 1000))
        if ready == 0 || left <= 0 {
            for one in all { kill(one.process, SIGKILL) }
            throw Failure.deadline(all.map { $0.text($0.errors) }.joined(separator: "\n--\n"))
        }
        for (entry, polled) in zip(entries, polled) where polled.revents != 0 {
            entry.0.serve(entry.1, entry.2)
        }
    }

    private func serve(_ channel: Channel, _ descriptor: Int32) {
        if channel == .input {
            let count = unsafe pending.withUnsafeBytes {
                unsafe write(descriptor, $0.baseAddress, min($0.count, 4096))
            }
            if count > 0 { pending.removeFirst(count) }
            if count < 0, errno == EPIPE { pending = [] }
            return
        }
        var bytes = [UInt8](repeating: 0, count: 65536)
        let count = unsafe read(descriptor, &bytes, bytes.count)
        guard count <= 0 else {
            if channel == .output { output += bytes[..<count] }
            if channel == .errors { errors += bytes[..<count] }
            return
        }
        close(descriptor)
        descriptors[channel] = nil
        if descriptors[.life] == nil, descriptors[.output] == nil, descriptors[.errors] == nil {
            reap()
        }
    }

    private func closeInputIfDone() {
        guard endsInput, pending.isEmpty, let input = descriptors[.input] else { return }
        close(input)
        descriptors[.input] = nil
    }

    private func reap() {
        var word: Int32 = 0
        while unsafe waitpid(process, &word, 0) < 0, errno == EINTR {}
        status = word & 0x7F == 0 ? word >> 8 & 0xFF : -(word & 0x7F)
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
    private static let passed = [
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
        var theirs: [Int32] = []
        defer { for descriptor in theirs { close(descriptor) } }
        func give(_ channel: Channel, as number: Int32) {
            let ours = Self.pipe(toChild: channel == .input)
            descriptors[channel] = ours.ours
            theirs.append(ours.theirs)
            unsafe posix_spawn_file_actions_adddup2(&actions, ours.theirs, number)
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
        // The child has this pipe open until it ends, even if it closes the other three.
        give(.life, as: 9)
        try unsafe spawn(executable, arguments, &actions, environment)
    }

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
        for number in [SIGPIPE, SIGINT, SIGTERM] { unsafe sigaddset(&signals, number) }
        unsafe posix_spawnattr_setsigdefault(&attributes, &signals)
        unsafe posix_spawnattr_setflags(
            &attributes, Int16(POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK))
        var variables: [String: String] = [:]
        for name in Self.passed {
            if let value = unsafe getenv(name) { unsafe variables[name] = String(cString: value) }
        }
        variables.merge(environment) { _, given in given }
        // Otherwise the thread sanitizer makes each process sleep for a second at its end.
        variables["TSAN_OPTIONS", default: ""] += " atexit_sleep_ms=0"
        let words = unsafe ([executable] + arguments).map { unsafe strdup($0) } + [nil]
        let pairs = unsafe variables.map { unsafe strdup("\($0)=\($1)") } + [nil]
        defer { unsafe (words + pairs).forEach { unsafe free($0) } }
        let status = unsafe posix_spawnp(&process, executable, actions, &attributes, words, pairs)
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
