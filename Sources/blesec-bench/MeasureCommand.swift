internal import BLESec
internal import BLESecJSON
internal import BLESecToolKit
internal import Glibc

/// `blesec-bench [SCENARIO]... [OPTION]...`
enum MeasureCommand {
    static let scenario = Option(
        name: "--scenario", value: "NAME", isRepeatable: true,
        help: "The same as NAME as an operand.")
    static let transport = Option(
        name: "--transport", value: "NAME", isRepeatable: true,
        help: "Measure only this kind of link: memory, unix, unix-seqpacket or l2cap. Without it, "
            + "all that this machine has.")
    static let `protocol` = Option(
        name: "--protocol", value: "NAME", isRepeatable: true,
        help: "Measure this protocol beside the plain link, such as "
            + "Noise_XX_25519_AESGCM_SHA256 or \(TLSContext.protocolName). Without it, "
            + "\(ChannelConfiguration.defaultProtocol) and \(TLSContext.protocolName), and the "
            + "handshakes of all patterns and all suites and of TLS.")
    static let size = Option(
        name: "--size", value: "BYTES", isRepeatable: true,
        help: "Measure messages of this size, 1 to 1,048,576 bytes. Without it, 64 B to 64 KiB in "
            + "six steps.")
    static let rounds = Option(
        name: "--rounds", value: "COUNT",
        help: "Take so many samples of each kind, 1 to 1,000; 5 without it. They are interleaved, "
            + "and medians count.")
    static let sample = Option(
        name: "--sample", value: "MILLISECONDS",
        help: "Let one sample of a link take so long, 1 to 60,000; 30 without it. A message that "
            + "takes longer is a sample of its own.")
    static let channels = Option(
        name: "--channels", value: "COUNT", isRepeatable: true,
        help: "Measure so many channels at once, 1 to 20,000. Without it, 1, 10, 100 and 1,000.")
    static let oneWay = Option(
        name: "--one-way", help: "Leave out messages that go there and back.")
    static let quick = Option(
        name: "--quick", help: "Take fewer and shorter samples: done within 15 seconds, but noisy.")
    static let json = Option(
        name: "--json", value: "FILE",
        help: "Write everything to FILE as well, as JSON; to standard output, in place of the "
            + "tables, when FILE is -.")
    static let svg = Option(
        name: "--svg", value: "FILE",
        help: "Draw goodput, round trips and handshakes into FILE, as SVG; - is standard output, "
            + "in place of the tables.")
    static let compare = Option(
        name: "--compare", value: "FILE",
        help: "Compare with the report in FILE, which --json wrote: ratios alone, never times. "
            + "Prints what changed, and exits with 1 when anything became worse.")
    static let connect = Option(
        name: "--connect", value: "ENDPOINT",
        help: "Measure the link to `blesec-bench serve` there: l2cap:AA:BB:CC:DD:EE:FF/0x80, "
            + "unix:PATH or unix-seqpacket:PATH.")
    static let adapter = Option(
        name: "--adapter", value: "HCI",
        help: "Dial from this Bluetooth adapter, such as hci1, and not the first that is on.")
    static let peerAdapter = Option(
        name: "--peer-adapter", value: "HCI",
        help: "Without --connect: dial this adapter of the same machine over l2cap.")

    static let command = Command(
        name: "blesec-bench", summary: "measure what encrypted channels cost",
        operands: ["[SCENARIO]..."],
        options: [
            scenario, transport, `protocol`, size, channels, rounds, sample, oneWay, quick, json,
            svg, compare, connect, adapter, peerAdapter,
        ],
        description: [
            "Tells apart what sealing a record, sending a message and the link itself cost, in one "
                + "run, each beside its limit. Prints tables to standard output, and while it "
                + "works a line of progress to standard error if that is a terminal. Ends within "
                + "90 seconds on two cores, unless --rounds, --sample or --channels ask for more.",
            "Each SCENARIO that is named is measured, or all of them where none is.",
            "engine: processor time to seal and open one record, as a multiple of what the faster "
                + "one of libsodium and OpenSSL takes from C over the same buffer (raw), for each "
                + "layer above it; with TLS, of what OpenSSL's own two ends take for the same bytes.",
            "handshake: processor time of each side of a handshake in memory, from nothing to the "
                + "keys for transport, with what travels; and as a multiple of what its primitives "
                + "take by themselves from C, every key pair, product, hash, HKDF and AEAD call "
                + "counted. Any Noise protocol can be measured so. TLS is compared with OpenSSL's own "
                + "two ends, driven from C with the same settings and certificates; where it resumes "
                + "a session, which the whole run measures as well, with nothing. Noise Pipes are "
                + "the lines IK, XXfallback and XX.",
            "link: bytes of messages a second one way, and the time of a message there and back, "
                + "beside a plain link: the same messages in the same pieces with nothing sealed, "
                + "acknowledged or proven. Over unix-seqpacket also beside two threads in C that "
                + "block in send and recv and do the same work. Over memory both ends run on one "
                + "thread, elsewhere each on its own.",
            "many: channels that all send at once on one event loop, with both ends of each: bytes "
                + "of messages a second together, the slowest channel's share over the mean one, "
                + "and the memory and descriptors of one end, idle and busy. And how many "
                + "handshakes a second a listener completes, alone and while unauthenticated peers flood it.",
            "radio: what a channel makes of an LE connection, by a model of the link layer and a "
                + "clock of its own, so that no figure depends on the machine: bulk data a second "
                + "beside the bare L2CAP channel and the limit of the connection, and how long the "
                + "first message takes. docs/radio-model.md says what is modelled and what is not.",
            "l2cap needs two Bluetooth adapters that hear each other, or --connect and another "
                + "machine. With two adapters the packets that the first one sent are counted as "
                + "well, beside the number computed from the sizes of the SDUs; and without --size "
                + "bulk is also sent in SDUs of 512 to 8,192 bytes, to MTUs of these sizes.",
            "--compare takes a move for a change when it is larger than noise: than three standard "
                + "errors of both medians together, which are the spreads over the roots of the "
                + "numbers of samples; and than 8 % for processor time, 25 % for time that "
                + "passes, 0.1 % for what is counted. What seems to have changed is measured "
                + "once more, and reported if it is seen again.",
            "`blesec-bench serve ENDPOINT` is the other end for --connect. It serves whoever comes: "
                + "run it while you measure.",
        ],
        examples: [
            "blesec-bench": "Everything that this machine has.",
            "blesec-bench handshake": "Handshakes alone.",
            "blesec-bench link --transport unix --size 1024 --json -":
                "One kind of link and one size, as JSON.",
            "blesec-bench serve l2cap:any":
                "On the one machine; it prints the endpoint for the other:",
            "blesec-bench engine --compare before.json":
                "Whether sealing became slower since --json wrote that file.",
            "blesec-bench --connect l2cap:AA:BB:CC:DD:EE:FF/0x80": "On the other one.",
        ],
        statuses: [
            .success, .worse, .usage, .badData, .noInput, .noPeer, .refused, .software,
            .cannotCreate, .inputOutput, .timedOut, .protocolError, .untrusted,
        ], run: run)

    private static func run(_ arguments: Arguments) async throws(ChannelError) {
        let settings = try settings(arguments)
        let target = try LinkTarget(arguments)
        if target.remote != nil, !settings.scenarios.contains(.link) {
            throw arguments.usage("--connect is for the scenario link, which is left out")
        }
        // Errors of files are reported before the measurement.
        let old = try arguments.value(compare).map(RecordedReport.init)
        let file = try arguments.value(json).map(ReportFile.init)
        let plot = try arguments.value(svg).map(ReportFile.init)
        let stdoutCount = [file, plot].count { $0?.isStandardOutput == true }
        guard stdoutCount < 2 else {
            throw arguments.usage("--json and --svg cannot both go to standard output")
        }
        let report = try await measure(settings, target)
        try file?.write(JSONWriter.document(ReportJSON(report: report).value))
        try plot?.write(ReportPlots(report: report).svg)
        if stdoutCount == 0 { try StandardOutput.print(ReportText(report: report).text) }
        guard let old else { return }
        let comparison = try await comparison(of: report, with: old, settings, target)
        try StandardOutput.write(
            Array(comparison.text(old.path).utf8),
            to: stdoutCount == 0 ? STDOUT_FILENO : STDERR_FILENO)
        if comparison.isWorse { throw ChannelError(.worse, "") }
    }

    private static func measure(
        _ settings: Settings, _ target: LinkTarget
    ) async throws(ChannelError) -> Report {
        do {
            return try await BenchRun.measure(settings, target)
        } catch {
            throw ChannelError(bench: error)
        }
    }

    /// The changes from an old report, without those that a second run does not confirm.
    private static func comparison(
        of report: Report, with old: RecordedReport, _ settings: Settings, _ target: LinkTarget
    ) async throws(ChannelError) -> Comparison {
        var comparison = Comparison(report.ratios, to: old.ratios)
        guard comparison.common > 0 else {
            throw ChannelError(.badData, "\(old.path) has no ratio in common with this run")
        }
        guard !comparison.changes.isEmpty else { return comparison }
        var narrowed = settings
        narrowed.scenarios = comparison.scenarios
        let again = try await measure(narrowed, target)
        comparison.confirm(by: Comparison(again.ratios, to: old.ratios))
        return comparison
    }

    private static func settings(_ arguments: Arguments) throws(ChannelError) -> Settings {
        var settings = Settings()
        if arguments.has(quick) { settings.makeQuick() }
        settings.measuresRoundTrips = !arguments.has(oneWay)
        let names = arguments.operands + arguments.values(scenario)
        if !names.isEmpty {
            let scenarios = try names.map { name throws(ChannelError) in
                if let scenario = Settings.Scenario(rawValue: name) { return scenario }
                let known = Settings.Scenario.allCases.map(\.rawValue).alternatives
                throw arguments.usage("a scenario is \(known), and not `\(name)`")
            }
            settings.scenarios = Set(scenarios)
        }
        if arguments.has(`protocol`) {
            let names = arguments.values(`protocol`)
            settings.handshakes = names
            // The ends of a link do not have each other's keys; only handshakes in memory allow
            // every pattern.
            settings.protocols = try names.map(
                settings.scenarios == [.handshake]
                    ? EngineChoice.init(handshake:) : EngineChoice.init(protocol:))
        }
        if arguments.has(size) { settings.sizes = try arguments.numbers(size, in: 1...1 << 20) }
        if arguments.has(channels) {
            settings.channels = try arguments.numbers(channels, in: 1...20_000)
        }
        if let count = try arguments.number(rounds, in: 1...1_000) { settings.rounds = count }
        if let milliseconds = try arguments.number(sample, in: 1...60_000) {
            settings.sampleTime = 1e6 * Double(milliseconds)
        }
        // With an explicit number or length of samples, a run may take a day.
        if arguments.has(rounds) || arguments.has(sample) { settings.seconds = 24 * 60 * 60 }
        return settings
    }
}
