internal import BLESecToolKit
internal import CBLESecBench

/// The bench: it measures records, handshakes, links, many channels and modelled radio separately,
/// and compares most figures with a limit, the cost of the same work without blesec.
@main enum BlesecBench {
    private static let program = Program(
        name: "blesec-bench", summary: "measure what encrypted channels cost",
        description: [],
        commands: ["serve": { ServeCommand.command }, "judge": { JudgeCommand.command }],
        defaultCommand: MeasureCommand.command,
        defaultWords: Settings.Scenario.allCases.map(\.rawValue))

    static func main() {
        // Otherwise glibc returns memory to the kernel and requests it again, at each message or never,
        // depending on what else lies at the end of the heap. That changes goodput by up to a third.
        blesec_bench_keep_freed_memory()
        program.main()
    }
}
