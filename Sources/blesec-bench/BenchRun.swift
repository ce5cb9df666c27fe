internal import BLESec
internal import BLESecRadioModel
internal import BLESecToolKit

/// One run of the bench: it makes the measurements that the settings select, and collects the
/// results in a report.
struct BenchRun {
    private let settings: Settings
    private let target: LinkTarget
    /// The protocols that the scenario `engine` measures.
    private let engineProtocols: [String]
    /// The handshakes that the scenario `handshake` measures.
    private let subjects: [any HandshakeSubject]
    /// The pairs of MTU and SDU size to measure, each with a transport that has these sizes.
    private let sduSweep: [(SDUScenario.Sizes, Transport)]
    /// The sizes of messages to measure with stores on disk.
    private let storeSizes: [Int]
    /// The kinds of link over which streams are measured.
    private let streamTransports: [Transport]
    private let radioSetups: [RadioScenario.Setup]
    private let loops = LoopPair()
    private var progress: ProgressLine
    private var budget: TimeBudget
    private var report: Report

    /// The protocols that the scenario `many` measures.
    private static let manyEngines = [
        ChannelConfiguration.defaultProtocol, TLSContext.protocolName,
    ]

    static func measure(_ settings: Settings, _ target: LinkTarget) async throws -> Report {
        var run = try BenchRun(settings, target)
        try await run.measure()
        return run.report
    }

    private init(_ settings: Settings, _ target: LinkTarget) throws {
        self.settings = settings
        self.target = target
        report = Report(settings)
        engineProtocols =
            settings.scenarios.contains(.engine) ? Self.engineProtocols(settings) : []
        subjects = settings.scenarios.contains(.handshake) ? try Self.handshakes(settings) : []
        sduSweep = settings.scenarios.contains(.link) ? Self.sweep(settings, target) : []
        let linkSteps = settings.scenarios.contains(.link) ? target.count * settings.sizes.count : 0
        storeSizes = settings.scenarios.contains(.link) ? Self.storeSizes(settings, target) : []
        streamTransports =
            settings.scenarios.contains(.link) && Self.measuresExactlyOnce(settings)
                && settings.measuresRoundTrips ? target.transports : []
        // The steps that share the time budget. The scenarios `many` and `radio` do not use it.
        let steps =
            engineProtocols.count * settings.recordSizes.count + subjects.count + linkSteps
            + sduSweep.count + storeSizes.count + streamTransports.count
        radioSetups =
            settings.scenarios.contains(.radio)
            ? RadioScenario.setups(isQuick: settings.isQuick) : []
        progress = ProgressLine(steps: steps + Self.manySteps(settings) + radioSetups.count)
        budget = TimeBudget(seconds: settings.timeLimitSeconds, steps: steps)
    }

    private mutating func measure() async throws {
        if !HostInfo.isOptimized {
            report.omissions.append("This is a debug build: its figures mean nothing.")
        }
        // Dials first, so that a missing peer is reported before anything is measured.
        var remote: SessionSet?
        if settings.scenarios.contains(.link), let endpoint = target.remote {
            remote = try await SessionSet.open(endpoint, settings.engines, loops)
        }
        defer { progress.clear() }
        try measureEngines()
        try measureHandshakes()
        if let remote, let endpoint = target.remote {
            try await measure("\(endpoint)", remote, measuresBlockingThreads: false)
            if Self.measuresExactlyOnce(settings) {
                report.omissions.append(
                    "Messages that arrive exactly once, and streams, were not measured: they need "
                        + "both ends in one process, without --connect.")
            }
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
        for name in engineProtocols {
            for size in settings.recordSizes {
                progress.show("engine, \(name), \(size.bytes)")
                // Counts the step. The result, a time limit, is not used: the step has a fixed
                // number of rounds.
                _ = budget.next()
                report.engine += try scenario.measure(name, size: size)
            }
        }
    }

    private mutating func measureHandshakes() throws {
        let scenario = HandshakeScenario(rounds: 2 * settings.rounds + 1)
        for subject in subjects {
            progress.show("handshake, \(subject.name)")
            // Counts the step. The result, a time limit, is not used: the step has a fixed number
            // of rounds.
            _ = budget.next()
            report.handshake.append(try scenario.measure(subject))
        }
    }

    /// The protocols that the settings name. If they name none, the default protocol with each of
    /// the two ciphers, and TLS.
    private static func engineProtocols(_ settings: Settings) -> [String] {
        let isDefault = settings.handshakeProtocols == nil
        return (isDefault ? [.noise, .noiseAESGCM, .tls] : settings.protocols).map(\.name)
    }

    /// The handshakes that the settings name. If they name none, the default pattern in every
    /// suite, every other pattern in the default suite, XXfallback, and full and resumed TLS.
    private static func handshakes(_ settings: Settings) throws -> [any HandshakeSubject] {
        guard let names = settings.handshakeProtocols else {
            let devices = try TLSDevices.shared()
            return try NoiseHandshakes.names.map(NoiseHandshakes.init)
                + [TLSHandshakes(devices), TLSResumptions(devices)]
        }
        return try names.map { name -> any HandshakeSubject in
            guard name == EngineChoice.tls.name else { return try NoiseHandshakes(name) }
            return TLSHandshakes(try TLSDevices.shared())
        }
    }

    // MARK: Links

    private mutating func measureLinks() async throws {
        for transport in target.transports {
            // Unless protocols were chosen, also measures the engine `exactlyOnce`.
            let engines =
                settings.engines + (Self.measuresExactlyOnce(settings) ? [.exactlyOnce] : [])
            let channels = try await SessionSet.open(transport, engines, loops)
            try await measure(
                transport.name, channels,
                measuresBlockingThreads: transport == .unix(.seqpacket))
        }
        for (sizes, transport) in sduSweep { try await measureSDUs(sizes, transport) }
        try await measureStores()
        for transport in streamTransports { try await measureStreams(transport) }
        if !target.transports.contains(where: { $0.name == "l2cap" }) {
            report.omissions.append(
                "l2cap was not measured: it needs two Bluetooth adapters that are on, or "
                    + "--connect.")
        }
    }

    /// Whether connections whose messages arrive exactly once are measured as well. They always use
    /// the default protocol, so they are measured only if no protocols were chosen.
    private static func measuresExactlyOnce(_ settings: Settings) -> Bool {
        settings.handshakeProtocols == nil
    }

    private mutating func measureStreams(_ transport: Transport) async throws {
        progress.show("link, \(transport.name), streams")
        let scenario = StreamScenario(sampleTime: settings.sampleTime, rounds: settings.rounds)
        report.streams.append(
            try await scenario.measure(
                transport.name, over: try await transport.connect(loops), until: budget.next()))
    }

    private mutating func measure(
        _ transport: String, _ channels: SessionSet, measuresBlockingThreads: Bool
    ) async throws {
        let scenario = LinkScenario(
            sampleTime: settings.sampleTime, rounds: settings.rounds,
            measuresRoundTrips: settings.measuresRoundTrips)
        for size in settings.sizes {
            progress.show("link, \(transport), \(size.bytes)")
            report.link += try await scenario.measure(
                transport, channels.sessions, size: size, until: budget.next(),
                measuresBlockingThreads: measuresBlockingThreads)
            guard let packetScenario = channels.packetScenario else { continue }
            for (link, session) in channels.sessions.enumerated() {
                report.packets.append(
                    try await packetScenario.measure(session, link: link, size: size))
            }
        }
        try await channels.close()
    }

    private static func sweep(
        _ settings: Settings, _ target: LinkTarget
    ) -> [(SDUScenario.Sizes, Transport)] {
        guard settings.sweepsSDUs else { return [] }
        return target.transports.flatMap { transport in
            SDUScenario.all.compactMap { sizes in transport.with(sizes).map { (sizes, $0) } }
        }
    }

    private mutating func measureSDUs(
        _ sizes: SDUScenario.Sizes, _ transport: Transport
    ) async throws {
        progress.show("link, \(transport.name), SDUs of \(sizes.sdu.bytes)")
        let channels = try await SessionSet.open(transport, settings.engines, loops)
        let scenario = LinkScenario(
            sampleTime: settings.sampleTime, rounds: settings.rounds, measuresRoundTrips: false)
        report.sdus += try await scenario.measure(
            transport.name, channels.sessions, size: SDUScenario.messageSize,
            until: budget.next(), measuresBlockingThreads: false
        ).map { SDUScenario.Result(sizes: sizes, link: $0) }
        try await channels.close()
    }

    // MARK: Stores

    /// The message sizes to measure with stores. Stores are measured only if the run includes links
    /// in memory and the default protocol.
    private static func storeSizes(_ settings: Settings, _ target: LinkTarget) -> [Int] {
        guard target.transports.contains(.memory), settings.protocols.contains(.noise) else {
            return []
        }
        return StoreScenario.sizes.filter(settings.sizes.contains)
    }

    private mutating func measureStores() async throws {
        let scenario = StoreScenario(
            rounds: settings.rounds, messages: settings.isQuick ? 500 : 5_000)
        for size in storeSizes {
            progress.show("link, stores on disk, \(size.bytes)")
            report.stores.append(
                try await scenario.measure(size: size, loop: loops.dialer, until: budget.next()))
        }
    }

    // MARK: Radio

    private mutating func measureRadio() async throws {
        let scenario = RadioScenario()
        var peers: [String: PeerConfigurations] = [:]
        for engine in RadioScenario.engines { peers[engine] = try PeerConfigurations(engine) }
        for (parameters, engines, variation) in radioSetups {
            progress.show("radio, \(variation ?? parameters.name)")
            report.radio += try await scenario.measure(
                parameters, peers, engines: engines, variation: variation)
            guard variation == nil else { continue }
            report.radioStreams.append(try await RadioStreams().measure(parameters))
        }
    }

    // MARK: Many channels

    private static func manySteps(_ settings: Settings) -> Int {
        guard settings.scenarios.contains(.many) else { return 0 }
        let counts = manyEngines.flatMap { channels(settings, $0) }
        // Three more steps: a listener, the cost of an unauthenticated peer, and a flood.
        return counts.count + counts.count { isSpread($0, settings) } + 3
    }

    /// The numbers of channels to measure with an engine.
    ///
    /// The first engine is measured with all numbers, and TLS with only one: the largest that is at
    /// most 1,000, or the largest of all if all are above 1,000. The memory of a TLS channel is
    /// measured best with many channels, but more than 1,000 TLS handshakes take too long.
    private static func channels(_ settings: Settings, _ engine: String) -> [Int] {
        guard engine != manyEngines[0] else { return settings.channels }
        let largest = settings.channels.filter { $0 <= 1_000 }.max() ?? settings.channels.max()
        return largest.map { [$0] } ?? []
    }

    /// Whether this number of channels is also spread over several loops.
    private static func isSpread(_ channels: Int, _ settings: Settings) -> Bool {
        settings.loops.map { channels >= $0 } ?? false
    }

    private mutating func measureMany() async throws {
        let descriptors = DescriptorBudget(limit: DescriptorLimit.raise())
        let scenario = ManyScenario(rounds: settings.rounds)
        // Smaller numbers first: the process reuses the memory of closed channels, so channels that
        // are measured after a larger number of channels would seem to take less memory.
        let items = Self.manyEngines.flatMap { engine in
            Self.channels(settings, engine).map { (engine: engine, count: $0) }
        }
        for (engine, count) in items.sorted(by: { $0.count < $1.count }) {
            let peers = try PeerConfigurations(engine)
            progress.show("many, \(engine.shortProtocol), \(count)")
            let result = try await scenario.measure(
                engine, peers, channels: count, descriptors)
            report.many.append(result)
            if result.link == .memory { addInMemoryNote("\(count) channels", descriptors) }
            guard let loops = settings.loops, Self.isSpread(count, settings) else { continue }
            progress.show("many, \(engine.shortProtocol), \(count) on \(loops) loops")
            let spread = LoopsScenario(loops: loops, rounds: settings.rounds)
            guard
                mayOpen(
                    spread.descriptors, of: descriptors,
                    otherwise: "Channels on \(loops) loops were not measured")
            else { continue }
            let spreadResult = try await spread.measure(
                engine, peers, channels: count, descriptors)
            report.loops.append(spreadResult)
            if spreadResult.link == .memory {
                addInMemoryNote("\(count) channels on \(loops) loops", descriptors)
            }
        }
        try await measureListeners(descriptors)
    }

    private mutating func measureListeners(_ descriptors: DescriptorBudget) async throws {
        let engine = Self.manyEngines[0]
        progress.show("many, a listener")
        if mayOpen(
            ListenerScenario.descriptors, of: descriptors, otherwise: "A listener was not measured")
        {
            let listener = ListenerScenario(
                rounds: settings.rounds,
                sampleTime: settings.isQuick ? 150_000_000 : 300_000_000)
            report.listeners.append(try await listener.measure(engine, PeerConfigurations(engine)))
        }
        progress.show("many, the cost of an unauthenticated peer")
        if mayOpen(
            UnauthenticatedCost.descriptors, of: descriptors,
            otherwise: "The cost of an unauthenticated peer was not measured")
        {
            for engine in Self.manyEngines {
                report.unauthenticatedCosts.append(
                    try await UnauthenticatedCost.measure(engine, PeerConfigurations(engine)))
            }
        }
        progress.show("many, a listener in a flood")
        if mayOpen(
            FloodScenario.descriptors, of: descriptors,
            otherwise: "A listener in a flood was not measured")
        {
            let flood = FloodScenario(sampleTime: settings.isQuick ? 300_000_000 : 1_000_000_000)
            report.flood.append(try await flood.measure(engine, PeerConfigurations(engine)))
        }
    }

    /// Whether a measurement may open `count` descriptors. If not, adds `effect`, which says what was
    /// left out, to the report.
    private mutating func mayOpen(
        _ count: Int, of descriptors: DescriptorBudget, otherwise effect: String
    ) -> Bool {
        let mayOpen = descriptors.permits(count)
        if !mayOpen { addNote(effect, descriptors) }
        return mayOpen
    }

    /// Adds to the report that `channels` ran over links in memory, because sockets would need too
    /// many descriptors.
    private mutating func addInMemoryNote(_ channels: String, _ descriptors: DescriptorBudget) {
        addNote("\(channels) ran over links in memory and not over sockets", descriptors)
    }

    /// Adds to the report what the descriptor limit has changed in this run, unless the report says
    /// so already. `effect` is the beginning of the sentence.
    private mutating func addNote(_ effect: String, _ descriptors: DescriptorBudget) {
        let note =
            "\(effect): this process can have at most \(descriptors.limit) descriptors "
            + "(`ulimit -Hn`)."
        if !report.omissions.contains(note) { report.omissions.append(note) }
    }
}
