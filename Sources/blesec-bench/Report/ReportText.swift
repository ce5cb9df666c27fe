internal import BLESec

extension Report {
    /// The report as tables.
    var text: String {
        var parts = [heading]
        if !engine.isEmpty { parts.append(engineText) }
        if !handshake.isEmpty { parts.append(handshakeText) }
        if !link.isEmpty { parts.append(linkText) }
        if !sdus.isEmpty { parts.append(sduText) }
        if !packets.isEmpty { parts.append(packetText) }
        if !radio.isEmpty { parts.append(radioText) }
        if !many.isEmpty { parts.append(manyText) }
        if !flood.isEmpty { parts.append(floodText) }
        parts += omissions.map { $0 + "\n" }
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
        var suites: [String] = []
        for result in engine where !suites.contains(result.suite) { suites.append(result.suite) }
        for suite in suites {
            let results = engine.filter { $0.suite == suite }
            var layers: [String] = []
            for result in results where !layers.contains(result.layer) {
                layers.append(result.layer)
            }
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
        for result in handshake {
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
        var transports: [String] = []
        for result in link where !transports.contains(result.transport) {
            transports.append(result.transport)
        }
        for transport in transports {
            let results = link.filter { $0.transport == transport }
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
}

extension Report {
    private func microseconds(_ time: Double?) -> String { time.map { ($0 / 1e3).short } ?? "" }

    private var sduText: String {
        var table = Table(["MTU", "SDU", "", "MB/s", "× plain"], words: [2])
        for result in sdus {
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
        for result in packets {
            table.append(
                [
                    result.size.bytes, result.engine.shortProtocol, "\(result.messages)",
                    "\(result.sdus)", (100 * result.messageShare).fixed(2), "\(result.packets)",
                    "\(result.computedPackets)",
                ])
        }
        return "What the adapter sent for messages one way over l2cap\n\n\(table.text)"
    }
}

extension String {
    /// A Noise protocol's name without the parts that all names here share.
    var shortProtocol: String {
        hasPrefix("Noise_") ? String(dropFirst("Noise_".count)) : self
    }
}
