/// A report as plots: records, goodput and round trips by size, and handshakes. A limit is the cost
/// of the same work without blesec (`docs/bench.md`).
struct ReportPlots {
    let report: Report

    var svg: String {
        var drawing = Drawing(width: 2 * Int(Panel.size.width) + 20)
        let top = drawing.addSpace(48)
        drawing.text("blesec-bench", .title, x: 18, y: top + 22)
        drawing.text(HostInfo.this.machine, .small, x: 18, y: top + 40)
        let panels = enginePanels + goodputPanels + roundTripPanels
        for row in stride(from: 0, to: panels.count, by: 2) {
            let top = drawing.addSpace(Int(Panel.size.height))
            for column in 0..<min(2, panels.count - row) {
                panels[row + column].draw(
                    into: &drawing, x: 10 + Double(column) * Panel.size.width, y: top)
            }
        }
        drawHandshakes(&drawing)
        for omission in report.omissions {
            let top = drawing.addSpace(24)
            drawing.text(omission, .small, x: 18, y: top + 12)
        }
        return drawing.document
    }

    /// Bytes a second of records sealed and opened, with the raw primitive as the limit.
    private var enginePanels: [Panel] {
        report.engine.map(\.protocolName).unique.map { protocolName in
            let results = report.engine.filter { $0.protocolName == protocolName }
            let layers = results.map(\.layer).unique
            // The raw primitive, and the layer that does all the work of a channel's engine.
            let drawnLayers = [layers.first, layers.last].compactMap(\.self).unique
            return Panel(
                title: "Records: \(protocolName.shortProtocol)", unit: "MB/s sealed and opened",
                series: drawnLayers.map { layer in
                    let layerResults = results.filter { $0.layer == layer }
                    let isLimit = layerResults.contains { $0.library != nil }
                    return Panel.Series(
                        name: isLimit ? "raw primitive (limit)" : layer,
                        points: layerResults.map {
                            Panel.Point(
                                size: $0.size, value: 1e3 * Double($0.size) / $0.time.median)
                        },
                        isLimit: isLimit)
                })
        }
    }

    private var goodputPanels: [Panel] {
        linkPanels("Goodput", unit: "MB/s one way") {
            Panel.Point(size: $0.size, value: $0.goodput.median / 1e6)
        }
    }

    private var roundTripPanels: [Panel] {
        linkPanels("Round trip", unit: "µs: p50; the bar's ticks are p90 and p99") { result in
            result.roundTrip.map {
                Panel.Point(
                    size: result.size, value: $0.p50 / 1e3,
                    upperPercentiles: [$0.p90 / 1e3, $0.p99 / 1e3])
            }
        }
    }

    /// A panel for each kind of link, with a series for each engine.
    private func linkPanels(
        _ title: String, unit: String, _ point: (LinkScenario.Result) -> Panel.Point?
    ) -> [Panel] {
        let drawnResults = report.link.filter { point($0) != nil }
        return drawnResults.map(\.transport).unique.map { transport in
            let results = drawnResults.filter { $0.transport == transport }
            let series = results.map(\.engine).unique.map { engine in
                let isLimit = engine == EngineChoice.plain.name
                return Panel.Series(
                    name: isLimit ? "plain link (limit)" : engine.shortProtocol,
                    points: results.filter { $0.engine == engine }.compactMap(point),
                    isLimit: isLimit)
            }
            return Panel(title: "\(title): \(transport)", unit: unit, series: series)
        }
    }

    // MARK: Handshakes

    /// A bar for each handshake: the dialer's time, then the acceptor's; a mark for the limit.
    private func drawHandshakes(_ drawing: inout Drawing) {
        guard !report.handshake.isEmpty else { return }
        let top = drawing.addSpace(70)
        drawing.text("Handshakes: processor time", .title, x: 18, y: top + 24)
        for (series, name) in ["dialer", "acceptor"].enumerated() {
            let x = 18 + 90 * Double(series)
            drawing.bar(x, top + 40, 14, 10, series: series)
            drawing.text(name, .small, x: x + 20, y: top + 49)
        }
        drawing.line(.mark, 212, top + 36, 212, top + 53)
        drawing.text("the same work from C (the limit)", .small, x: 222, y: top + 49)
        let (left, right) = (270.0, Double(drawing.width) - 110)
        let most =
            report.handshake.map { max($0.wholeTime, $0.reference?.time.median ?? 0) }.max() ?? 1
        for result in report.handshake {
            let y = drawing.addSpace(20)
            func width(_ time: Double) -> Double { time / most * (right - left) }
            drawing.text(result.name.shortProtocol, .small, x: left - 8, y: y + 13, anchor: "end")
            let dialer = width(result.time.dialer.median)
            let acceptor = width(result.time.acceptor.median)
            drawing.bar(left, y + 3, dialer, 13, series: 0)
            drawing.bar(left + dialer, y + 3, acceptor, 13, series: 1)
            var end = left + dialer + acceptor
            if let reference = result.reference {
                let x = left + width(reference.time.median)
                drawing.line(.mark, x, y + 1, x, y + 18)
                end = max(end, x)
            }
            drawing.text("\((result.wholeTime / 1e3).short) µs", .small, x: end + 8, y: y + 13)
        }
        _ = drawing.addSpace(16)
    }
}

extension HandshakeScenario.Result {
    /// The sum of both sides' times, in nanoseconds.
    fileprivate var wholeTime: Double { time.dialer.median + time.acceptor.median }
}
