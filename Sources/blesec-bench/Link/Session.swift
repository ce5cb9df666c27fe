internal import BLESec

/// An open channel to a ``Responder``. Its methods may be called from any task.
struct Session: Sendable {
    let engine: EngineChoice
    private let loop: EventLoop
    private let channel: any MessageChannel

    /// Opens a channel over a link; a ``Responder`` serves the other end.
    init(_ engine: EngineChoice, over link: any Link) async throws {
        self.engine = engine
        loop = link.loop
        channel = try await Task(executorPreference: link.loop) {
            try await engine.open(over: link, role: .dialer)
        }.value
    }

    /// Sends messages one way, and returns the nanoseconds until the responder has answered that
    /// all of them have arrived.
    func transfer(count: Int, size: Int) async throws -> Double {
        try await onLoop { channel in
            try await Self.transfer(over: channel, count: count, size: size)
        }
    }

    /// Sends each message after the peer has returned the previous one. Returns the nanoseconds
    /// of each round trip.
    func roundTrips(count: Int, size: Int) async throws -> [Double] {
        try await onLoop { channel in
            try await Self.roundTrips(over: channel, count: count, size: size)
        }
    }

    /// Ends the channel; the responder then ends too.
    func close() async throws { try await onLoop { channel in try await channel.close() } }

    private func onLoop<Value: Sendable>(
        _ body: @escaping @Sendable (any MessageChannel) async throws -> Value
    ) async throws -> Value {
        let channel = channel
        return try await Task(executorPreference: loop) { try await body(channel) }.value
    }

    private static func transfer(
        over channel: some MessageChannel, count: Int, size: Int
    ) async throws -> Double {
        let message = [UInt8](repeating: 0x5A, count: size)
        let start = Clock.time
        try await channel.send(Request(.sink, count: count, size: size).encoded)
        for _ in 0..<count { try await channel.send(message) }
        guard try await channel.receive() == [1] else {
            throw BenchError.wrongResult("the peer's answer")
        }
        return Double(Clock.time - start)
    }

    private static func roundTrips(
        over channel: some MessageChannel, count: Int, size: Int
    ) async throws -> [Double] {
        let message = [UInt8](repeating: 0xA5, count: size)
        var times: [Double] = []
        times.reserveCapacity(count)
        try await channel.send(Request(.echo, count: count, size: size).encoded)
        for _ in 0..<count {
            let start = Clock.time
            try await channel.send(message)
            guard let back = try await channel.receive(), back.count == size else {
                throw BenchError.wrongResult("the peer's echo")
            }
            times.append(Double(Clock.time - start))
        }
        return times
    }
}
