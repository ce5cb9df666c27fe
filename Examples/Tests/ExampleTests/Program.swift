import Foundation
import Testing

/// A program that a test runs, with pipes to it. If it still runs after a minute, it is killed.
final class Program {
    /// How the program ended, and what it wrote, without the lines that were already read.
    struct Outcome {
        let status: Int32
        let output: String
        let errors: String
    }

    private let process = Process()
    private let input = Pipe()
    private let output = Pipe()
    private let errors = Pipe()

    /// Starts a program from the build folder of these tests; its working directory is `folder`.
    init(
        _ name: String, _ arguments: [String], in folder: ScratchFolder,
        environment: [String: String] = [:]
    ) throws {
        // A program may end before it has read its input; writing the rest must not raise a signal.
        Foundation.signal(SIGPIPE, SIG_IGN)
        let tests = URL(filePath: CommandLine.arguments[0])
        process.executableURL = tests.deletingLastPathComponent().appending(path: name)
        process.arguments = arguments
        process.currentDirectoryURL = folder.url
        process.environment = ProcessInfo.processInfo.environment.merging(environment) { $1 }
        process.standardInput = input
        process.standardOutput = output
        process.standardError = errors
        try process.run()
        DispatchQueue.global().asyncAfter(deadline: .now() + 60) { [process] in
            if process.isRunning { kill(process.processIdentifier, SIGKILL) }
        }
    }

    deinit { if process.isRunning { process.terminate() } }

    /// Reads standard error up to a line that contains `part`, and returns that line. Throws if
    /// standard error ends before such a line.
    func line(containing part: String) throws -> String {
        var line: [UInt8] = []
        while let byte = try errors.fileHandleForReading.read(upToCount: 1)?.first {
            guard byte == UInt8(ascii: "\n") else {
                line.append(byte)
                continue
            }
            let text = String(decoding: line, as: UTF8.self)
            if text.contains(part) { return text }
            line = []
        }
        throw CocoaError(.fileReadCorruptFile)
    }

    /// Writes `text` to the program's standard input, closes it, and waits until the program ends.
    func finish(_ text: String = "") throws -> Outcome {
        try? input.fileHandleForWriting.write(contentsOf: Data(text.utf8))
        try? input.fileHandleForWriting.close()
        let outputBytes = try output.fileHandleForReading.readToEnd() ?? Data()
        let errorBytes = try errors.fileHandleForReading.readToEnd() ?? Data()
        process.waitUntilExit()
        return Outcome(
            status: process.terminationStatus, output: String(decoding: outputBytes, as: UTF8.self),
            errors: String(decoding: errorBytes, as: UTF8.self))
    }
}

/// A new folder for one test; it is removed when the test releases the object.
final class ScratchFolder {
    let url: URL

    init() throws {
        url = FileManager.default.temporaryDirectory.appending(path: "blesec-\(UUID())")
        try FileManager.default.createDirectory(
            at: url, withIntermediateDirectories: false, attributes: [.posixPermissions: 0o700])
    }

    deinit { try? FileManager.default.removeItem(at: url) }

    /// Runs `blesec` in the folder, and returns what it prints; its exit status must be 0.
    @discardableResult
    func blesec(_ words: String) throws -> String {
        let arguments = words.split(separator: " ").map(String.init)
        let outcome = try Program("blesec", arguments, in: self).finish()
        try #require(outcome.status == 0, "\(outcome.errors)")
        return outcome.output
    }
}
