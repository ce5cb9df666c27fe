/// The results of one run.
struct Report: Sendable {
    /// The requested measurements.
    let settings: Settings
    /// Sealing and opening records.
    var engine: [EngineScenario.Result] = []
    /// Handshakes in memory.
    var handshake: [HandshakeScenario.Result] = []
    /// Messages over links.
    var link: [LinkScenario.Result] = []
    /// Bulk data over L2CAP in SDUs of several sizes.
    var sdus: [SDUScenario.Result] = []
    /// Packets of adapters.
    var packets: [PacketScenario.Result] = []
    /// Many channels at once, and a listener under unauthenticated peers.
    var many: [ManyScenario.Result] = []
    var flood: [FloodScenario.Result] = []
    var strangers: [UnauthenticatedCost] = []
    /// Channels over modelled radio.
    var radio: [RadioScenario.Result] = []
    /// Omitted measurements, with the reasons.
    var omissions: [String] = []

    init(_ settings: Settings) { self.settings = settings }
}

extension Sequence where Element: Hashable {
    /// Each element once, in the order of their first appearance.
    var unique: [Element] {
        var seen: Set<Element> = []
        return filter { seen.insert($0).inserted }
    }
}
