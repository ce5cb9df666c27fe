internal import BLESec
internal import BLESecToolKit

/// `blesec-bench judge --floors FILE [REPORT]...`
enum JudgeCommand {
    private static let floors = Option(
        name: "--floors", value: "FILE",
        help: "The file of the floors, a JSON object. Its member `floors` lists objects with the "
            + "name of a `ratio`, the floor in the member `worst`, and the `reason` for that "
            + "floor.")

    static let command = Command(
        name: "blesec-bench judge", summary: "compare reports with floors",
        operands: ["[REPORT]..."], options: [floors],
        description: [
            "Reads the reports, which --json wrote, and measures nothing. A floor is the worst value "
                + "that a ratio may have. Compares the best value of each ratio in the reports with "
                + "the ratio's floor, and prints a line for each floor. A floor is not met if no "
                + "report has its ratio. The exit status is 1 when a floor is not met."
        ],
        examples: [
            "blesec-bench judge --floors Benchmarks/floors.json report.json":
                "Check whether a run meets this project's floors."
        ],
        statuses: [.success, .becameWorse, .usage, .badData, .noInput, .software, .inputOutput],
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
        try StandardOutput.print("\(verdict.metCount) met, \(verdict.missedCount) not\n")
        // Without a reason, the error is not printed; its code stands for exit status 1.
        if verdict.missedCount > 0 { throw ChannelError(.becameWorse, "") }
    }
}
