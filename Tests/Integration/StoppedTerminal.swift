import TestSupport
import Testing

/// A terminal that Ctrl-S stops before a program begins there. The terminal shows the program's
/// question only after Ctrl-Q.
struct StoppedTerminal {
    /// The byte that Ctrl-S sends.
    static let controlS: UInt8 = 0x13
    /// The byte that Ctrl-Q sends.
    static let controlQ: UInt8 = 0x11

    /// A command that waits until the terminal is stopped, and then runs the words after it.
    let command: [String]
    /// The file with the process ID of the program.
    private let processFile: String

    init(_ folder: ScratchFolder) {
        processFile = folder.file("process")
        // A stopped terminal cannot be written to.
        let program = """
            import os, select, sys, time
            while select.select([], [1], [], 0)[1]: time.sleep(0.01)
            with open(sys.argv[1], "w") as file: file.write(str(os.getpid()))
            os.execv(sys.argv[2], sys.argv[2:])
            """
        command = ["python3", "-c", program, processFile]
    }

    /// Waits until the program has opened the terminal to ask there.
    func waitForQuestion(whileServing others: [Subprocess]) throws {
        let script = """
            exec 2> /dev/null
            until readlink /proc/$(cat "$0")/fd/* | grep -qx /dev/tty; do sleep 0.02; done
            """
        let waiting = try Subprocess("sh", ["-c", script, processFile])
        #expect(try waiting.wait(whileServing: others).status == 0)
    }
}
