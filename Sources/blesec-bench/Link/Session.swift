internal import BLESec

/// An open channel to a responder, which any task can measure.
struct Session: Sendable {
    let engine: EngineChoice
    private let loop: EventLoop
    private let channel: any MessageChannel

    /// Opens a channel over a link; a ``Responder`` serves the other end.
    init(_ engine: EngineChoice, over link: any Link) async throws {
        self.engine = engine
        loop = link.loop
        channel = try await Task(executorPreference: link.loop) {
            try await LinkPreface.send(engine, over: link)
            return try await engine.open(over: link, role: .dialer)
        }.value
    }

    /// See ``Measurement/transfer(count:size:)``.
    func transfer(count: Int, size: Int) async throws -> Double {
        try await onLoop { channel in
            try await Self.measuring(channel).transfer(count: count, size: size)
        }
    }

    /// See ``Measurement/roundTrips(count:size:)``.
    func roundTrips(count: Int, size: Int) async throws -> [Double] {
        try await onLoop { channel in
            try await Self.measuring(channel).roundTrips(count: count, size: size)
        }
    }

    /// Ends the channel, which also ends the responder.
    func close() async throws {
        try await onLoop { channel in try await channel.close() }
    }

    private func onLoop<Value: Sendable>(
        _ body: @escaping @Sendable (any MessageChannel) async throws -> Value
    ) async throws -> Value {
        let channel = channel
        return try await Task(executorPreference: loop) { try await body(channel) }.value
    }

    private static func measuring(_ channel: any MessageChannel) -> any Measuring {
        func open<Channel: MessageChannel>(_ channel: Channel) -> any Measuring {
            Measurement(channel: channel)
        }
        return open(channel)
    }
}
