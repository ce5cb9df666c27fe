internal import BLESecToolKit

/// The bench: it measures records, handshakes, links and many channels separately, most of them
/// beside a limit: the same work without a channel.
@main enum BlesecBench {
    private static let program = Program(
        name: "blesec-bench", summary: "measure what encrypted channels cost",
        description: [],
        commands: ["serve": { ServeCommand.command }, "judge": { JudgeCommand.command }],
        defaultCommand: MeasureCommand.command,
        defaultWords: Settings.Scenario.allCases.map(\.rawValue))

    static func main() { program.main() }
}
