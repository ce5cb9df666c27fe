internal import BLESec
internal import BLESecRadioModel
internal import BLESecToolKit

/// One run of the bench: it makes the measurements that the settings select, and collects the
/// results in a report.
struct BenchRun {
    private let settings: Settings
    private let place: LinkTarget
    private let suites: [EngineScenario.Suite]
    private let subjects: [any HandshakeSubject]
    private let loops = LoopPair()
    private var progress: ProgressLine
    private var budget: TimeBudget
    private var report: Report

    /// The engines of the scenario of many channels.
    private static let manyEngines = [
        ChannelConfiguration.defaultProtocol, TLSContext.protocolName,
    ]

    /// Measures everything.
    static func measure(_ settings: Settings, _ place: LinkTarget) async throws -> Report {
        var run = try BenchRun(settings, place)
        try await run.measure()
        return run.report
    }

    private init(_ settings: Settings, _ place: LinkTarget) throws {
        self.settings = settings
        self.place = place
        report = Report(settings)
        suites = settings.scenarios.contains(.engine) ? try Self.suites(settings) : []
        subjects = settings.scenarios.contains(.handshake) ? try Self.handshakes(settings) : []
        let links = settings.scenarios.contains(.link) ? place.count * settings.sizes.count : 0
        let sweep = settings.scenarios.contains(.link) ? Self.sweep(settings, place).count : 0
        let steps = suites.count * settings.recordSizes.count + subjects.count + links + sweep
        // Many channels and radio have time limits of their own.
        progress = ProgressLine(steps: steps + Self.manySteps(settings) + Self.radioSteps(settings))
        budget = TimeBudget(seconds: settings.seconds, steps: steps)
    }

    private mutating func measure() async throws {
        if !HostInfo.isOptimized {
            report.omissions.append("This is a debug build: its figures mean nothing.")
        }
        // A missing peer is reported before the measurement.
        let remote = try await place.openRemote(settings, loops)
        defer { progress.clear() }
        try measureEngines()
        try measureHandshakes()
        if let remote {
            try await measure(remote.name, remote.station, besideBlocking: false)
        } else if settings.scenarios.contains(.link) {
            try await measureLinks()
        }
        await loops.shutdown()
        if settings.scenarios.contains(.radio) { try await measureRadio() }
        if settings.scenarios.contains(.many) { try await measureMany() }
    }

    // MARK: Records and handshakes

    private mutating func measureEngines() throws {
        let scenario = EngineScenario(rounds: 2 * settings.rounds + 1)
        for suite in suites {
            for size in settings.recordSizes {
                progress.show("engine, \(suite.name), \(size.bytes)")
                _ = budget.next()
                report.engine += try scenario.measure(suite, size: size)
            }
        }
    }

    private mutating func measureHandshakes() throws {
        let scenario = HandshakeScenario(rounds: 2 * settings.rounds + 1)
        for subject in subjects {
            progress.show("handshake, \(subject.name)")
            _ = budget.next()
            report.handshake.append(try scenario.measure(subject))
        }
    }

    /// The requested protocols; by default the default protocol with each of the two ciphers, and
    /// TLS.
    private static func suites(_ settings: Settings) throws -> [EngineScenario.Suite] {
        let isDefault = settings.handshakes == nil
        let names = isDefault ? [EngineChoice.noise, .noiseAESGCM, .tls] : settings.protocols
        return try names.map { try EngineScenario.Suite($0.name) }
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

    // MARK: Links

    private mutating func measureLinks() async throws {
        for transport in place.transports {
            let station = try await SessionSet.open(transport, settings.engines, loops)
            try await measure(
                transport.name, station, besideBlocking: transport == .unix(.seqpacket))
        }
        for (sizes, transport) in Self.sweep(settings, place) {
            try await measureSDUs(sizes, transport)
        }
        if !place.transports.contains(where: { $0.name == "l2cap" }) {
            report.omissions.append(
                "l2cap was not measured: it takes two Bluetooth adapters that are on, or "
                    + "--connect.")
        }
    }

    private mutating func measure(
        _ transport: String, _ station: SessionSet, besideBlocking: Bool
    ) async throws {
        let scenario = LinkScenario(
            sampleTime: settings.sampleTime, rounds: settings.rounds,
            measuresRoundTrips: settings.measuresRoundTrips)
        for size in settings.sizes {
            progress.show("link, \(transport), \(size.bytes)")
            report.link += try await scenario.measure(
                transport, station.sessions, size: size, until: budget.next(),
                besideBlocking: besideBlocking)
            guard let scenario = station.packets else { continue }
            for (link, session) in station.sessions.enumerated() {
                report.packets.append(try await scenario.measure(session, link: link, size: size))
            }
        }
        try await station.close()
    }

    /// The SDU sizes to measure, each with a transport.
    private static func sweep(
        _ settings: Settings, _ place: LinkTarget
    ) -> [(SDUScenario.Sizes, Transport)] {
        guard settings.sweepsSDUs else { return [] }
        return place.transports.flatMap { transport in
            SDUScenario.all.compactMap { sizes in transport.with(sizes).map { (sizes, $0) } }
        }
    }

    private mutating func measureSDUs(
        _ sizes: SDUScenario.Sizes, _ transport: Transport
    ) async throws {
        progress.show("link, \(transport.name), SDUs of \(sizes.sdu.bytes)")
        let station = try await SessionSet.open(transport, settings.engines, loops)
        let scenario = LinkScenario(
            sampleTime: settings.sampleTime, rounds: settings.rounds, measuresRoundTrips: false)
        report.sdus += try await scenario.measure(
            transport.name, station.sessions, size: SDUScenario.messageSize,
            until: budget.next(), besideBlocking: false
        ).map { SDUScenario.Result(sizes: sizes, link: $0) }
        try await station.close()
    }

    // MARK: Radio

    private static func radioSteps(_ settings: Settings) -> Int {
        guard settings.scenarios.contains(.radio) else { return 0 }
        return RadioScenario.connections(isQuick: settings.isQuick).count
            + (settings.isQuick ? 0 : RadioScenario.variations.count)
    }

    private mutating func measureRadio() async throws {
        let scenario = RadioScenario()
        var peers: [String: PeerConfigurations] = [:]
        for engine in RadioScenario.engines { peers[engine] = try PeerConfigurations(engine) }
        for connection in RadioScenario.connections(isQuick: settings.isQuick) {
            progress.show("radio, \(connection.name)")
            report.radio += try await scenario.measure(
                connection, peers, engines: RadioScenario.engines)
        }
        guard !settings.isQuick else { return }
        for (name, parameters) in RadioScenario.variations {
            progress.show("radio, \(name)")
            report.radio += try await scenario.measure(
                parameters, peers, engines: [ChannelConfiguration.defaultProtocol],
                variation: name)
        }
    }

    // MARK: Many channels

    private static func manySteps(_ settings: Settings) -> Int {
        guard settings.scenarios.contains(.many) else { return 0 }
        return settings.channels.count + (settings.channels.isEmpty ? 0 : 1) + 2
    }

    private mutating func measureMany() async throws {
        let limit = ProcessState.raiseDescriptorLimit()
        let scenario = ManyScenario()
        for engine in Self.manyEngines {
            let peers = try PeerConfigurations(engine)
            // The second engine is measured only with the largest number of channels, with which
            // the memory of one channel is measured best.
            let counts =
                engine == Self.manyEngines[0]
                ? settings.channels : settings.channels.max().map { [$0] } ?? []
            for count in counts {
                progress.show("many, \(engine.shortProtocol), \(count)")
                let result = try await scenario.measure(
                    engine, peers, channels: count, descriptorLimit: limit)
                report.many.append(result)
                let note =
                    "\(count) channels ran over memory and not over sockets: this process may "
                    + "have \(limit) descriptors (`ulimit -Hn`)."
                if result.link == .memory, !report.omissions.contains(note) {
                    report.omissions.append(note)
                }
            }
        }
        progress.show("many, what an unauthenticated peer costs")
        for engine in Self.manyEngines {
            report.strangers.append(
                try await UnauthenticatedCost.measure(engine, PeerConfigurations(engine)))
        }
        progress.show("many, a listener under unauthenticated peers")
        let engine = Self.manyEngines[0]
        let listener = FloodScenario(window: settings.isQuick ? 300_000_000 : 1_000_000_000)
        report.flood.append(try await listener.measure(engine, PeerConfigurations(engine)))
    }
}
