import Foundation
import TestSupport
import Testing

/// What `blesec-bench` writes and draws, checked by other programs.
@Suite struct ReportTests {
    private static let root = URL(fileURLWithPath: #filePath)
        .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent().path
    /// Options for a short run of every scenario, with two sizes, two transports and one protocol.
    /// With `--protocol`, no streams are measured.
    private static let shortRunOptions = [
        "--quick", "--rounds", "1", "--sample", "1", "--size", "64", "--size", "1024",
        "--transport", "memory", "--transport", "unix-seqpacket", "--protocol",
        "Noise_XX_25519_ChaChaPoly_SHA256",
    ]

    private static func check(_ name: String, _ arguments: String...) throws -> Subprocess.Outcome {
        try Subprocess.run(
            "/usr/bin/python3", ["\(root)/Tests/BenchTests/Checks/\(name)"] + arguments)
    }

    @Test("a JSON report fits its documented schema, and a report that lacks a member does not")
    func schema() throws {
        let folder = ScratchFolder()
        let file = folder.file("report.json")
        let outcome = try Bench.run(Self.shortRunOptions + ["--loops", "2", "--json", file])
        #expect(outcome.status == 0, "\(outcome.errors)")
        let schema = "\(Self.root)/docs/bench.schema.json"
        #expect(try !Self.list("loops", in: file).isEmpty)
        let fits = try Self.check("schema.py", schema, file)
        #expect(fits.status == 0, "\(fits.text)")

        let text = try String(contentsOfFile: file, encoding: .utf8)
        for member in ["\"kernel\"", "\"ratios\"", "\"median\""] {
            let changed = folder.file("changed.json")
            try text.replacing(member, with: "\"other\"")
                .write(toFile: changed, atomically: false, encoding: .utf8)
            #expect(try Self.check("schema.py", schema, changed).status == 1, "\(member)")
        }
    }

    @Test("a report with figures of streams fits the schema too")
    func streams() throws {
        let folder = ScratchFolder()
        let file = folder.file("report.json")
        let outcome = try Bench.run([
            "link", "--quick", "--rounds", "1", "--sample", "1", "--size", "64", "--transport",
            "memory", "--json", file,
        ])
        #expect(outcome.status == 0, "\(outcome.errors)")
        #expect(try Self.list("streams", in: file).count == 1)
        let fits = try Self.check("schema.py", "\(Self.root)/docs/bench.schema.json", file)
        #expect(fits.status == 0, "\(fits.text)")
    }

    /// The list that is the member `name` of the report in `file`.
    private static func list(_ name: String, in file: String) throws -> [Any] {
        let bytes = try Data(contentsOf: URL(fileURLWithPath: file))
        let report = try JSONSerialization.jsonObject(with: bytes) as? [String: Any]
        return try #require(report?[name] as? [Any])
    }

    private struct Picture: Decodable {
        var width: Int
        var height: Int
        /// Red, green, blue, and the number of pixels.
        var colours: [[Int]]

        func count(_ colour: [Int]) -> Int {
            colours.first { $0.dropLast() == colour[...] }?.last ?? 0
        }
    }

    @Test("plots are drawn as SVG, and show curves and bars in their colours when rendered")
    func plots() throws {
        let folder = ScratchFolder()
        let (svg, png) = (folder.file("plots.svg"), folder.file("plots.png"))
        let outcome = try Bench.run(Self.shortRunOptions + ["--svg", svg])
        #expect(outcome.status == 0, "\(outcome.errors)")
        let rendering = try Subprocess.run("rsvg-convert", ["--output", png, svg])
        #expect(rendering.status == 0, "\(rendering.errors)")
        let picture = try JSONDecoder().decode(
            Picture.self, from: Data(try Self.check("png.py", png).output))
        #expect(picture.width == 940)
        #expect(picture.height > 960)
        // In this order: the background, the limits, and the first two colours of curves and bars.
        let pixels = picture.width * picture.height
        #expect(picture.count([255, 255, 255]) > pixels / 2)
        #expect(picture.count([0x55, 0x55, 0x55]) > 200)
        #expect(picture.count([0x0B, 0x63, 0xAD]) > 2_000)
        #expect(picture.count([0xB3, 0x48, 0x0F]) > 1_000)

        let text = try String(contentsOfFile: svg, encoding: .utf8)
        #expect(text.contains("prefers-color-scheme: dark"))
        for title in ["Records: ", "Goodput: memory", "Round trip: unix-seqpacket", "Handshakes"] {
            #expect(text.contains(title), "\(title)")
        }
    }
}

/// `blesec-bench`, as built with these tests.
enum Bench {
    static let path: String = {
        guard let program = CommandLine.arguments.first, let slash = program.lastIndex(of: "/")
        else {
            return "./blesec-bench"
        }
        return program[...slash] + "blesec-bench"
    }()

    /// A time limit in seconds; only a bench that hangs reaches this limit. The bench measures each
    /// figure for a fixed time, and on a busy machine each figure waits for the processor.
    static let timeLimit = 120.0

    /// Runs the bench until it ends.
    static func run(
        _ arguments: [String], environment: [String: String] = [:]
    ) throws -> Subprocess.Outcome {
        try Subprocess.run(path, arguments, environment: environment, within: timeLimit)
    }
}
