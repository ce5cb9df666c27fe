internal import BLESec
internal import BLESecJSON
internal import BLESecNoiseVectors
internal import BLESecToolKit

/// Runs the Noise test vectors in files, and prints the results.
struct VectorReport {
    private let listsSkipped: Bool
    private var passed = 0
    private var failed = 0
    private var skipped = 0

    init(listsSkipped: Bool) { self.listsSkipped = listsSkipped }

    /// Reads all files, then runs their vectors.
    ///
    /// - Throws: when a file cannot be read; and, without a message, when a vector has failed or
    ///   none was run.
    consuming func run(_ operands: [String]) async throws(ChannelError) {
        var files: [VectorFile] = []
        do throws(VectorFileError) {
            for operand in operands {
                for path in try VectorFile.paths(at: operand) {
                    files.append(try VectorFile(path: path))
                }
            }
        } catch {
            throw ChannelError(error)
        }
        var progress = ProgressLine(steps: files.reduce(0) { $0 + $1.vectors.count })
        for file in files {
            let vectors = file.vectors
            let doneCount = passed + failed + skipped
            let path = Diagnostics.oneLine(file.path)
            progress.show(path, done: doneCount)
            let outcomes = await inParallel(vectors.count) { index in
                vectors[index].run()
            } progress: {
                progress.show(path, done: doneCount + $0)
            }
            progress.clear()
            for (index, outcome) in outcomes.enumerated() {
                let name = vectors[index].protocolName
                try report(outcome, VectorPlace(path: file.path, index: index, protocolName: name))
            }
        }
        try summarize()
    }

    private mutating func report(
        _ outcome: VectorOutcome, _ place: VectorPlace
    ) throws(ChannelError) {
        switch outcome {
        case .passed: passed += 1
        case .failed(let failure):
            failed += 1
            try place.print("failed", failure.description, failure.members)
        case .skipped(let reason):
            skipped += 1
            if listsSkipped { try place.print("skipped", reason, []) }
        }
    }

    private func summarize() throws(ChannelError) {
        if passed + failed == 0 {
            Diagnostics.print(
                ChannelError(
                    .badData,
                    skipped == 0
                        ? "nothing was run: there are no vectors"
                        : "nothing was run: blesec knows none of these protocols; "
                            + "`--verbose` lists them"))
        }
        try StandardOutput.print(
            line: "\(passed) passed, \(failed) failed, \(skipped) skipped",
            or: [
                ("event", .string("done")), ("passed", .number(passed)),
                ("failed", .number(failed)), ("skipped", .number(skipped)),
            ])
        // The error has no message, so that the line with the counts is the last line.
        if failed > 0 || passed == 0 { throw ChannelError(.badData, "") }
    }
}

/// The place of a vector: its file, its index in the file, from 0, and its protocol's name.
private struct VectorPlace {
    let path: String
    let index: Int
    let protocolName: String

    func print(
        _ event: String, _ reason: String, _ members: [(String, JSONValue)]
    ) throws(ChannelError) {
        try StandardOutput.print(
            line: "\(path): vectors[\(index)]: \(protocolName): \(event): \(reason)",
            or: [
                ("event", .string(event)), ("file", .string(path)), ("vector", .number(index)),
                ("protocol", .string(protocolName)),
            ] + members + [("reason", .string(reason))])
    }
}

extension VectorFailure {
    /// The failure's details for `--json`.
    fileprivate var members: [(String, JSONValue)] {
        var members: [(String, JSONValue)] = []
        if case .message(let index) = part { members.append(("message", .number(index))) }
        if let byteIndex { members.append(("byte", .number(byteIndex))) }
        return members
    }
}

extension ChannelError {
    /// The tool's error for a file that cannot be read or parsed.
    fileprivate init(_ error: VectorFileError) {
        let code: Code =
            switch error.kind {
            case .missing: .noSuchFile
            case .denied: .permission
            case .unreadable: .inputOutput
            case .malformed: .badData
            }
        self.init(code, error.description)
    }
}
