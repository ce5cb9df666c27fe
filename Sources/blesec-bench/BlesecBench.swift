internal import BLESecToolKit
internal import CBLESecBench

/// The bench: it measures records, handshakes, links, many channels and modelled radio separately,
/// and compares most figures with a limit: the cost of the same work without blesec, or a computed
/// or fixed figure.
@main enum BlesecBench {
    private static let program = Program(
        name: "blesec-bench", summary: "measure what encrypted channels cost",
        description: [],
        commands: ["serve": { ServeCommand.command }, "judge": { JudgeCommand.command }],
        defaultCommand: MeasureCommand.command,
        wordsForDefaultCommand: Settings.Scenario.allCases.map(\.rawValue))

    static func main() {
        // By default, glibc may return memory to the kernel after each message and request it again
        // for the next. Whether glibc does so depends on what lies at the end of the heap. The
        // difference in goodput is up to a third.
        blesec_bench_keep_freed_memory()
        program.main()
    }
}
