internal import BLESec
internal import ToolKit

/// `blesec-bench [OPTION]...`
enum MeasureCommand {
    static let command = Command(manual: manual) { arguments throws(ChannelError) in
        try await run(arguments)
    }

    static let scenario = Option(
        name: "--scenario", value: "NAME", isRepeatable: true,
        help: "Measure only this: engine (sealing and opening records, layer by layer), handshake "
            + "(in memory) or link (messages over links).")
    static let transport = Option(
        name: "--transport", value: "NAME", isRepeatable: true,
        help: "Measure only this kind of link: memory, unix, unix-seqpacket or l2cap. Without it, "
            + "all that this machine has.")
    static let `protocol` = Option(
        name: "--protocol", value: "NAME", isRepeatable: true,
        help: "Measure this protocol beside the plain link, such as "
            + "Noise_XX_25519_AESGCM_SHA256. Without it, \(ChannelConfiguration.defaultProtocol), "
            + "and the handshakes of all patterns and all suites.")
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
    static let oneWay = Option(
        name: "--one-way", help: "Leave out messages that go there and back.")
    static let quick = Option(
        name: "--quick", help: "Take fewer and shorter samples: done within 15 seconds, but noisy.")
    static let json = Option(
        name: "--json", value: "FILE",
        help: "Write everything to FILE as well, as JSON; to standard output, in place of the "
            + "tables, when FILE is -.")
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

    private static let manual = Manual(
        name: "blesec-bench", summary: "measure what encrypted channels cost",
        options: [
            scenario, transport, `protocol`, size, rounds, sample, oneWay, quick, json, connect,
            adapter,
            peerAdapter,
        ],
        description: [
            "Tells apart what sealing a record, sending a message and the link itself cost, in one "
                + "run, each beside its limit. Prints tables to standard output, and while it "
                + "works a line of progress to standard error if that is a terminal. Ends within "
                + "60 seconds on two cores, unless --rounds or --sample ask for more.",
            "engine: processor time to seal and open one record, as a multiple of what the faster "
                + "one of libsodium and OpenSSL takes from C over the same buffer (raw), for each "
                + "layer above it.",
            "handshake: processor time of each side of a handshake in memory, from nothing to the "
                + "keys for transport, with what travels; and as a multiple of what its primitives "
                + "take by themselves from C, every key pair, product, hash, HKDF and AEAD call "
                + "counted. Any Noise protocol can be measured so.",
            "link: bytes of messages a second one way, and the time of a message there and back, "
                + "beside a plain link: the same messages in the same pieces with nothing sealed, "
                + "acknowledged or proven. Over unix-seqpacket also beside two threads in C that "
                + "block in send and recv and do the same work. Over memory both ends run on one "
                + "thread, elsewhere each on its own.",
            "l2cap needs two Bluetooth adapters that hear each other, or --connect and another "
                + "machine. There the packets that the adapter sent are counted as well, beside "
                + "the number computed from the sizes of the SDUs.",
            "`blesec-bench serve ENDPOINT` is the other end for --connect. It serves whoever comes: "
                + "run it while you measure.",
        ],
        examples: [
            ("blesec-bench", "Everything that this machine has."),
            (
                "blesec-bench --scenario link --transport unix --size 1024 --json -",
                "One kind of link and one size, as JSON."
            ),
            (
                "blesec-bench serve l2cap:any",
                "On the one machine; it prints the endpoint for the other:"
            ),
            ("blesec-bench --connect l2cap:AA:BB:CC:DD:EE:FF/0x80", "On the other one."),
        ],
        statuses: [
            .success, .usage, .noPeer, .refused, .software, .cannotCreate, .inputOutput, .timedOut,
            .protocolError, .untrusted,
        ])

    private static func run(_ arguments: Arguments) async throws(ChannelError) {
        let settings = try settings(arguments)
        let place = try LinkPlace(arguments)
        // A file that cannot be written is told before anything is measured.
        let file = try arguments.value(json).map { path throws(ChannelError) in
            try ReportFile(path)
        }
        var report = Report(settings)
        do {
            try await report.measure(settings, place)
        } catch {
            throw ChannelError(bench: error)
        }
        try file?.write(JSON.document(report.json))
        if file?.isStandardOutput != true { try StandardOutput.print(report.text) }
    }

    private static func settings(_ arguments: Arguments) throws(ChannelError) -> Settings {
        var settings = Settings()
        if arguments.has(quick) { settings.makeQuick() }
        settings.measuresRoundTrips = !arguments.has(oneWay)
        let names = arguments.values(scenario)
        if !names.isEmpty {
            settings.scenarios = []
            for name in names {
                guard let scenario = Settings.Scenario(rawValue: name) else {
                    throw arguments.usage(
                        "--scenario is engine, handshake or link, and not `\(name)`")
                }
                settings.scenarios.insert(scenario)
            }
        }
        if arguments.has(`protocol`) {
            let names = arguments.values(`protocol`)
            settings.handshakes = names
            // The ends of a link have no keys of each other; handshakes in memory need none.
            settings.protocols = try names.map { name throws(ChannelError) in
                settings.scenarios == [.handshake]
                    ? try EngineChoice(handshake: name) : try EngineChoice(protocol: name)
            }
        }
        if arguments.has(size) {
            settings.sizes = try arguments.values(size).map { text throws(ChannelError) in
                try number(text, 1...1 << 20, of: size, arguments)
            }
        }
        if let text = arguments.value(rounds) {
            settings.rounds = try number(text, 1...1_000, of: rounds, arguments)
        }
        if let text = arguments.value(sample) {
            settings.sampleTime = 1e6 * Double(try number(text, 1...60_000, of: sample, arguments))
        }
        // Who asks for so much gets it.
        if arguments.has(rounds) || arguments.has(sample) { settings.seconds = 24 * 60 * 60 }
        return settings
    }

    private static func number(
        _ text: String, _ range: ClosedRange<Int>, of option: Option, _ arguments: Arguments
    ) throws(ChannelError) -> Int {
        guard let number = Int(text), range.contains(number) else {
            throw arguments.usage(
                "\(option.name) is a number from \(range.lowerBound) to \(range.upperBound), "
                    + "and not `\(text)`")
        }
        return number
    }
}
