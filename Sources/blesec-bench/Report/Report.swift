/// The results of one run.
struct Report: Sendable {
    let settings: Settings
    var engine: [EngineScenario.Result] = []
    var handshake: [HandshakeScenario.Result] = []
    var link: [LinkScenario.Result] = []
    /// Bulk data over L2CAP in SDUs of several sizes.
    var sdus: [SDUScenario.Result] = []
    /// Packets that the adapter sent for messages over L2CAP.
    var packets: [PacketScenario.Result] = []
    /// Messages over connections with stores on disk.
    var stores: [StoreScenario.Result] = []
    /// Streams over each kind of link, and over modelled LE connections.
    var streams: [StreamScenario.Result] = []
    var radioStreams: [RadioStreams.Result] = []
    /// Many channels on one loop.
    var many: [ManyScenario.Result] = []
    /// Many channels that are spread over several loops.
    var loops: [LoopsScenario.Result] = []
    /// Listeners that known peers dial.
    var listeners: [ListenerScenario.Result] = []
    /// Listeners in a flood of unauthenticated peers.
    var flood: [FloodScenario.Result] = []
    /// The cost of one unauthenticated peer, for each engine.
    var unauthenticatedCosts: [UnauthenticatedCost] = []
    /// Bulk data over modelled LE connections.
    var radio: [RadioScenario.Result] = []
    /// Omitted measurements, with the reasons.
    var omissions: [String] = []

    init(_ settings: Settings) { self.settings = settings }
}

extension Sequence where Element: Hashable {
    /// Each element once, in the order of first appearance.
    var unique: [Element] {
        var seen: Set<Element> = []
        return filter { seen.insert($0).inserted }
    }
}
