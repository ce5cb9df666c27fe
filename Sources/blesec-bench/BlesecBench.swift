internal import BLESecToolKit

/// The bench: it measures the cost of a record, a message and a link separately, beside their
/// limits.
@main enum BlesecBench {
    private static let program = Program(
        name: "blesec-bench", summary: "measure what encrypted channels cost",
        description: [], commands: [ServeCommand.command, JudgeCommand.command],
        defaultCommand: MeasureCommand.command,
        defaultWords: Settings.Scenario.allCases.map(\.rawValue))

    static func main() { program.main() }
}
