internal import BLESec
internal import BLESecToolKit

/// `blesec-bench judge --floors FILE [REPORT]...`
enum JudgeCommand {
    private static let floors = Option(
        name: "--floors", value: "FILE",
        help: "The limits: a JSON object whose member `floors` lists objects with the name of a "
            + "`ratio`, its `limit`, and the `reason` for that limit.")

    static let command = Command(
        name: "blesec-bench judge", summary: "hold reports against limits",
        operands: ["[REPORT]..."], options: [floors],
        description: [
            "Measures nothing: holds the best of each ratio in the reports, which --json wrote, "
                + "against its limit, and prints a line for each. A ratio that no report has is "
                + "not met. The exit status is 1 when a limit is not met."
        ],
        examples: [
            "blesec-bench judge --floors Benchmarks/floors.json report.json":
                "Whether a run meets this project's limits."
        ],
        statuses: [.success, .worse, .usage, .badData, .noInput, .software, .inputOutput],
        run: run)

    private static func run(_ arguments: Arguments) throws(ChannelError) {
        guard let path = arguments.value(floors) else {
            throw arguments.usage("--floors FILE is missing")
        }
        let floors = try Floors(path)
        var ratios: [RecordedReport.Ratio] = []
        for report in arguments.operands { ratios += try RecordedReport(report).ratios }
        let verdict = floors.judge(ratios)
        for line in verdict.lines { try StandardOutput.print(line + "\n") }
        try StandardOutput.print("\(verdict.met) met, \(verdict.missed) not\n")
        if verdict.missed > 0 { throw ChannelError(.worse, "") }
    }
}
