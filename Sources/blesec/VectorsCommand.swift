internal import BLESec
internal import BLESecNoise
internal import BLESecNoiseVectors
internal import BLESecToolKit

/// `blesec vectors [FILE|DIR]...`
enum VectorsCommand {
    private static let verbose = Option(
        name: "--verbose", short: "v", help: "List the skipped vectors too, each with the reason.")
    private static let make = Option(
        name: "--make", value: "N", needs: "--seed",
        help:
            "Make N vectors and write them to standard output, for other implementations to check. "
            + "Needs --seed.")
    private static let seed = Option(
        name: "--seed", value: "S",
        help: "With --make: derive all keys and payloads from S, a number from 0 to "
            + "18446744073709551615. The same number gives the same vectors.")
    private static let `protocol` = Option(
        name: "--protocol", value: "NAME", isRepeatable: true,
        help: "With --make: make vectors of this protocol. If the option is given several times, "
            + "the vectors use these protocols in turn. By default the vectors use all patterns in "
            + "all suites in turn, with the modifiers psk and fallback at random.")

    static let command = Command(
        name: "blesec vectors", summary: "run or make test vectors of the Noise protocols",
        operands: ["[FILE|DIR]..."], options: [verbose, make, seed, `protocol`, .json],
        description: [
            "Runs the vectors in each FILE, and in the .json and .txt files of each DIR. For each "
                + "vector, both sides of a handshake take the vector's keys, and write and read "
                + "every message. Each message has to equal the vector's message, byte for byte. "
                + "The files have the JSON form that Noise implementations share.",
            "Prints a line for each vector that fails: its file and index, its protocol, the index "
                + "of the message, and the first byte that differs. The message and the byte are "
                + "counted from 0. The last line is `N passed, N failed, N skipped`. A vector is "
                + "skipped if blesec does not know its protocol.",
            "The exit status is 0 only when at least one vector ran and no vector failed, and 65 "
                + "otherwise. All files are read before any vector runs. A file in another "
                + "form ends the command with an error that names the file and the place in it.",
        ],
        examples: [
            "blesec vectors TestVectors/noise": "Run blesec's own vectors.",
            "blesec vectors --verbose cacophony.txt snow.txt":
                "Run the vectors of other implementations, and list what blesec does not know.",
            "blesec vectors --make 1000 --seed 1 > fresh.json": "Make vectors for others.",
        ],
        statuses: [
            .success, .usage, .badData, .noInput, .software, .inputOutput, .untrusted,
        ], run: run)

    private static func run(_ arguments: Arguments) async throws(ChannelError) {
        guard arguments.has(make) else {
            try arguments.refuse([seed, `protocol`], "goes with --make")
            guard !arguments.operands.isEmpty else {
                throw arguments.usage("what to run is missing: a FILE, a DIR, or --make N --seed S")
            }
            return try await VectorReport(listsSkipped: arguments.has(verbose))
                .run(arguments.operands)
        }
        guard arguments.operands.isEmpty, !arguments.has(verbose) else {
            throw arguments.usage("--make writes vectors, and runs none")
        }
        guard !arguments.has(.json) else {
            throw arguments.usage("--make always writes JSON: leave out --json")
        }
        try await write(arguments)
    }

    /// The greatest number of vectors in memory at a time.
    private static let batchSize = 1024

    private static func write(_ arguments: Arguments) async throws(ChannelError) {
        let count = try arguments.number(make, in: 1...10_000_000, takesSign: false) ?? 0
        let range = UInt64.min...UInt64.max
        guard let seed = try arguments.number(seed, in: range, takesSign: false) else {
            throw arguments.usage("--make needs --seed S: the same S gives the same vectors")
        }
        let maker = VectorMaker(seed: seed, names: try names(arguments))
        var progress = ProgressLine(steps: count)
        var leadingText = NoiseVector.opening
        for first in stride(from: 0, to: count, by: batchSize) {
            progress.show("made", done: first)
            let results = await inParallel(min(batchSize, count - first)) { index in
                Result { () throws(VectorFailure) in try maker.vector(at: first + index).text }
            }
            progress.clear()
            for result in results {
                switch result {
                case .success(let text): try StandardOutput.write(leadingText + text)
                case .failure(let failure): throw ChannelError(.internal, "\(failure)")
                }
                leadingText = NoiseVector.separator
            }
        }
        try StandardOutput.write(NoiseVector.closing)
    }

    private static func names(_ arguments: Arguments) throws(ChannelError) -> [ProtocolName] {
        var names: [ProtocolName] = []
        for name in arguments.values(`protocol`) {
            do throws(ProtocolNameError) {
                names.append(try ProtocolName(name))
            } catch {
                throw arguments.usage("\(`protocol`.name) \(name): \(error)")
            }
        }
        return names
    }
}
