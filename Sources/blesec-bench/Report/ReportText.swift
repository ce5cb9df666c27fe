internal import BLESec
internal import BLESecRadioModel

/// A report as tables.
struct ReportText {
    private let report: Report

    init(_ report: Report) { self.report = report }

    /// The whole report.
    var text: String {
        var parts = [heading]
        if !report.engine.isEmpty { parts.append(engineText) }
        if !report.handshake.isEmpty { parts.append(handshakeText) }
        if !report.link.isEmpty { parts.append(linkText) }
        if !report.sdus.isEmpty { parts.append(sduText) }
        if !report.packets.isEmpty { parts.append(packetText) }
        if !report.radio.isEmpty { parts.append(radioText) }
        if !report.many.isEmpty { parts.append(manyText) }
        if !report.flood.isEmpty { parts.append(floodText) }
        parts += report.omissions.map { $0 + "\n" }
        return parts.joined(separator: "\n")
    }

    private var heading: String {
        let machine = HostInfo.this
        return """
            \(machine.processor), \(machine.cores) cores, Linux \(machine.kernel), \
            libsodium \(machine.sodium), \(machine.openSSL)

            """
    }

    private var engineText: String {
        var text = "Sealing and opening one record: processor time, and times the raw primitive\n"
        for suite in report.engine.map(\.suite).unique {
            let results = report.engine.filter { $0.suite == suite }
            let layers = results.map(\.layer).unique
            var table = Table(
                ["", "raw, ns", "of"] + layers.dropFirst().map { "\($0), ×" }, words: [0, 2])
            for raw in results where raw.library != nil {
                let above = results.filter { $0.size == raw.size && $0.library == nil }
                table.append(
                    [raw.size.bytes, raw.time.median.fixed(0), raw.library ?? ""]
                        + above.map { $0.ratio.median.fixed(2) })
            }
            text += "\n\(suite)\n\(table.text)"
        }
        return text
    }

    private var handshakeText: String {
        var table = Table([
            "", "dialer, µs", "acceptor, µs", "flights", "dialer, B", "acceptor, B",
            "from C, µs", "× that",
        ])
        for result in report.handshake {
            table.append([
                result.name.shortProtocol, microseconds(result.time.dialer.median),
                microseconds(result.time.acceptor.median),
                "\(result.flights.dialer)+\(result.flights.acceptor)",
                "\(result.bytes.dialer)", "\(result.bytes.acceptor)",
                microseconds(result.limit?.time.median),
                result.limit?.ratio.median.fixed(2) ?? "",
            ])
        }
        return "Handshakes in memory: processor time, and times the same work from C\n\n"
            + table.text
    }

    private var linkText: String {
        var text = "Messages over a link: one way, and there and back\n"
        for transport in report.link.map(\.transport).unique {
            let results = report.link.filter { $0.transport == transport }
            let hasBlocking = results.contains { $0.goodputToBlocking != nil }
            let besideC = hasBlocking ? ["× C"] : []
            var heading = [transport, "", "MB/s", "× plain"] + besideC
            heading += ["p50, µs", "p90", "p99", "max", "× plain"] + besideC
            var table = Table(heading, words: [0, 1])
            for result in results {
                var row = [
                    result.size.bytes, result.engine.shortProtocol,
                    (result.goodput.median / 1e6).short,
                    result.goodputRatio?.median.fixed(2) ?? "",
                ]
                if hasBlocking { row.append(result.goodputToBlocking?.median.fixed(2) ?? "") }
                row += [
                    microseconds(result.roundTrip?.p50), microseconds(result.roundTrip?.p90),
                    microseconds(result.roundTrip?.p99), microseconds(result.roundTrip?.longest),
                    result.roundTripRatio?.median.fixed(2) ?? "",
                ]
                if hasBlocking { row.append(result.blockingRatio?.median.fixed(2) ?? "") }
                table.append(row)
            }
            text += "\n\(table.text)"
        }
        return text
    }

    private func microseconds(_ time: Double?) -> String { time.map { ($0 / 1e3).short } ?? "" }

    private var sduText: String {
        var table = Table(["MTU", "SDU", "", "MB/s", "× plain"], words: [2])
        for result in report.sdus {
            table.append([
                "\(result.sizes.mtu)", "\(result.sizes.sdu)", result.link.engine.shortProtocol,
                (result.link.goodput.median / 1e6).short,
                result.link.goodputRatio?.median.fixed(2) ?? "",
            ])
        }
        return "Messages of \(SDUScenario.messageSize.bytes) one way over l2cap, in SDUs of "
            + "several sizes\n\n\(table.text)"
    }

    private var packetText: String {
        var table = Table(
            ["", "", "messages", "SDUs", "message bytes, %", "packets", "computed"], words: [0, 1])
        for result in report.packets {
            table.append(
                [
                    result.size.bytes, result.engine.shortProtocol, "\(result.messages)",
                    "\(result.sdus)", (100 * result.messageShare).fixed(2), "\(result.packets)",
                    "\(result.computedPackets)",
                ])
        }
        return "What the adapter sent for messages one way over l2cap\n\n\(table.text)"
    }

    private var manyText: String {
        var table = Table(
            [
                "channels", "", "MB/s", "slowest/mean", "opened/s", "idle, KiB", "heap",
                "busy, KiB", "descriptors", "threads", "maps",
            ], words: [1])
        for result in report.many {
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

    private var floodText: String {
        var table = Table(["", "alone/s", "in a flood/s", "failed, %", "flood/s"])
        var friends = Table(
            ["strangers", "round trip, ms", "dials", "1st try, %", "two tries, %"], words: [0])
        var costs = Table(["", "silent, KiB", "answered", "unfinished", "answered, µs"])
        for result in report.flood {
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
        for cost in report.strangers {
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

    /// The results of each connection, in order: first the L2CAP channel alone, then the engines.
    private var connections: [[RadioScenario.Result]] {
        var groups: [[RadioScenario.Result]] = []
        for result in report.radio {
            if result.engine == nil { groups.append([]) }
            groups[groups.count - 1].append(result)
        }
        return groups
    }

    private var radioText: String {
        let common = connections.filter { $0[0].variation == nil }
        let varied = connections.filter { $0[0].variation != nil }
        let engines = common.first?.compactMap(\.engine) ?? []
        var goodput = Table(["PHY, ms", "limit", "bare"] + engines.map(\.shortEngine))
        var first = Table([""] + engines.map(\.shortEngine))
        for group in common {
            let parameters = group[0].parameters
            goodput.append(
                [parameters.name, kilobits(parameters.limit)] + group.map { kilobits($0.goodput) })
            first.append(
                [parameters.name]
                    + group.compactMap(\.opening).map { opening in
                        let times = opening.firstMessage
                        return (times.dialer / 1e6).fixed(1) + ", "
                            + (times.acceptor / 1e6).fixed(1)
                    })
        }
        var text = "Bulk data over LE, kbit/s, modelled\n\n\(goodput.text)"
        text +=
            "\nFirst message after the L2CAP channel, there and back, ms, modelled\n\n\(first.text)"
        guard !varied.isEmpty else { return text }
        let engine = varied[0].last?.engine?.shortEngine ?? ""
        var steps = Table(["", "bare", engine, "× bare", "packets of 100 B"])
        for group in varied {
            guard let last = group.last else { continue }
            steps.append([
                group[0].variation ?? "", kilobits(group[0].goodput), kilobits(last.goodput),
                last.ratio?.fixed(3) ?? "", "\(last.opening?.shortMessage.packets ?? 0)",
            ])
        }
        return text
            + "\nThe same at \(RadioParameters().name) ms with one thing changed, modelled\n\n"
            + steps.text
    }

    private func kilobits(_ bytes: Double) -> String { (bytes * 8 / 1e3).fixed(0) }
}

extension RadioParameters {
    /// The physical layer and the interval.
    var name: String { "\(phy.rawValue), \(milliseconds)" }

    /// The interval in milliseconds.
    var milliseconds: String {
        let milliseconds = Double(interval) / 1e6
        return milliseconds.fixed(milliseconds == milliseconds.rounded() ? 0 : 1)
    }
}

extension String {
    /// A Noise protocol's name without the parts that all names here share.
    var shortProtocol: String { hasPrefix("Noise_") ? String(dropFirst("Noise_".count)) : self }

    /// A Noise protocol's pattern, or the name of TLS.
    fileprivate var shortEngine: String {
        hasPrefix("Noise_") ? String(shortProtocol.prefix { $0 != "_" }) : self
    }
}
