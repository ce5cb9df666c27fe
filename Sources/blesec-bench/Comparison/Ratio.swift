internal import BLESec
internal import BLESecRadioModel

/// One figure of a report as a multiple of a limit or of another figure, under a name that stays
/// the same from run to run.
///
/// Ratios can be compared between machines and days; times cannot.
struct Ratio: Sendable {
    /// How a figure is measured, which determines how much it varies between runs.
    enum Basis: String, Sendable, CaseIterable {
        /// Processor time of one thread.
        case processor
        /// Elapsed time, which other threads and processes affect.
        case wall
        /// Counted or computed: the same in each run.
        case counted
    }

    /// The name: `engine/PROTOCOL/SIZE/LAYER`, and similarly for other scenarios.
    var name: String
    /// The reference: the figure is a multiple of this.
    var limit: String
    var basis: Basis
    /// Whether smaller is better.
    var lessIsBetter: Bool
    var summary: Summary

    /// Whether a median is worse than another one, or than a limit.
    static func isWorse(_ median: Double, than other: Double, lessIsBetter: Bool) -> Bool {
        lessIsBetter ? median > other : median < other
    }
}

extension Report {
    /// All figures that have a limit.
    var ratios: [Ratio] {
        engine.compactMap(\.toLimit) + handshake.compactMap(\.toLimit)
            + link.flatMap(\.toOthers) + sdus.compactMap(\.toPlain) + packets.flatMap(\.toComputed)
            + many.flatMap(\.toLimits) + radio.flatMap(\.toBare)
    }
}

extension EngineScenario.Result {
    /// The ratio to the limit; nil for the limit itself.
    fileprivate var toLimit: Ratio? {
        guard library == nil else { return nil }
        return Ratio(
            name: "engine/\(suite)/\(size)/\(layer)", limit: "primitive", basis: .processor,
            lessIsBetter: true, summary: ratio)
    }
}

extension HandshakeScenario.Result {
    fileprivate var toLimit: Ratio? {
        limit.map {
            Ratio(
                name: "handshake/\(name)", limit: $0.calls == nil ? "openssl" : "primitives",
                basis: .processor,
                lessIsBetter: true, summary: $0.ratio)
        }
    }
}

extension LinkScenario.Result {
    fileprivate var toOthers: [Ratio] {
        func ratio(_ what: String, _ limit: String, less: Bool, _ summary: Summary?) -> Ratio? {
            summary.map {
                Ratio(
                    name: "link/\(transport)/\(engine)/\(size)/\(what)", limit: limit,
                    basis: .wall, lessIsBetter: less, summary: $0)
            }
        }
        return [
            ratio("goodput", "plain link", less: false, goodputRatio),
            ratio("goodput-to-c", "blocking C", less: false, goodputToBlocking),
            ratio("round-trip", "plain link", less: true, roundTripRatio),
            ratio("round-trip-to-c", "blocking C", less: true, blockingRatio),
        ].compactMap(\.self)
    }
}

extension SDUScenario.Result {
    /// The ratio to the plain link; nil for the plain link itself.
    fileprivate var toPlain: Ratio? {
        link.goodputRatio.map {
            Ratio(
                name: "sdus/\(sizes.mtu)/\(sizes.sdu)/\(link.engine)/goodput",
                limit: "plain link", basis: .wall, lessIsBetter: false, summary: $0)
        }
    }
}

extension PacketScenario.Result {
    fileprivate var toComputed: [Ratio] {
        let name = "packets/\(engine)/\(size)"
        return [
            Ratio(
                name: "\(name)/message-share", limit: "bytes of SDUs", basis: .counted,
                lessIsBetter: false, summary: Summary([messageShare])),
            Ratio(
                name: "\(name)/packets", limit: "computed", basis: .counted, lessIsBetter: true,
                summary: Summary([Double(packets) / Double(max(1, computedPackets))])),
        ]
    }
}

extension ManyScenario.Result {
    /// The limit of an idle end's memory, in bytes.
    private var idleLimit: Int { engine == TLSContext.protocolName ? 64 << 10 : 16 << 10 }

    fileprivate var toLimits: [Ratio] {
        // With few channels, the memory that the process allocates once has too large a share.
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
}

extension RadioScenario.Result {
    /// The ratios of the common table; the figures of the channel alone are the limit.
    fileprivate var toBare: [Ratio] {
        guard variation == nil, let engine, let ratio, let opening else { return [] }
        let name = "radio/\(parameters.phy.rawValue)/\(parameters.milliseconds)/\(engine)"
        let needed = parameters.frames(opening.shortMessage.bytes)
        return [
            Ratio(
                name: "\(name)/goodput", limit: "bare L2CAP channel", basis: .counted,
                lessIsBetter: false, summary: Summary([ratio])),
            Ratio(
                name: "\(name)/short-message", limit: "computed", basis: .counted,
                lessIsBetter: true,
                summary: Summary([Double(opening.shortMessage.packets) / Double(max(1, needed))])),
        ]
    }
}
