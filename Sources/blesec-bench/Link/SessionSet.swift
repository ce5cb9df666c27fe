internal import BLESec

/// One open channel for each engine, over links of one kind. The first channel is the plain
/// channel, without encryption.
struct SessionSet: Sendable {
    let sessions: [Session]
    /// Counts the packets of the sessions' links; nil if they cannot be counted.
    let packetScenario: PacketScenario?
    private let responders: [Task<Void, any Error>]

    /// Opens channels between two ends in this process.
    static func open(
        _ transport: Transport, _ engines: [EngineChoice], _ loops: LoopPair
    ) async throws -> SessionSet {
        var sessions: [Session] = []
        var packetScenario = transport.dialingAdapter.map { PacketScenario(adapter: $0) }
        var responders: [Task<Void, any Error>] = []
        for engine in engines {
            let ends = try await transport.connect(loops)
            responders.append(
                Task(executorPreference: ends.acceptor.loop) {
                    try await Responder.serve(engine, over: ends.acceptor)
                })
            sessions.append(try await Session(engine, over: ends.dialer))
            if let metered = ends.metered { packetScenario?.links.append(metered) }
        }
        return SessionSet(
            sessions: sessions, packetScenario: packetScenario, responders: responders)
    }

    /// Opens channels to a process that runs `blesec-bench serve`.
    static func open(
        _ endpoint: Endpoint, _ engines: [EngineChoice], _ loops: LoopPair
    ) async throws -> SessionSet {
        var sessions: [Session] = []
        for engine in engines {
            let deadline = loops.dialer.now.advanced(by: .seconds(10))
            let link = try await endpoint.dial(deadline: deadline, loop: loops.dialer)
            try await Task(executorPreference: link.loop) {
                try await LinkPreface.send(engine, over: link)
            }.value
            sessions.append(try await Session(engine, over: link))
        }
        return SessionSet(sessions: sessions, packetScenario: nil, responders: [])
    }

    /// Ends all channels; throws the first error of either end.
    func close() async throws {
        for session in sessions { try await session.close() }
        for responder in responders { try await responder.value }
    }
}
