package import BLESecChannelCore
package import BLESecJSON
internal import BLESecLocking
internal import Glibc
internal import Synchronization

/// Lines on standard error, each passed to ``StandardError`` immediately.
package enum Diagnostics {
    private static let json = Atomic(false)
    private static let level = Atomic(0)
    private static let name = Locked("blesec")
    private static let display = Locked<(@Sendable (_ line: () -> Void) -> Void)?>(nil)

    /// Sets the function that shows each line from now on; nil writes lines directly.
    ///
    /// A command that redraws lines at the bottom of the terminal needs such a function. The
    /// function erases these lines, calls `line` to write the new line, and draws the erased lines
    /// again.
    package static func show(by display: (@Sendable (_ line: () -> Void) -> Void)?) {
        self.display.withLock { $0 = display }
    }

    /// The tool's name, with which an error's line begins.
    package static var program: String {
        get { name.withLock { $0 } }
        set { name.withLock { $0 = newValue } }
    }

    /// Whether lines are JSON objects; `--json` sets it.
    package static var isJSON: Bool {
        get { json.load(ordering: .relaxed) }
        set { json.store(newValue, ordering: .relaxed) }
    }

    /// How much is reported. -1: only errors (`--quiet`). 0: what a user needs. 1 or 2: more
    /// (`--verbose` once or twice).
    package static var verbosity: Int {
        get { level.load(ordering: .relaxed) }
        set { level.store(newValue, ordering: .relaxed) }
    }

    /// Prints an error: as `NAME: …`, or as a JSON object.
    package static func print(_ error: ChannelError) {
        let exit = Int(ExitStatus(error).rawValue)
        write(
            "\(program): " + error.reason, "error", error.members + [("exit", .number(exit))],
            isError: true)
    }

    /// Prints an event if `verbosity` is at least `level`: as `text`, or as a JSON object with
    /// `event` and `fields`.
    package static func note(
        _ text: @autoclosure () -> String, _ event: String, _ fields: [(String, JSONValue)] = [],
        at level: Int = 0
    ) {
        if verbosity >= level { write(text(), event, fields) }
    }

    /// A line with its line feed: `text`, or with `--json` an object with `event` and `fields`.
    static func line(_ text: String, _ event: String, _ fields: [(String, JSONValue)]) -> String {
        let object = JSONValue.object([("event", .string(event))] + fields)
        let time = verbosity > 1 ? clock + " " : ""
        return (isJSON ? JSONWriter.line(object) : time + oneLine(text)) + "\n"
    }

    private static func write(
        _ text: String, _ event: String, _ fields: [(String, JSONValue)], isError: Bool = false
    ) {
        let line = line(text, event, fields)
        let write = { StandardError.write(line, isError: isError) }
        if let display = display.withLock({ $0 }) { display(write) } else { write() }
    }

    /// The time of day, with milliseconds.
    private static var clock: String {
        var now = timespec()
        var parts = unsafe tm()
        unsafe clock_gettime(CLOCK_REALTIME, &now)
        guard unsafe localtime_r(&now.tv_sec, &parts) != nil else { return "" }
        let padded = { (number: Int, count: Int) in
            let text = String(number)
            return String(repeating: "0", count: max(0, count - text.count)) + text
        }
        let clock = unsafe [parts.tm_hour, parts.tm_min, parts.tm_sec].map { padded(Int($0), 2) }
        return clock.joined(separator: ":") + "." + padded(now.tv_nsec / 1_000_000, 3)
    }

    /// `text` on one line, with control characters replaced: a file's name may contain a line feed
    /// or a terminal's escapes.
    package static func oneLine(_ text: String) -> String {
        text.unicodeScalars.map { scalar in
            if scalar.isShown { return String(scalar) }
            return "\\u{\(String(scalar.value, radix: 16, uppercase: true))}"
        }.joined()
    }
}

extension ChannelError {
    /// The code and the reason, as members of a JSON object.
    package var members: [(String, JSONValue)] {
        [("code", .string(code.rawValue)), ("reason", .string(reason))]
    }
}
