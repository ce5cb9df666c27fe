internal import BLESec
internal import BLESecRadioModel

/// One figure of a report, divided by a reference figure. Reports call the reference figure the
/// limit. The ratio's name is the same in every run.
///
/// Ratios of different machines and days can be compared; times cannot.
struct Ratio: Sendable {
    /// How a figure is measured, which determines how much it varies between runs.
    enum Basis: String, Sendable, CaseIterable {
        /// Processor time of one thread.
        case processor
        /// Elapsed time, or another figure that varies as much between runs, such as memory.
        case wall
        /// Counted or computed: the same in each run.
        case counted
    }

    /// The name: `engine/PROTOCOL/SIZE/LAYER`, and similarly for other scenarios.
    var name: String
    /// The name of the reference figure, by which the measured figure is divided.
    var referenceName: String
    var basis: Basis
    /// Whether smaller is better.
    var lessIsBetter: Bool
    /// The ratio in each sample, summarized.
    var summary: Summary

    /// Whether a median is worse than `other`: another median, or a floor. A floor (``Floors``) is
    /// the worst value that a ratio may have: the greatest if less is better, otherwise the least.
    static func isWorse(_ median: Double, than other: Double, lessIsBetter: Bool) -> Bool {
        lessIsBetter ? median > other : median < other
    }
}

extension Ratio {
    fileprivate init(
        _ name: String, to referenceName: String, _ basis: Basis, lessIsBetter: Bool,
        _ summary: Summary
    ) {
        self.init(
            name: name, referenceName: referenceName, basis: basis, lessIsBetter: lessIsBetter,
            summary: summary)
    }
}

extension Report {
    /// The ratios of all figures that have a limit.
    var ratios: [Ratio] {
        engine.compactMap(\.ratioToLimit) + handshake.compactMap(\.ratioToLimit)
            + link.flatMap(\.ratiosToLimits) + sdus.compactMap(\.ratioToPlainLink)
            + packets.flatMap(\.ratiosToComputed)
            + many.flatMap(\.ratiosToLimits) + loops.flatMap(\.ratiosToOneLoop)
            + listeners.map(\.ratio) + radio.flatMap(\.ratiosToLimits)
            + streams.flatMap(\.ratiosToLimits) + radioStreams.flatMap(\.ratiosToLimits)
    }
}

extension EngineScenario.Result {
    /// The ratio to the limit; nil for the limit itself.
    fileprivate var ratioToLimit: Ratio? {
        guard library == nil else { return nil }
        return Ratio(
            "engine/\(protocolName)/\(size)/\(layer)", to: "primitive", .processor,
            lessIsBetter: true, ratio)
    }
}

extension HandshakeScenario.Result {
    fileprivate var ratioToLimit: Ratio? {
        reference.map {
            Ratio(
                "handshake/\(name)", to: $0.calls == nil ? "openssl" : "primitives", .processor,
                lessIsBetter: true, $0.ratio)
        }
    }
}

extension LinkScenario.Result {
    fileprivate var ratiosToLimits: [Ratio] {
        func ratio(
            _ figure: String, to referenceName: String, lessIsBetter: Bool, _ summary: Summary?
        ) -> Ratio? {
            let name = "link/\(transport)/\(engine)/\(size)/\(figure)"
            return summary.map {
                Ratio(name, to: referenceName, .wall, lessIsBetter: lessIsBetter, $0)
            }
        }
        return [
            ratio("goodput", to: "plain link", lessIsBetter: false, goodputRatio),
            ratio("goodput-to-c", to: "blocking C", lessIsBetter: false, goodputRatioToBlocking),
            ratio("round-trip", to: "plain link", lessIsBetter: true, roundTripRatio),
            ratio(
                "round-trip-to-c", to: "blocking C", lessIsBetter: true, roundTripRatioToBlocking),
        ].compactMap(\.self)
    }
}

extension SDUScenario.Result {
    /// The ratio to the plain link; nil for the plain link itself.
    fileprivate var ratioToPlainLink: Ratio? {
        let name = "sdus/\(sizes.mtu)/\(sizes.sdu)/\(link.engine)/goodput"
        return link.goodputRatio.map {
            Ratio(name, to: "plain link", .wall, lessIsBetter: false, $0)
        }
    }
}

extension PacketScenario.Result {
    fileprivate var ratiosToComputed: [Ratio] {
        let name = "packets/\(engine)/\(size)"
        let quotient = Double(packets) / Double(max(1, computedPackets))
        return [
            Ratio(
                "\(name)/message-share", to: "bytes of SDUs", .counted, lessIsBetter: false,
                Summary([messageShare])),
            Ratio(
                "\(name)/packets", to: "computed", .counted, lessIsBetter: true, Summary([quotient])
            ),
        ]
    }
}

extension ManyScenario.Result {
    fileprivate var ratiosToLimits: [Ratio] {
        let name = "many/\(engine)/\(channels)"
        let ratiosToC = [("single", goodputRatioToC), ("batch", batchRatioToC)].compactMap {
            figure, summary in
            summary.map {
                Ratio("\(name)/\(figure)", to: "epoll in C", .processor, lessIsBetter: false, $0)
            }
        }
        // With few channels, memory that the process allocates only once distorts `idle.memory`.
        guard channels >= 100 else { return ratiosToC }
        // The reference figure for the memory of one end of an idle channel, in bytes.
        let reference = engine == TLSContext.protocolName ? 64 << 10 : 16 << 10
        return ratiosToC + [
            Ratio(
                "\(name)/idle-memory", to: reference.bytes, .wall, lessIsBetter: true,
                Summary([idle.memory / Double(reference)])),
            Ratio("\(name)/slowest", to: "mean", .wall, lessIsBetter: false, Summary([fairness])),
        ]
    }
}

extension ListenerScenario.Result {
    fileprivate var ratio: Ratio {
        Ratio(
            "many/\(engine)/listener", to: "primitives and sockets", .processor,
            lessIsBetter: true, ratioToLimit)
    }
}

extension LoopsScenario.Result {
    fileprivate var ratiosToOneLoop: [Ratio] {
        let figures = [("single", goodput), ("batch", batchGoodput), ("opened", handshakeRate)]
        return figures.compactMap { figure, compared in
            compared.ratioToOneLoop.map {
                let name = "many/\(engine)/\(channels)/loops-\(loops)/\(figure)"
                return Ratio(name, to: "one loop", .wall, lessIsBetter: false, $0)
            }
        }
    }
}

extension RadioScenario.Result {
    /// An engine's ratios to the bare L2CAP channel and to the computed number of packets; none for
    /// a variation.
    fileprivate var ratiosToLimits: [Ratio] {
        guard variation == nil, let engine, let ratio, let messageCosts else { return [] }
        let name = "radio/\(parameters.phy.rawValue)/\(parameters.milliseconds)/\(engine)"
        let sent = messageCosts.shortMessageTraffic
        let computed = max(1, parameters.frameCount(ofSDU: sent.bytes))
        let quotient = Double(sent.packets) / Double(computed)
        return [
            Ratio(
                "\(name)/goodput", to: "bare L2CAP channel", .counted, lessIsBetter: false,
                Summary([ratio])),
            Ratio(
                "\(name)/short-message", to: "computed", .counted, lessIsBetter: true,
                Summary([quotient])),
        ]
    }
}

extension StreamScenario.Result {
    fileprivate var ratiosToLimits: [Ratio] {
        func ratio(
            _ figure: String, to referenceName: String, lessIsBetter: Bool, _ summary: Summary
        ) -> Ratio {
            Ratio(
                "link/\(transport)/streams/\(figure)", to: referenceName, .wall,
                lessIsBetter: lessIsBetter, summary)
        }
        return [
            ratio("urgent", to: "idle link", lessIsBetter: true, busyRatio),
            ratio("urgent-paced", to: "idle link", lessIsBetter: true, pacedRatio),
            ratio("bulk", to: "bulk alone", lessIsBetter: false, busyShare),
            ratio("bulk-paced", to: "bulk alone", lessIsBetter: false, pacedShare),
            ratio("two-bulk", to: "one bulk stream", lessIsBetter: false, twoStreamsRatio),
        ]
    }
}

extension RadioStreams.Result {
    fileprivate var ratiosToLimits: [Ratio] {
        let name = "radio/\(parameters.phy.rawValue)/\(parameters.milliseconds)/streams"
        return [
            Ratio(
                "\(name)/urgent", to: "2 intervals and 16 KiB", .counted, lessIsBetter: true,
                Summary([busy.longest / longestAllowed])),
            Ratio(
                "\(name)/bulk", to: "bulk alone", .counted, lessIsBetter: false, Summary([share])),
        ]
    }
}
