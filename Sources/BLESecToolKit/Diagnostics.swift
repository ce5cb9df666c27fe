package import BLESecChannelCore
package import BLESecJSON
internal import BLESecLocking
internal import Glibc
internal import Synchronization

/// Lines on standard error, each written immediately.
package enum Diagnostics {
    private static let json = Atomic(false)
    private static let name = Locked("blesec")
    private static let display = Locked<(@Sendable (_ line: () -> Void) -> Void)?>(nil)

    /// Shows each line from now on, for lines at the end of the terminal that change: it removes
    /// those, calls `line`, and shows them again. Nil shows lines as they are.
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

    /// Prints an error: `NAME: …`.
    package static func print(_ error: ChannelError) {
        let exit = Int(ExitStatus(error).rawValue)
        note("\(program): " + error.reason, "error", error.members + [("exit", .number(exit))])
    }

    /// Prints an event: `text`, or an object with `event` and `fields`.
    package static func note(_ text: String, _ event: String, _ fields: [(String, JSONValue)] = [])
    {
        let object = JSONValue.object([("event", .string(event))] + fields)
        let line = isJSON ? JSONWriter.line(object) : oneLine(text)
        // A failure to write to standard error cannot be reported.
        let write = {
            _ = try? StandardOutput.write(Array((line + "\n").utf8), to: STDERR_FILENO)
        }
        if let display = display.withLock({ $0 }) { display(write) } else { write() }
    }

    /// `text` on one line, with control characters replaced: a file's name may contain a line feed
    /// or a terminal's escapes.
    package static func oneLine(_ text: String) -> String {
        text.unicodeScalars.map { scalar in
            guard !scalar.isShown else { return String(scalar) }
            return "\\u{\(String(scalar.value, radix: 16, uppercase: true))}"
        }.joined()
    }
}

extension ChannelError {
    /// The code and the reason, for an object.
    package var members: [(String, JSONValue)] {
        [("code", .string(code.rawValue)), ("reason", .string(reason))]
    }
}
