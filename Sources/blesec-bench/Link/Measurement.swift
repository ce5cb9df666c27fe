internal import BLESec

/// The measuring end of a channel of any type. Call its functions on the channel's loop.
protocol Measuring: Sendable {
    /// Sends messages one way, and returns the nanoseconds until the peer has confirmed all of
    /// them.
    func transfer(count: Int, size: Int) async throws -> Double
    /// Sends messages that the peer returns, one after another, and returns the nanoseconds of each
    /// round trip.
    func roundTrips(count: Int, size: Int) async throws -> [Double]
}

/// The measuring end of a channel of one type, so that calls are dispatched statically.
struct Measurement<Channel: MessageChannel>: Measuring {
    let channel: Channel

    func transfer(count: Int, size: Int) async throws -> Double {
        let message = [UInt8](repeating: 0x5A, count: size)
        let start = Clock.time
        try await channel.send(Request(.sink, count: count, size: size).encoded)
        for _ in 0..<count { try await channel.send(message) }
        guard try await channel.receive() == [1] else {
            throw BenchError.wrongResult("the peer's answer")
        }
        return Double(Clock.time - start)
    }

    func roundTrips(count: Int, size: Int) async throws -> [Double] {
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
