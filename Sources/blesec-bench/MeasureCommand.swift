internal import BLESec
internal import BLESecJSON
internal import BLESecToolKit
internal import Glibc

/// `blesec-bench [SCENARIO]... [OPTION]...`
enum MeasureCommand {
    static let scenario = Option(
        name: "--scenario", value: "NAME", isRepeatable: true,
        help: "Measure the scenario NAME. The operand SCENARIO does the same.")
    static let transport = Option(
        name: "--transport", value: "NAME", isRepeatable: true,
        help: "Measure only this kind of link: memory, unix, unix-seqpacket or l2cap. By default "
            + "all kinds that this machine has are measured.")
    static let `protocol` = Option(
        name: "--protocol", value: "NAME", isRepeatable: true,
        help: "Measure this protocol, such as Noise_XX_25519_AESGCM_SHA256 or "
            + "\(TLSContext.protocolName), and a plain link. The default is "
            + "\(ChannelConfiguration.defaultProtocol) and \(TLSContext.protocolName) and, for "
            + "handshakes, also all other patterns and suites.")
    static let size = Option(
        name: "--size", value: "BYTES", isRepeatable: true,
        help: "Measure messages of this size, 1 to 1,048,576 bytes. The default is six sizes from "
            + "64 B to 64 KiB.")
    static let rounds = Option(
        name: "--rounds", value: "COUNT",
        help: "Take COUNT samples of each kind, 1 to 1,000. The default is 5. Samples of different "
            + "kinds are interleaved, and each figure is a median.")
    static let sample = Option(
        name: "--sample", value: "MILLISECONDS",
        help: "The duration of one sample of a link, 1 to 60,000 milliseconds. The default is 30. "
            + "A message that takes longer is a sample of its own.")
    static let channels = Option(
        name: "--channels", value: "COUNT", isRepeatable: true,
        help: "Measure COUNT channels at once, 1 to 20,000. By default 1, 100, 1,000 and 9,900 "
            + "channels are measured.")
    static let loops = Option(
        name: "--loops", value: "COUNT",
        help: "Also spread many channels over COUNT event loops, 1 to 64, with a thread each, and "
            + "measure elapsed time. A number of channels below COUNT is not spread.")
    static let oneWay = Option(
        name: "--one-way", help: "Measure neither messages that go there and back nor streams.")
    static let quick = Option(
        name: "--quick",
        help: "Take fewer and shorter samples. The run ends within 20 seconds, but its figures "
            + "are noisy.")
    static let json = Option(
        name: "--json", value: "FILE",
        help: "Also write all figures to FILE, as JSON. If FILE is -, the JSON goes to standard "
            + "output in place of the tables.")
    static let svg = Option(
        name: "--svg", value: "FILE",
        help: "Draw goodput, round trips and handshakes into FILE, as SVG. If FILE is -, the SVG "
            + "goes to standard output in place of the tables.")
    static let compare = Option(
        name: "--compare", value: "FILE",
        help: "Compare this run with the report in FILE, which --json wrote. Only ratios are "
            + "compared, never times. The changes are printed, and the exit status is 1 when any "
            + "ratio became worse.")
    static let connect = Option(
        name: "--connect", value: "ENDPOINT",
        help: "Measure the link to `blesec-bench serve` at ENDPOINT: l2cap:AA:BB:CC:DD:EE:FF/0x80, "
            + "unix:PATH or unix-seqpacket:PATH.")
    static let adapter = Option(
        name: "--adapter", value: "HCI",
        help: "Dial over l2cap from this Bluetooth adapter, such as hci1. The default is the first "
            + "adapter that is on; with --connect, the kernel's choice.")
    static let peerAdapter = Option(
        name: "--peer-adapter", value: "HCI",
        help: "Without --connect: dial this adapter of the same machine over l2cap.")

    static let command = Command(
        name: "blesec-bench", summary: "measure what encrypted channels cost",
        operands: ["[SCENARIO]..."],
        options: [
            scenario, transport, `protocol`, size, channels, loops, rounds, sample, oneWay, quick,
            json,
            svg, compare, connect, adapter, peerAdapter,
        ],
        description: [
            "Measures, in one run, what sealing a record, sending a message and the link itself "
                + "each cost. Each cost is compared with a limit: the cost of the same work "
                + "without blesec, or a computed or fixed figure. Tables go to standard output. "
                + "A line of progress goes to standard error if that is a terminal. The run ends "
                + "within 150 seconds on two cores, unless --rounds, --sample, --channels or --loops "
                + "request more.",
            "Measures each SCENARIO that is named, or all scenarios if none is named.",
            "engine: the processor time to seal and open one record, for each layer above the "
                + "cipher, as a multiple of the limit. The limit (raw) is the time that the faster "
                + "of libsodium and OpenSSL takes, called from C on the same buffer. For TLS, the "
                + "limit is the time that two ends of OpenSSL alone take for the same bytes.",
            "handshake: the processor time of each side of a handshake in memory, from nothing to "
                + "the keys for transport, and the bytes that each side sends. The time is also "
                + "given as a multiple of the limit. The limit is the time that the handshake's "
                + "primitives alone take when they are called from C: every key generation, DH "
                + "operation, hash, HKDF and AEAD call. Any Noise protocol can be measured in this "
                + "way. For TLS, the limit is the time of two ends of OpenSSL alone, driven from C "
                + "with the same settings and certificates. A run without --protocol also measures "
                + "TLS that resumes a session, which has no limit. IK, XXfallback and XX are the "
                + "handshakes of Noise Pipes.",
            "link: the message bytes per second one way, and the time of a message there and back. "
                + "Both are compared with a plain link: the same messages in the same pieces, with "
                + "nothing sealed, acknowledged or proven. Over unix-seqpacket, both are also "
                + "compared with two threads in C that block in send and recv and do the same "
                + "work. Over memory, both ends run on one thread. Elsewhere, each end runs on its "
                + "own thread. A run without --protocol and --connect also measures connections whose "
                + "messages arrive exactly once, over the default protocol and without stores: the "
                + "tables call them exactly-once. It also measures an urgent stream of such a "
                + "connection beside bulk streams. Over memory and with the default protocol, such "
                + "connections are also measured with stores on disk, in TMPDIR or /tmp, and the "
                + "commits of the stores are counted.",
            "many: channels that all send at once on one event loop, which runs both ends of each "
                + "channel. The figures are the message bytes of all channels together per second "
                + "of processor time, with messages of \(ChannelGroup.messageSize.bytes), one and "
                + "\(ManyScenario.batch) in each send; the number of messages on the slowest "
                + "channel, divided by the mean of all channels; and the memory and descriptors of "
                + "one end, idle and busy. The bytes per second are also compared with one epoll "
                + "loop in C that does the same work. With --loops, the channels are also spread "
                + "over several loops. "
                + "Another figure is the number of handshakes per second that a listener "
                + "completes, alone and while unauthenticated peers flood it.",
            "radio: the speed of a channel over an LE connection. A model of the link layer, with "
                + "a clock of its own, computes all figures, so that no figure depends on the "
                + "machine. The figures are the bulk data per second, compared with the bare "
                + "L2CAP channel and with the limit, which is the highest rate that the "
                + "connection's parameters permit; and the time that the first message takes. "
                + "docs/radio-model.md says what is modelled and what is not.",
            "l2cap needs two Bluetooth adapters that hear each other, or --connect and another "
                + "machine. With two adapters, the packets that the first adapter sent are counted "
                + "as well, and shown beside the number computed from the sizes of the SDUs. With "
                + "two adapters and without --size, bulk data is also sent in SDUs of 512 to 8,192 "
                + "bytes, to receivers with MTUs of these sizes.",
            "--compare reports a difference between two medians only when the difference is larger "
                + "than noise. The difference has to exceed three standard errors of both medians "
                + "together. The standard error of a median is the spread divided by the square "
                + "root of the number of samples. The difference also has to exceed 8 % for "
                + "ratios of processor times, 25 % for ratios of elapsed times and 0.1 % for "
                + "ratios of counts. What seems to have changed is measured once more, and is "
                + "reported only if the change is seen again.",
            "The bench keeps freed memory for the next message (mallopt(3): M_TRIM_THRESHOLD, "
                + "M_MMAP_THRESHOLD). With glibc's default settings, memory can go back to the "
                + "kernel after each message of 16 KiB or more, which takes up to a third of the "
                + "time of a Unix link. Whether memory goes back depends on what else is allocated.",
            "`blesec-bench serve ENDPOINT` is the other end for --connect. It serves any peer, so "
                + "run it only while you measure.",
        ],
        examples: [
            "blesec-bench": "Measure everything that this machine has.",
            "blesec-bench handshake": "Measure only handshakes.",
            "blesec-bench link --transport unix --size 1024 --json -":
                "Measure one kind of link and one size, and print JSON.",
            "blesec-bench serve l2cap:any":
                "Serve on one machine. The command prints the endpoint for the other machine.",
            "blesec-bench engine --compare before.json":
                "Check whether sealing became slower since --json wrote that file.",
            "blesec-bench --connect l2cap:AA:BB:CC:DD:EE:FF/0x80":
                "Measure on the other machine.",
        ],
        statuses: [
            .success, .becameWorse, .usage, .badData, .noInput, .noPeer, .refused, .software,
            .cannotCreate, .inputOutput, .timedOut, .protocolError, .untrusted,
        ], run: run)

    private static func run(_ arguments: Arguments) async throws(ChannelError) {
        let settings = try settings(arguments)
        if !settings.scenarios.contains(.link) {
            try arguments.refuse(
                [connect, adapter, peerAdapter], "is for the scenario link, which is left out")
        }
        let target = try LinkTarget(arguments)
        // Opens all files before the measurement, so that their errors are reported at once.
        let old = try arguments.value(compare).map(RecordedReport.init)
        let file = try arguments.value(json).map(ReportFile.init)
        let plot = try arguments.value(svg).map(ReportFile.init)
        let stdoutCount = [file, plot].count { $0?.isStandardOutput == true }
        guard stdoutCount < 2 else {
            throw arguments.usage("--json and --svg cannot both go to standard output")
        }
        if let file, let plot, file.isSameFile(as: plot) {
            throw arguments.usage("--json and --svg name the same file")
        }
        let report = try await measure(settings, target)
        try file?.write(JSONWriter.document(ReportJSON(report: report).value))
        try plot?.write(ReportPlots(report: report).svg)
        if stdoutCount == 0 { try StandardOutput.print(ReportText(report: report).text) }
        guard let old else { return }
        let comparison = try await comparison(of: report, with: old, settings, target)
        try StandardOutput.write(
            Array(comparison.text(comparedWith: old.path).utf8),
            to: stdoutCount == 0 ? STDOUT_FILENO : STDERR_FILENO)
        if comparison.isWorse { throw ChannelError(.becameWorse, "") }
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

    /// The changes between the report `old` and this run that a second run confirms.
    private static func comparison(
        of report: Report, with old: RecordedReport, _ settings: Settings, _ target: LinkTarget
    ) async throws(ChannelError) -> Comparison {
        var comparison = Comparison(report.ratios, to: old.ratios)
        guard comparison.commonCount > 0 else {
            throw ChannelError(.badData, "\(old.path) has no ratio in common with this run")
        }
        guard !comparison.changes.isEmpty else { return comparison }
        var narrowed = settings
        narrowed.scenarios = comparison.scenarios
        let secondReport = try await measure(narrowed, target)
        comparison.confirm(by: Comparison(secondReport.ratios, to: old.ratios))
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
            let names = arguments.values(`protocol`).unique
            settings.handshakeProtocols = names
            // The ends of a link do not have each other's keys; only handshakes in memory allow
            // every pattern.
            settings.protocols = try names.map(
                settings.scenarios == [.handshake]
                    ? EngineChoice.init(handshake:) : EngineChoice.init(protocol:))
        }
        if arguments.has(size) {
            settings.sizes = try arguments.numbers(size, in: 1...1 << 20).unique
        }
        if arguments.has(channels) {
            settings.channels = try arguments.numbers(channels, in: 1...20_000).unique
        }
        settings.loops = try arguments.number(loops, in: 1...64)
        if let count = try arguments.number(rounds, in: 1...1_000) { settings.rounds = count }
        if let milliseconds = try arguments.number(sample, in: 1...60_000) {
            settings.sampleTime = 1e6 * Double(milliseconds)
        }
        // With an explicit number or length of samples, a run may take a day.
        if arguments.has(rounds) || arguments.has(sample) {
            settings.timeLimitSeconds = 24 * 60 * 60
        }
        return settings
    }
}
