import Foundation
import TestSupport
import Testing

@testable import blesec_bench

@Suite struct ComparisonTests {
    /// Runs the engine scenario at one size, with enough samples for a busy machine.
    private static func run(
        _ arguments: String..., slowdown: Int = 0
    ) throws -> Subprocess.Outcome {
        try Bench.run(
            ["engine", "--size", "16384", "--rounds", "25"] + arguments,
            environment: slowdown > 0 ? ["BLESEC_BENCH_SLOWDOWN": "\(slowdown)"] : [:])
    }

    /// Compares two runs with a first run: one of the same build, and one that is slowed down by
    /// 20 %. Returns the text of each comparison that is wrong.
    private static func mistakes() throws -> [String] {
        let folder = ScratchFolder()
        let file = folder.file("before.json")
        #expect(try run("--json", file).status == 0)
        var mistakes: [String] = []

        let same = try run("--compare", file)
        if same.status != 0 || !same.text.contains("no change in 7 ratios") {
            mistakes.append("the same build: \(same.text)\(same.errors)")
        }

        let slower = try run("--compare", file, slowdown: 20)
        let worseLines = slower.text.split(separator: "\n").filter { $0.contains(" worse ") }
        let layers = ["AEAD", "TransportState", "NoiseEngine"].map {
            "engine/Noise_XX_25519_ChaChaPoly_SHA256/16384/\($0) "
        }
        let areLayersNamed = layers.allSatisfy { name in
            worseLines.contains { $0.hasPrefix(name) }
        }
        if slower.status != 1 || slower.errors != "" || worseLines.count != 7 || !areLayersNamed {
            mistakes.append("the slower build: \(slower.text)\(slower.errors)")
        }
        return mistakes
    }

    @Test(
        "two runs of one build show no change, and in a run that is 20 % slower 7 ratios are worse"
    )
    func sameAndSlower() throws {
        // Other load on the machine may hide a slower run, or slow down one of two equal runs, so
        // one good attempt of eight is enough. An error of the comparison itself occurs every time.
        var mistakes: [String] = []
        for _ in 0..<8 {
            mistakes = try Self.mistakes()
            if mistakes.isEmpty { break }
        }
        #expect(mistakes == [])
    }

    private static func ratio(
        _ samples: [Double], _ basis: Ratio.Basis = .processor, lessIsBetter: Bool = true
    ) -> Ratio {
        Ratio(
            name: "engine/a", referenceName: "primitive", basis: basis,
            lessIsBetter: lessIsBetter, summary: Summary(samples))
    }

    private static func changes(
        from oldSamples: [Double], to newRatio: Ratio
    ) -> [Comparison.Change] {
        let summary = Summary(oldSamples)
        let oldRatio = RecordedReport.Ratio(
            name: newRatio.name, median: summary.median,
            standardError: summary.spread / Double(summary.count).squareRoot(),
            lessIsBetter: newRatio.lessIsBetter)
        return Comparison([newRatio], to: [oldRatio]).changes
    }

    @Test("each ratio defines whether a smaller value is better or worse")
    func direction() {
        let (low, high) = ([1.0, 1, 1], [1.2, 1.2, 1.2])
        #expect(Self.changes(from: low, to: Self.ratio(high)).map(\.isWorse) == [true])
        #expect(Self.changes(from: high, to: Self.ratio(low)).map(\.isWorse) == [false])
        let (highGoodput, lowGoodput) = (
            Self.ratio(high, lessIsBetter: false), Self.ratio(low, lessIsBetter: false)
        )
        #expect(Self.changes(from: low, to: highGoodput).map(\.isWorse) == [false])
        #expect(Self.changes(from: high, to: lowGoodput).map(\.isWorse) == [true])
    }

    @Test("a change counts if it exceeds three standard errors and its ratio's minimum margin")
    func thresholds() {
        // The spread is 0.1, so with five samples each, three standard errors of both runs combined
        // are 0.19.
        let scatteredSamples = [0.8, 0.95, 1.0, 1.05, 1.2]
        func changes(by factor: Double) -> [Comparison.Change] {
            let newRatio = Self.ratio(scatteredSamples.map { factor * $0 })
            return Self.changes(from: scatteredSamples, to: newRatio)
        }
        #expect(changes(by: 1.18).isEmpty && changes(by: 1.20).count == 1)
        let equalSamples = [Double](repeating: 1, count: 5)
        func isChange(by factor: Double, _ basis: Ratio.Basis) -> Bool {
            let newRatio = Self.ratio(equalSamples.map { factor * $0 }, basis)
            return !Self.changes(from: equalSamples, to: newRatio).isEmpty
        }
        #expect(!isChange(by: 1.07, .processor) && isChange(by: 1.09, .processor))
        #expect(!isChange(by: 1 / 1.07, .processor) && isChange(by: 1 / 1.09, .processor))
        #expect(!isChange(by: 1.24, .wall) && isChange(by: 1.26, .wall))
        #expect(!isChange(by: 1.0005, .counted) && isChange(by: 1.002, .counted))
    }

    @Test("a change counts only if another run confirms it")
    func confirmation() {
        let oldRatios = [
            RecordedReport.Ratio(
                name: "engine/a", median: 1, standardError: 0, lessIsBetter: true)
        ]
        let worse = Comparison([Self.ratio([1.2])], to: oldRatios)
        var confirmed = worse
        confirmed.confirm(by: worse)
        #expect(confirmed.isWorse && confirmed.scenarios == [.engine])
        for other in [[1.0], [0.8]] {
            var comparison = worse
            comparison.confirm(by: Comparison([Self.ratio(other)], to: oldRatios))
            #expect(comparison.changes.isEmpty && !comparison.isWorse)
        }
    }

    /// Files that are not reports, and what is wrong with each.
    static let badFiles = [
        ("", "the text ends too early"),
        ("[]", "not an object"),
        (#"{"schema": "blesec-bench/2"}"#, "schema: blesec-bench/1 is wanted"),
        (#"{"schema": "blesec-bench/1"}"#, "settings: missing"),
        (report("{}"), "ratios[0].name: missing"),
        (report(#"{"name": "a", "median": "1", "spread": 0, "count": 1}"#), "median: not a number"),
        (report(#"{"name": "a", "median": 1e999, "spread": 0, "count": 1}"#), "not a number"),
        (report(#"{"name": "a", "median": 1, "spread": 0, "count": 0}"#), "no summary"),
    ]

    private static func report(_ ratio: String) -> String {
        #"{"schema": "blesec-bench/1", "settings": {"optimized": \#(HostInfo.isOptimized)}, "#
            + #""ratios": [\#(ratio)]}"#
    }

    @Test("a file that is not a report is refused before anything is measured", arguments: badFiles)
    func malformed(_ text: String, _ reason: String) throws {
        let folder = ScratchFolder()
        let file = folder.file("old.json")
        try text.write(toFile: file, atomically: false, encoding: .utf8)
        // A sample takes a minute, so the measurements do not end within the time limit.
        let outcome = try Bench.run([
            "link", "--transport", "memory", "--sample", "60000", "--compare", file,
        ])
        #expect(outcome.status == 65)
        #expect(outcome.errors.contains("is no report to compare with: "))
        #expect(outcome.errors.contains(reason), "\(outcome.errors)")
        #expect(outcome.output == [])
    }

    @Test("a report that has no ratio in common with this run is refused")
    func nothingInCommon() throws {
        let folder = ScratchFolder()
        let file = folder.file("old.json")
        try Self.report(
            #"{"name": "x/y", "median": 1, "spread": 0, "count": 3, "less-is-better": true}"#
        )
        .write(toFile: file, atomically: false, encoding: .utf8)
        let outcome = try Bench.run(["engine", "--size", "64", "--quick", "--compare", file])
        #expect(outcome.status == 65)
        #expect(outcome.errors.contains("no ratio in common"))
    }
}
