internal import BLESec
internal import BLESecJSON

/// The worst values that ratios may have, from a file such as `Benchmarks/floors.json`.
struct Floors: Sendable {
    private struct Floor {
        let ratio: String
        let worst: Double
        let reason: String

        init(_ json: JSONValue) throws(JSONMisfit) {
            ratio = try json.text("ratio")
            worst = try json.real("worst")
            reason = try json.text("reason")
        }
    }

    /// Which floors the measured ratios meet, and the numbers of floors that are met and not met.
    struct Verdict {
        /// A line for each floor. If the measured ratio does not meet the floor, a line with the
        /// floor's reason follows.
        fileprivate(set) var lines: [String] = []
        fileprivate(set) var metCount = 0
        fileprivate(set) var missedCount = 0
    }

    private let floors: [Floor]

    /// - Throws: `noSuchFile`; `badData`.
    init(_ path: String) throws(ChannelError) {
        floors = try JSONFile.read(path, as: "file of floors") { json throws(JSONMisfit) in
            try json.list("floors", Floor.init)
        }
    }

    /// Compares the best value of each ratio with its floor. `ratios` contains a ratio once for
    /// each time that it was measured. A floor whose ratio was not measured is not met.
    func judge(_ ratios: [RecordedReport.Ratio]) -> Verdict {
        var verdict = Verdict()
        for floor in floors {
            let found = ratios.filter { $0.name == floor.ratio }
            guard let lessIsBetter = found.first?.lessIsBetter,
                let best = lessIsBetter ? found.map(\.median).min() : found.map(\.median).max()
            else {
                verdict.lines.append("FAILED  \(floor.ratio): not measured")
                verdict.missedCount += 1
                continue
            }
            let isMissed = Ratio.isWorse(best, than: floor.worst, lessIsBetter: lessIsBetter)
            verdict.lines.append(
                "\(isMissed ? "FAILED" : "met   ")  \(floor.ratio): \(best.fixed(3)), "
                    + "\(lessIsBetter ? "at most" : "at least") \(floor.worst)")
            if isMissed {
                verdict.lines.append("        \(floor.reason)")
                verdict.missedCount += 1
            } else {
                verdict.metCount += 1
            }
        }
        return verdict
    }
}
