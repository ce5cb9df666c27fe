import Foundation
import TestSupport
import Testing

@testable import blesec_bench

/// `tools/floors`, with the bench that was built with these tests. A floor names a ratio that the
/// bench measures, the worst value that the ratio may have, and the reason for this value.
@Suite struct FloorTests {
    private static let root = URL(fileURLWithPath: #filePath)
        .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent().path
    private static let ratio = "engine/Noise_XX_25519_ChaChaPoly_SHA256/64/NoiseEngine"

    private static func run(_ ratio: String, worst: Double) throws -> Subprocess.Outcome {
        let folder = ScratchFolder()
        let file = folder.file("floors.json")
        let text = """
            {"runs": [["engine", "--size", "64", "--quick"]],
             "floors": [{"ratio": "\(ratio)", "worst": \(worst), "reason": "Because."}]}
            """
        try text.write(toFile: file, atomically: false, encoding: .utf8)
        return try Subprocess.run(
            root + "/tools/floors", ["--bench", Bench.path, "--floors", file], within: 70)
    }

    @Test("a floor that is met passes at the first attempt")
    func met() throws {
        let outcome = try Self.run(Self.ratio, worst: 1_000)
        #expect(outcome.status == 0, "\(outcome.text)\(outcome.errors)")
        #expect(outcome.text.contains("best of 1: 1 met, 0 not"))
    }

    @Test("a floor that no attempt meets fails, with its reason")
    func missed() throws {
        let outcome = try Self.run(Self.ratio, worst: 0.1)
        #expect(outcome.status == 1)
        #expect(outcome.text.contains("FAILED  \(Self.ratio)"))
        #expect(outcome.text.contains("Because."))
        #expect(outcome.text.contains("best of 6: 0 met, 1 not"))
    }

    @Test("a floor for a ratio that is not measured fails")
    func unknown() throws {
        let outcome = try Self.run("engine/none", worst: 1)
        #expect(outcome.status == 1)
        #expect(outcome.text.contains("FAILED  engine/none: not measured"))
    }

    @Test("a ratio too large for three decimal places is judged, and printed with an exponent")
    func hugeRatio() throws {
        let folder = ScratchFolder()
        let floors = folder.write(
            "floors.json",
            #"{"floors": [{"ratio": "engine/a", "worst": 2, "reason": "Because."}]}"#)
        let report = folder.write(
            "report.json",
            #"{"schema": "blesec-bench/1", "settings": {"optimized": \#(HostInfo.isOptimized)}, "#
                + #""ratios": [{"name": "engine/a", "median": 1e300, "spread": 0, "count": 1, "#
                + #""less-is-better": true}]}"#)
        let outcome = try Subprocess.run(Bench.path, ["judge", "--floors", floors, report])
        #expect(outcome.status == 1, "\(outcome.errors)")
        #expect(outcome.text.contains("FAILED  engine/a: 1e+300, at most 2.0"), "\(outcome.text)")
    }

    @Test("each floor has its own ratio, a worst value below 10 and a reason that ends in a period")
    func floorsOfTheRepository() throws {
        struct Floor: Decodable {
            var ratio: String
            var worst: Double
            var reason: String
        }
        struct Floors: Decodable {
            var runs: [[String]]
            var floors: [Floor]
        }
        let data = try Data(contentsOf: URL(fileURLWithPath: Self.root + "/Benchmarks/floors.json"))
        let floors = try JSONDecoder().decode(Floors.self, from: data).floors
        #expect(!floors.isEmpty)
        #expect(Set(floors.map(\.ratio)).count == floors.count)
        for floor in floors {
            #expect(floor.worst > 0 && floor.worst < 10)
            #expect(floor.reason.hasSuffix(".") && floor.reason.count > 20)
        }
    }
}
