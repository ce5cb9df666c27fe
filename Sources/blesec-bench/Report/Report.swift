internal import BLESec
internal import BLESecToolKit

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

    /// Measures everything.
    mutating func measure(_ settings: Settings, _ place: LinkTarget) async throws {
        if !HostInfo.isOptimized {
            omissions.append("This is a debug build: its figures mean nothing.")
        }
        let suites = try Self.suites(settings)
        let sizes = Self.recordSizes(settings)
        let records = settings.scenarios.contains(.engine) ? suites.count * sizes.count : 0
        let handshakes =
            settings.scenarios.contains(.handshake) ? try Self.handshakes(settings) : []
        let links =
            settings.scenarios.contains(.link)
            ? place.count * settings.sizes.count + sweep(place).count : 0
        let loops = LoopPair()
        // A missing peer is reported before the measurement.
        let remote = try await place.openRemote(settings, loops)
        // Many channels and radio have time limits of their own.
        let others = manySteps + radioSteps
        var run = Run(
            progress: ProgressLine(steps: records + handshakes.count + links + others),
            budget: TimeBudget(
                seconds: settings.seconds, steps: records + handshakes.count + links))
        defer { run.progress.clear() }
        if records > 0 { try measureEngines(suites, sizes, &run) }
        try measureHandshakes(handshakes, &run)
        if let remote {
            try await measure(remote.name, remote.station, besideBlocking: false, &run)
        } else if links > 0 {
            try await measureLinks(place, loops, &run)
        }
        await loops.shutdown()
        if radioSteps > 0 { try await measureRadio { run.progress.show($0) } }
        if manySteps > 0 { try await measureMany { run.progress.show($0) } }
    }

    private struct Run {
        var progress: ProgressLine
        var budget: TimeBudget
    }

    private mutating func measureEngines(
        _ suites: [EngineScenario.Suite], _ sizes: [Int], _ run: inout Run
    ) throws {
        let scenario = EngineScenario(rounds: 2 * settings.rounds + 1)
        for suite in suites {
            for size in sizes {
                run.progress.show("engine, \(suite.name), \(size.bytes)")
                _ = run.budget.next()
                engine += try scenario.measure(suite, size: size)
            }
        }
    }

    private mutating func measureHandshakes(
        _ subjects: [any HandshakeSubject], _ run: inout Run
    ) throws {
        let scenario = HandshakeScenario(rounds: 2 * settings.rounds + 1)
        for subject in subjects {
            run.progress.show("handshake, \(subject.name)")
            _ = run.budget.next()
            handshake.append(try scenario.measure(subject))
        }
    }

    private mutating func measureLinks(
        _ place: LinkTarget, _ loops: LoopPair, _ run: inout Run
    ) async throws {
        for transport in place.transports {
            let station = try await SessionSet.open(transport, settings.engines, loops)
            try await measure(
                transport.name, station, besideBlocking: transport == .unix(.seqpacket), &run)
        }
        for (sizes, transport) in sweep(place) {
            try await measureSDUs(sizes, transport, loops, &run)
        }
        if !place.transports.contains(where: { $0.name == "l2cap" }) {
            omissions.append(
                "l2cap was not measured: it takes two Bluetooth adapters that are on, or "
                    + "--connect.")
        }
    }

    /// The SDU sizes to measure, each with a transport.
    private func sweep(_ place: LinkTarget) -> [(SDUScenario.Sizes, Transport)] {
        guard settings.sweepsSDUs else { return [] }
        return place.transports.flatMap { transport in
            SDUScenario.all.compactMap { sizes in transport.with(sizes).map { (sizes, $0) } }
        }
    }

    private mutating func measureSDUs(
        _ sizes: SDUScenario.Sizes, _ transport: Transport, _ loops: LoopPair, _ run: inout Run
    ) async throws {
        run.progress.show("link, \(transport.name), SDUs of \(sizes.sdu.bytes)")
        let station = try await SessionSet.open(transport, settings.engines, loops)
        let scenario = LinkScenario(
            sampleTime: settings.sampleTime, rounds: settings.rounds, measuresRoundTrips: false)
        sdus += try await scenario.measure(
            transport.name, station.sessions, size: SDUScenario.messageSize,
            until: run.budget.next(), besideBlocking: false
        ).map { SDUScenario.Result(sizes: sizes, link: $0) }
        try await station.close()
    }

    private mutating func measure(
        _ transport: String, _ station: SessionSet, besideBlocking: Bool, _ run: inout Run
    ) async throws {
        let scenario = LinkScenario(
            sampleTime: settings.sampleTime, rounds: settings.rounds,
            measuresRoundTrips: settings.measuresRoundTrips)
        for size in settings.sizes {
            run.progress.show("link, \(transport), \(size.bytes)")
            link += try await scenario.measure(
                transport, station.sessions, size: size, until: run.budget.next(),
                besideBlocking: besideBlocking)
            guard let scenario = station.packets else { continue }
            for (link, session) in station.sessions.enumerated() {
                packets.append(try await scenario.measure(session, link: link, size: size))
            }
        }
        try await station.close()
    }

    /// The requested handshakes; by default the default pattern in every suite, then every other
    /// pattern in the default suite, and TLS, in full and resumed.
    private static func handshakes(_ settings: Settings) throws -> [any HandshakeSubject] {
        guard let names = settings.handshakes else {
            let company = try BenchCompany.shared()
            return try NoiseHandshakes.names.map(NoiseHandshakes.init)
                + [TLSHandshakes(company), TLSResumptions(company)]
        }
        return try names.map { name in
            guard name != EngineChoice.tls.name else {
                return TLSHandshakes(try BenchCompany.shared())
            }
            return try NoiseHandshakes(name)
        }
    }

    /// The requested protocols; by default also the other cipher, which takes little time.
    private static func suites(_ settings: Settings) throws -> [EngineScenario.Suite] {
        let isDefault = settings.handshakes == nil
        let names = isDefault ? [EngineChoice.noise, .noiseAESGCM, .tls] : settings.protocols
        return try names.map { try EngineScenario.Suite($0.name) }
    }

    /// The message sizes that fit into one record.
    private static func recordSizes(_ settings: Settings) -> [Int] {
        var sizes: [Int] = []
        for size in settings.sizes.map({ min($0, Record.maximumPayload + 1) })
        where !sizes.contains(size) {
            sizes.append(size)
        }
        return sizes
    }
}

extension LinkTarget {
    /// The kinds of link between two ends in this process.
    fileprivate var transports: [Transport] {
        switch self {
        case .local(let transports): transports
        case .remote: []
        }
    }

    /// The number of kinds of link.
    fileprivate var count: Int {
        switch self {
        case .local(let transports): transports.count
        case .remote: 1
        }
    }

    /// Opens the channels to another process; nil where both ends are in this one.
    fileprivate func openRemote(
        _ settings: Settings, _ loops: LoopPair
    ) async throws -> (name: String, station: SessionSet)? {
        guard case .remote(let endpoint) = self else { return nil }
        return ("\(endpoint)", try await SessionSet.open(endpoint, settings.engines, loops))
    }
}
