internal import BLESecJSON
internal import BLESec
internal import BLESecToolKit

// The scenario of many channels in a report.
extension Report {
    private static let engines = [ChannelConfiguration.defaultProtocol, TLSContext.protocolName]

    /// The steps of the progress line.
    var manySteps: Int {
        guard settings.scenarios.contains(.many) else { return 0 }
        return settings.channels.count + (settings.channels.isEmpty ? 0 : 1) + 2
    }

    mutating func measureMany(_ show: (String) -> Void) async throws {
        let limit = ProcessState.raiseDescriptorLimit()
        let scenario = ManyScenario()
        for engine in Self.engines {
            let peers = try PeerConfigurations(engine)
            // The second engine only with the largest number of channels, where memory is measured
            // best.
            let counts =
                engine == Self.engines[0]
                ? settings.channels : settings.channels.max().map { [$0] } ?? []
            for count in counts {
                show("many, \(engine.shortProtocol), \(count)")
                let result = try await scenario.measure(
                    engine, peers, channels: count, descriptorLimit: limit)
                many.append(result)
                let note =
                    "\(count) channels ran over memory and not over sockets: this process may "
                    + "have \(limit) descriptors (`ulimit -Hn`)."
                if result.link == .memory, !omissions.contains(note) { omissions.append(note) }
            }
        }
        show("many, what an unauthenticated peer costs")
        for engine in Self.engines {
            strangers.append(
                try await UnauthenticatedCost.measure(engine, PeerConfigurations(engine)))
        }
        show("many, a listener under unauthenticated peers")
        let engine = Self.engines[0]
        let listener = FloodScenario(window: settings.isQuick ? 300_000_000 : 1_000_000_000)
        flood.append(try await listener.measure(engine, PeerConfigurations(engine)))
    }

    var manyText: String {
        var table = Table(
            [
                "channels", "", "MB/s", "slowest/mean", "opened/s", "idle, KiB", "heap",
                "busy, KiB", "descriptors", "threads", "maps",
            ], words: [1])
        for result in many {
            // With few ends, other changes of the process's memory exceed the ends' memory.
            let memory = [result.idle.memory, result.idle.heap, result.busy.memory].map {
                result.channels < 10 ? "" : kibibytes($0)
            }
            table.append([
                "\(result.channels)", result.engine.shortProtocol, (result.goodput / 1e6).short,
                result.fairness.fixed(2), result.handshakes.fixed(0), memory[0], memory[1],
                memory[2], result.busy.descriptors.fixed(1), "\(result.busy.threads)",
                "\(result.busy.maps)",
            ])
        }
        return "Many channels on one loop: all together, and what one end of one takes; threads "
            + "and maps of all\n\n\(table.text)"
    }

    var floodText: String {
        var table = Table(["", "alone/s", "in a flood/s", "failed, %", "flood/s"])
        var friends = Table(
            ["strangers", "round trip, ms", "dials", "1st try, %", "two tries, %"], words: [0])
        var costs = Table(["", "silent, KiB", "answered", "unfinished", "answered, µs"])
        for result in flood {
            table.append([
                result.engine.shortProtocol, result.alone.fixed(0), result.flooded.fixed(0),
                (100 * result.failures).fixed(1), result.strangers.fixed(0),
            ])
            for group in result.friends {
                let roundTrip = group.kind.roundTrip
                friends.append([
                    group.crowd.rawValue,
                    roundTrip.count == 1
                        ? "\(roundTrip.lowerBound)"
                        : "\(roundTrip.lowerBound)-\(roundTrip.upperBound)",
                    "\(group.count.dials)", (100 * group.count.servedAtOnceShare).fixed(1),
                    (100 * group.count.servedShare).fixed(1),
                ])
            }
        }
        for cost in strangers {
            costs.append([
                cost.engine.shortProtocol, kibibytes(cost.silent), kibibytes(cost.answered),
                kibibytes(cost.unfinished), (cost.processorTime / 1e3).fixed(0),
            ])
        }
        return
            "Handshakes of a listener, alone and among \(UnauthenticatedFlood.fullSpeed.links) links of "
            + "unauthenticated peers who stay until they are turned away\n\n\(table.text)\n"
            + "Friends who were served, near and far\n\n\(friends.text)\n"
            + "What one unauthenticated peer costs the listener\n\n\(costs.text)"
    }

    private func kibibytes(_ bytes: Double) -> String { (bytes / 1_024).short }

    var manyJSON: JSONValue { .array(many.map(\.json)) }
    var floodJSON: JSONValue { .array(flood.map(\.json)) }
    var strangersJSON: JSONValue { .array(strangers.map(\.json)) }
}

extension ManyScenario.Result {
    /// The limit of an idle end's memory, in bytes.
    private var idleLimit: Int { engine == TLSContext.protocolName ? 64 << 10 : 16 << 10 }

    var toLimits: [Ratio] {
        // The first channels include the memory that they make the process load.
        guard channels >= 100 else { return [] }
        let name = "many/\(engine)/\(channels)"
        return [
            Ratio(
                name: "\(name)/idle-memory", limit: "\(idleLimit.bytes)", basis: .wall,
                lessIsBetter: true, summary: Summary([idle.memory / Double(idleLimit)])),
            Ratio(
                name: "\(name)/slowest", limit: "mean", basis: .wall, lessIsBetter: false,
                summary: Summary([fairness])),
        ]
    }

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
