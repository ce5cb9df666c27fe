internal import BLESec
internal import BLESecRadioModel

/// A report as tables.
struct ReportText {
    let report: Report

    var text: String {
        let host = HostInfo.this
        var parts = ["\(host.machine), libsodium \(host.sodium), \(host.openSSL)\n"]
        if !report.engine.isEmpty { parts.append(engineText) }
        if !report.handshake.isEmpty { parts.append(handshakeText) }
        if !report.link.isEmpty { parts.append(linkText) }
        if !report.sdus.isEmpty { parts.append(sduText) }
        if !report.packets.isEmpty { parts.append(packetText) }
        if !report.stores.isEmpty { parts.append(storeText) }
        if !report.streams.isEmpty { parts.append(streamText) }
        if !report.radio.isEmpty { parts.append(radioText) }
        if !report.radioStreams.isEmpty { parts.append(radioStreamText) }
        if !report.many.isEmpty { parts.append(manyText) }
        if !report.loops.isEmpty { parts.append(loopsText) }
        if !report.listeners.isEmpty { parts.append(listenerText) }
        if !report.flood.isEmpty { parts.append(floodText) }
        if !report.unauthenticatedCosts.isEmpty { parts.append(unauthenticatedCostText) }
        parts += report.omissions.map { $0 + "\n" }
        return parts.joined(separator: "\n")
    }

    private var engineText: String {
        var text =
            "Sealing and opening one record: processor time, as a multiple of the raw primitive\n"
        for protocolName in report.engine.map(\.protocolName).unique {
            let results = report.engine.filter { $0.protocolName == protocolName }
            let layers = results.map(\.layer).unique
            var table = Table(
                ["size", "raw, ns", "library"] + layers.dropFirst().map { "\($0), ×" },
                words: [0, 2])
            for raw in results where raw.library != nil {
                let layerResults = results.filter { $0.size == raw.size && $0.library == nil }
                table.append(
                    [raw.size.bytes, raw.time.median.fixed(0), raw.library ?? ""]
                        + layerResults.map { $0.ratio.median.fixed(2) })
            }
            text += "\n\(protocolName)\n\(table.text)"
        }
        return text
    }

    private var handshakeText: String {
        let rows = report.handshake.map { result in
            [
                result.name.shortProtocol, microseconds(result.time.dialer.median),
                microseconds(result.time.acceptor.median),
                "\(result.flights.dialer)+\(result.flights.acceptor)",
                "\(result.bytes.dialer)", "\(result.bytes.acceptor)",
                microseconds(result.reference?.time.median), multiple(result.reference?.ratio),
            ]
        }
        let heading = [
            "protocol", "dialer, µs", "acceptor, µs", "flights", "dialer, B", "acceptor, B",
            "from C, µs", "× C",
        ]
        return "Handshakes in memory: processor time, flights (dialer + acceptor), and bytes "
            + "sent\n`from C` is the time that C code takes for the same work, `× C` the ratio of "
            + "both sides' time to this time\n\n\(Table(heading, rows: rows).text)"
    }

    private var linkText: String {
        var text =
            "Messages over a link: goodput one way, and percentiles of the time there and back\n"
            + "`× plain` is the ratio to the plain link, `× C` to two blocking threads in C\n"
        for transport in report.link.map(\.transport).unique {
            let results = report.link.filter { $0.transport == transport }
            let hasBlocking = results.contains { $0.goodputRatioToBlocking != nil }
            let ratioToC = hasBlocking ? ["× C"] : []
            var heading = [transport, "engine", "MB/s", "× plain"] + ratioToC
            heading += ["p50, µs", "p90", "p99", "max", "× plain"] + ratioToC
            var table = Table(heading, words: [0, 1])
            for result in results {
                var row = [result.size.bytes] + goodput(result)
                if hasBlocking { row.append(multiple(result.goodputRatioToBlocking)) }
                let times = result.roundTrip
                row += [times?.p50, times?.p90, times?.p99, times?.longest].map(microseconds)
                row.append(multiple(result.roundTripRatio))
                if hasBlocking { row.append(multiple(result.roundTripRatioToBlocking)) }
                table.append(row)
            }
            text += "\n\(table.text)"
        }
        return text
    }

    /// The engine, the goodput in MB/s, and its ratio to the plain link's goodput.
    private func goodput(_ result: LinkScenario.Result) -> [String] {
        [
            result.engine.shortProtocol, (result.goodput.median / 1e6).short,
            multiple(result.goodputRatio),
        ]
    }

    private func microseconds(_ time: Double?) -> String { time.map { ($0 / 1e3).short } ?? "" }
    private func multiple(_ ratio: Summary?) -> String { ratio?.median.fixed(2) ?? "" }
    private func kibibytes(_ bytes: Double) -> String { (bytes / 1_024).short }
    private func kilobits(_ bytes: Double) -> String { (bytes * 8 / 1e3).fixed(0) }

    private var sduText: String {
        let table = Table(
            ["MTU", "SDU", "engine", "MB/s", "× plain"], words: [2],
            rows: report.sdus.map {
                ["\($0.sizes.mtu)", "\($0.sizes.sdu)"] + goodput($0.link)
            })
        return "Messages of \(SDUScenario.messageSize.bytes) one way over l2cap, in SDUs of "
            + "several sizes\n\n\(table.text)"
    }

    private var packetText: String {
        let table = Table(
            [
                "size", "engine", "messages", "SDUs", "message bytes, % of SDUs", "packets",
                "computed packets",
            ], words: [0, 1],
            rows: report.packets.map {
                [
                    $0.size.bytes, $0.engine.shortProtocol, "\($0.messages)", "\($0.sdus)",
                    (100 * $0.messageShare).fixed(2), "\($0.packets)", "\($0.computedPackets)",
                ]
            })
        return "Packets that the adapter sent for messages one way over l2cap\n\n\(table.text)"
    }

    private var storeText: String {
        let table = Table(
            [
                "size", "messages/s", "× without stores", "commits/s", "messages/commit, sender",
                "messages/commit, receiver",
            ],
            rows: report.stores.map {
                [
                    $0.size.bytes, $0.rate.median.fixed(0), multiple($0.rateRatio),
                    $0.commitRate.median.fixed(0), $0.messagesPerCommit.dialer.median.short,
                    $0.messagesPerCommit.acceptor.median.short,
                ]
            })
        return "Messages exactly once over memory with stores on disk, queued without waiting\n\n"
            + table.text
    }

    private var streamText: String {
        let table = Table(
            [
                "link", "idle, µs", "busy, µs", "busy/idle", "paced idle, µs", "paced busy, µs",
                "busy/idle", "bulk, MB/s", "with urgent, ×", "with paced, ×", "two bulk, ×",
            ], words: [0],
            rows: report.streams.map {
                [
                    $0.transport, microseconds($0.idle.p50), microseconds($0.busy.p50),
                    multiple($0.busyRatio), microseconds($0.pacedIdle.p50),
                    microseconds($0.pacedBusy.p50), multiple($0.pacedRatio),
                    ($0.goodput.median / 1e6).short, multiple($0.busyShare),
                    multiple($0.pacedShare), multiple($0.twoStreamsRatio),
                ]
            })
        return
            "\(StreamPair.urgentSize.bytes) there and back on an urgent stream: without a bulk "
            + "stream (idle) and beside one (busy),\nwithout and with a pause before each message "
            + "(paced); and the goodput of a bulk stream (×: as a multiple of this goodput)\n\n\(table.text)"
    }

    private var radioStreamText: String {
        let table = Table(
            [
                "PHY, interval in ms", "idle, ms", "busy, ms", "busy, intervals",
                "busy, KiB of bulk", "bulk, kbit/s", "with urgent, ×",
            ],
            rows: report.radioStreams.map {
                [
                    $0.parameters.name, ($0.idle.longest / 1e6).fixed(1),
                    ($0.busy.longest / 1e6).fixed(1), $0.busyIntervals.fixed(2),
                    kibibytes($0.queuedBytes), kilobits($0.goodput), $0.share.fixed(3),
                ]
            })
        return "The longest time of \(StreamPair.urgentSize.bytes) one way on an urgent stream, "
            + "modelled: without a bulk stream (idle) and beside one (busy);\nand the goodput of "
            + "the bulk stream alone (×: as a multiple of this goodput)\n\n\(table.text)"
    }

    private var manyText: String {
        var table = Table(
            [
                "channels", "engine", "MB/s", "× C", "MB/s, \(ManyScenario.batch)/send", "× C",
                "slowest/mean", "opened/s", "idle, KiB", "idle heap, KiB", "busy, KiB",
                "descriptors", "threads", "maps",
            ], words: [1])
        for result in report.many {
            // With few channels, other changes of the process's memory are larger than what the
            // channels add.
            let memory = [result.idle.memory, result.idle.heap, result.busy.memory].map {
                result.channels < 10 ? "" : kibibytes($0)
            }
            table.append([
                "\(result.channels)", result.engine.shortProtocol, (result.goodput / 1e6).short,
                multiple(result.goodputRatioToC), (result.batchGoodput / 1e6).short,
                multiple(result.batchRatioToC), result.fairness.fixed(2),
                result.handshakeRate.fixed(0), memory[0], memory[1], memory[2],
                result.busy.descriptors.fixed(1), "\(result.busy.threads)",
                "\(result.busy.maps)",
            ])
        }
        return "Many channels on one loop: messages of \(ChannelGroup.messageSize.bytes) on all of "
            + "them, one or \(ManyScenario.batch) in each send\n`× C` is the ratio to an epoll "
            + "loop in C; memory and descriptors of one end; threads and memory maps of all\n\n"
            + table.text
    }

    private var loopsText: String {
        let hasRatio = report.loops.contains { $0.loops > 1 }
        let ratioHeading = hasRatio ? ["× one loop"] : []
        var table = Table(
            ["channels", "engine", "MB/s"] + ratioHeading
                + ["MB/s, \(ManyScenario.batch)/send"] + ratioHeading + ["opened/s"] + ratioHeading,
            words: [1])
        for result in report.loops {
            func cells(_ figure: LoopsScenario.Compared, _ text: String) -> [String] {
                hasRatio ? [text, multiple(figure.ratioToOneLoop)] : [text]
            }
            table.append(
                ["\(result.channels)", result.engine.shortProtocol]
                    + cells(result.goodput, (result.goodput.median / 1e6).short)
                    + cells(result.batchGoodput, (result.batchGoodput.median / 1e6).short)
                    + cells(result.handshakeRate, result.handshakeRate.median.fixed(0)))
        }
        let loops = report.loops[0].loops
        return "Many channels on \(loops) \(loops == 1 ? "loop" : "loops"), in elapsed time\n\n"
            + table.text
    }

    private var listenerText: String {
        let table = Table(
            ["engine", "dialers", "µs a channel", "limit, µs", "× limit"],
            rows: report.listeners.map {
                [
                    $0.engine.shortProtocol, "\($0.dialerCount)", ($0.time / 1e3).fixed(1),
                    ($0.limit / 1e3).fixed(1), multiple($0.ratioToLimit),
                ]
            })
        return "The processor time of a listener's thread for a channel that is opened and closed; "
            + "the limit is\nthe handshake's primitives and the same packets on sockets, from C"
            + "\n\n\(table.text)"
    }

    private var floodText: String {
        var table = Table([
            "engine", "alone, /s", "in a flood, /s", "failed in a flood, %",
            "ended flood links, /s",
        ])
        var knownPeers = Table(
            ["flood", "round trip, ms", "dials", "1st try, %", "two tries, %"], words: [0])
        for result in report.flood {
            table.append([
                result.engine.shortProtocol, result.rateAlone.fixed(0),
                result.rateInFlood.fixed(0),
                (100 * result.failedShare).fixed(1), result.endedLinkRate.fixed(0),
            ])
            for group in result.groups {
                let (least, most) = (
                    group.kind.roundTrip.lowerBound, group.kind.roundTrip.upperBound
                )
                knownPeers.append([
                    group.flood.rawValue, least == most ? "\(least)" : "\(least)-\(most)",
                    "\(group.outcome.dials)", (100 * group.outcome.servedAtOnceShare).fixed(1),
                    (100 * group.outcome.servedShare).fixed(1),
                ])
            }
        }
        let linkCount = UnauthenticatedFlood.fullSpeed.linkCount
        return "Handshakes of a listener, alone and among \(linkCount) links of "
            + "unauthenticated peers, which stay until the listener closes them\n\n\(table.text)\n"
            + "Dials of known peers that opened a channel, by flood and simulated round trip\n\n"
            + knownPeers.text
    }

    private var unauthenticatedCostText: String {
        let table = Table(
            ["engine", "silent, KiB", "answered, KiB", "unfinished, KiB", "answered, µs"],
            rows: report.unauthenticatedCosts.map {
                [$0.engine.shortProtocol]
                    + [$0.bytesOfSilentPeer, $0.bytesOfAnsweredPeer, $0.bytesOfUnfinishedMessage]
                    .map(kibibytes) + [($0.processorTime / 1e3).fixed(0)]
            })
        return "The memory for one unauthenticated peer, which sends nothing (silent), "
            + "whose first message was answered,\nor which leaves its longest message unfinished; and "
            + "the processor time until the answer\n\n\(table.text)"
    }

    /// The results of each connection, in order: first the bare L2CAP channel, then the engines.
    private var connections: [[RadioScenario.Result]] {
        var groups: [[RadioScenario.Result]] = []
        for result in report.radio {
            if result.engine == nil { groups.append([]) }
            groups[groups.count - 1].append(result)
        }
        return groups
    }

    private var radioText: String {
        let unvaried = connections.filter { $0[0].variation == nil }
        let varied = connections.filter { $0[0].variation != nil }
        let engines = unvaried.first?.compactMap(\.engine) ?? []
        let connection = "PHY, interval in ms"
        var goodput = Table([connection, "limit", "bare L2CAP"] + engines.map(\.shortEngine))
        var firstMessages = Table([connection] + engines.map(\.shortEngine))
        for group in unvaried {
            let parameters = group[0].parameters
            goodput.append(
                [parameters.name, kilobits(parameters.goodputLimit)]
                    + group.map { kilobits($0.goodput) })
            firstMessages.append(
                [parameters.name]
                    + group.compactMap(\.messageCosts?.firstMessage).map {
                        ($0.dialer / 1e6).fixed(1) + ", " + ($0.acceptor / 1e6).fixed(1)
                    })
        }
        let text =
            "Bulk data over LE in kbit/s, modelled\n\n\(goodput.text)\n"
            + "Time in ms from opening the L2CAP channel until the dialer's and the acceptor's "
            + "first message has arrived, modelled\n\n\(firstMessages.text)"
        guard !varied.isEmpty else { return text }
        let engine = varied[0].last?.engine?.shortEngine ?? ""
        var variations = Table(["variation", "bare L2CAP", engine, "× bare", "packets a message"])
        for group in varied {
            guard let last = group.last else { continue }
            variations.append([
                group[0].variation ?? "", kilobits(group[0].goodput), kilobits(last.goodput),
                last.ratio?.fixed(3) ?? "",
                "\(last.messageCosts?.shortMessageTraffic.packets ?? 0)",
            ])
        }
        return text
            + "\nBulk data at \(RadioParameters().name) ms with changed parameters in kbit/s, and "
            + "the packets of a message of \(RadioScenario.shortMessageSize) B, modelled\n\n"
            + variations.text
    }
}

extension RadioParameters {
    /// The physical layer and the interval.
    var name: String { "\(phy.rawValue), \(milliseconds)" }

    var milliseconds: String {
        let milliseconds = Double(interval) / 1e6
        return milliseconds.fixed(milliseconds == milliseconds.rounded() ? 0 : 1)
    }
}

extension String {
    /// A protocol's name without `Noise_`, with which every Noise protocol's name begins.
    var shortProtocol: String { hasPrefix("Noise_") ? String(dropFirst("Noise_".count)) : self }

    /// A Noise protocol's pattern, or the name of TLS.
    fileprivate var shortEngine: String {
        hasPrefix("Noise_") ? String(shortProtocol.prefix { $0 != "_" }) : self
    }
}
