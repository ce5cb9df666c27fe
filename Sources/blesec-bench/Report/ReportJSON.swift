internal import BLESecJSON
internal import BLESecToolKit

extension Report {
    /// The schema of ``json``, with its version, which changes when a member's meaning changes.
    static let schema = "blesec-bench/1"

    /// The report for programs; `docs/bench.md` and `docs/bench.schema.json` describe its members.
    var json: JSONValue {
        .object([
            ("schema", .string(Self.schema)),
            ("version", .string(Program.version)),
            ("machine", machine),
            (
                "settings",
                .object([
                    ("optimized", .bool(HostInfo.isOptimized)),
                    ("rounds", .number(settings.rounds)),
                    ("sample-nanoseconds", .real(settings.sampleTime)),
                ])
            ),
            ("engine", .array(engine.map(\.json))),
            ("handshake", .array(handshake.map(\.json))),
            ("link", .array(link.map(\.json))),
            ("sdus", .array(sdus.map(\.json))),
            ("packets", .array(packets.map(\.json))),
            ("many", manyJSON),
            ("flood", floodJSON),
            ("strangers", strangersJSON),
            ("radio", radioJSON),
            ("ratios", .array(ratios.map(\.json))),
            ("omissions", .array(omissions.map { .string($0) })),
        ])
    }

    private var machine: JSONValue {
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
    fileprivate var json: JSONValue {
        .object(members)
    }

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
