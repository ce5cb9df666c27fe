internal import BLESecJSON
internal import BLESecRadioModel
internal import BLESecToolKit

/// A report for programs; `docs/bench.md` and `docs/bench.schema.json` describe its members.
struct ReportJSON {
    /// The schema, with its version, which changes when a member's meaning changes.
    static let schema = "blesec-bench/1"

    private let report: Report

    init(_ report: Report) { self.report = report }

    /// The whole report.
    var value: JSONValue {
        .object([
            ("schema", .string(Self.schema)),
            ("version", .string(Program.version)),
            ("machine", Self.machine),
            (
                "settings",
                .object([
                    ("optimized", .bool(HostInfo.isOptimized)),
                    ("rounds", .number(report.settings.rounds)),
                    ("sample-nanoseconds", .real(report.settings.sampleTime)),
                ])
            ),
            ("engine", .array(report.engine.map(\.json))),
            ("handshake", .array(report.handshake.map(\.json))),
            ("link", .array(report.link.map(\.json))),
            ("sdus", .array(report.sdus.map(\.json))),
            ("packets", .array(report.packets.map(\.json))),
            ("many", .array(report.many.map(\.json))),
            ("flood", .array(report.flood.map(\.json))),
            ("strangers", .array(report.strangers.map(\.json))),
            ("radio", .array(report.radio.map(\.json))),
            ("ratios", .array(report.ratios.map(\.json))),
            ("omissions", .array(report.omissions.map { .string($0) })),
        ])
    }

    private static var machine: JSONValue {
        let machine = HostInfo.this
        return .object([
            ("processor", .string(machine.processor)),
            ("cores", .number(machine.cores)),
            ("kernel", .string(machine.kernel)),
            ("libsodium", .string(machine.sodium)),
            ("openssl", .string(machine.openSSL)),
        ])
    }
}

extension Summary {
    fileprivate var json: JSONValue { .object(members) }

    fileprivate var members: [(String, JSONValue)] {
        [
            ("median", .real(median)), ("least", .real(least)), ("most", .real(most)),
            ("spread", .real(spread)), ("count", .number(count)),
        ]
    }
}

extension Ratio {
    fileprivate var json: JSONValue {
        .object(
            [
                ("name", .string(name)), ("to", .string(limit)), ("basis", .string(basis.rawValue)),
                ("less-is-better", .bool(lessIsBetter)),
            ] + summary.members)
    }
}

extension EngineScenario.Result {
    fileprivate var json: JSONValue {
        .object([
            ("protocol", .string(suite)),
            ("layer", .string(layer)),
            ("library", library.map { .string($0) } ?? .null),
            ("size", .number(size)),
            ("nanoseconds", time.json),
            ("ratio-to-raw", ratio.json),
        ])
    }
}

extension HandshakeScenario.Result {
    fileprivate var json: JSONValue {
        .object([
            ("protocol", .string(name)),
            ("dialer-nanoseconds", time.dialer.json),
            ("acceptor-nanoseconds", time.acceptor.json),
            ("flights", flights.json),
            ("bytes", bytes.json),
            ("primitives", limit?.primitives ?? .null),
            ("openssl", limit?.openSSL ?? .null),
        ])
    }
}

extension HandshakeScenario.Limit {
    /// The cost of the primitives, if they are the limit.
    fileprivate var primitives: JSONValue? {
        calls.map { calls in
            .object(
                figures + [
                    ("key-pairs", .number(calls.keyPairs)),
                    ("products", .number(calls.products)),
                    ("hashes", .number(calls.hashes)),
                    ("hkdfs", .number(calls.hkdfs)),
                    ("seals", .number(calls.seals)),
                    ("opens", .number(calls.opens)),
                ])
        }
    }

    /// The cost of OpenSSL alone, if that is the limit.
    fileprivate var openSSL: JSONValue? { calls == nil ? .object(figures) : nil }

    private var figures: [(String, JSONValue)] {
        [("nanoseconds", time.json), ("ratio", ratio.json)]
    }
}

extension BothSides<Int> {
    fileprivate var json: JSONValue {
        .object([("dialer", .number(dialer)), ("acceptor", .number(acceptor))])
    }
}

extension LinkScenario.Result {
    fileprivate var json: JSONValue {
        .object([
            ("transport", .string(transport)),
            ("engine", .string(engine)),
            ("size", .number(size)),
            ("rounds", .number(rounds)),
            ("goodput-bytes-per-second", goodput.json),
            ("goodput-ratio-to-plain", goodputRatio?.json ?? .null),
            ("goodput-ratio-to-blocking-c", goodputToBlocking?.json ?? .null),
            ("round-trip-nanoseconds", roundTrip?.json ?? .null),
            ("round-trip-ratio-to-plain", roundTripRatio?.json ?? .null),
            ("round-trip-ratio-to-blocking-c", blockingRatio?.json ?? .null),
        ])
    }
}

extension SDUScenario.Result {
    fileprivate var json: JSONValue {
        .object([
            ("engine", .string(link.engine)),
            ("mtu", .number(sizes.mtu)),
            ("sdu", .number(sizes.sdu)),
            ("size", .number(link.size)),
            ("rounds", .number(link.rounds)),
            ("goodput-bytes-per-second", link.goodput.json),
            ("goodput-ratio-to-plain", link.goodputRatio?.json ?? .null),
        ])
    }
}

extension LinkScenario.Percentiles {
    fileprivate var json: JSONValue {
        .object([
            ("p50", .real(p50)), ("p90", .real(p90)), ("p99", .real(p99)), ("max", .real(longest)),
        ])
    }
}

extension PacketScenario.Result {
    fileprivate var json: JSONValue {
        .object([
            ("engine", .string(engine)),
            ("size", .number(size)),
            ("messages", .number(messages)),
            ("sdus", .number(sdus)),
            ("sdu-bytes", .number(sduBytes)),
            ("message-share", .real(messageShare)),
            ("packets", .number(packets)),
            ("packets-computed", .number(computedPackets)),
        ])
    }
}

extension ManyScenario.Result {
    fileprivate var json: JSONValue {
        .object([
            ("engine", .string(engine)),
            ("transport", .string(link.rawValue)),
            ("channels", .number(channels)),
            ("opened-per-second", .real(handshakes)),
            ("goodput-bytes-per-second", .real(goodput)),
            ("slowest-over-mean", .real(fairness)),
            ("idle", idle.json),
            ("busy", busy.json),
        ])
    }
}

extension ManyScenario.Cost {
    fileprivate var json: JSONValue {
        .object([
            ("resident-bytes-per-end", .real(memory)),
            ("heap-bytes-per-end", .real(heap)),
            ("descriptors-per-end", .real(descriptors)),
            ("threads", .number(threads)),
            ("maps", .number(maps)),
            ("locked-bytes", .number(locked)),
        ])
    }
}

extension FloodScenario.Result {
    fileprivate var json: JSONValue {
        .object([
            ("engine", .string(engine)),
            ("handshakes-per-second-alone", .real(alone)),
            ("handshakes-per-second-flooded", .real(flooded)),
            ("failed-share", .real(failures)),
            ("strangers-per-second", .real(strangers)),
            ("friends", .array(friends.map(\.json))),
        ])
    }
}

extension FloodScenario.Result.Friends {
    fileprivate var json: JSONValue {
        .object([
            ("strangers", .string(crowd.rawValue)),
            ("least-round-trip-milliseconds", .number(kind.roundTrip.lowerBound)),
            ("most-round-trip-milliseconds", .number(kind.roundTrip.upperBound)),
            ("dials", .number(count.dials)),
            ("served-at-once-share", .real(count.servedAtOnceShare)),
            ("served-share", .real(count.servedShare)),
        ])
    }
}

extension UnauthenticatedCost {
    fileprivate var json: JSONValue {
        .object([
            ("engine", .string(engine)),
            ("silent-bytes", .real(silent)),
            ("answered-bytes", .real(answered)),
            ("unfinished-bytes", .real(unfinished)),
            ("processor-nanoseconds", .real(processorTime)),
        ])
    }
}

extension RadioScenario.Result {
    fileprivate var json: JSONValue {
        .object([
            ("modelled", .bool(true)),
            ("variation", variation.map { .string($0) } ?? .null),
            ("engine", .string(engine ?? "bare")),
            ("phy", .string(parameters.phy.rawValue)),
            ("interval-nanoseconds", .number(Int(parameters.interval))),
            ("data-length", .number(parameters.dataLength)),
            ("link-encrypted", .bool(parameters.isLinkEncrypted)),
            ("loss", .real(parameters.loss)),
            ("seed", .number(Int(parameters.seed))),
            ("mtu", .number(parameters.mtu)),
            ("sdu", .number(parameters.sdu)),
            ("mps", .number(parameters.mps)),
            ("credits", .string(parameters.credits == .linux ? "linux" : "ample")),
            ("host-delay-nanoseconds", .number(Int(parameters.hostDelay))),
            ("limit-bytes-per-second", .real(parameters.limit)),
            ("goodput-bytes-per-second", .real(goodput)),
            ("goodput-ratio-to-bare", ratio.map { .real($0) } ?? .null),
            ("first-message-nanoseconds", opening?.times ?? .null),
            ("short-message", opening?.packets ?? .null),
        ])
    }
}

extension RadioScenario.Opening {
    fileprivate var times: JSONValue {
        .object([
            ("dialer", .real(firstMessage.dialer)), ("acceptor", .real(firstMessage.acceptor)),
        ])
    }

    fileprivate var packets: JSONValue {
        .object([
            ("bytes", .number(RadioScenario.shortMessage)),
            ("sdus", .number(shortMessage.sdus)),
            ("sdu-bytes", .number(shortMessage.bytes)),
            ("packets", .number(shortMessage.packets)),
        ])
    }
}
