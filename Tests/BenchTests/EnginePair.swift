import BLESec
import BLESecNoiseEngine

/// Two engines after their handshake, and the bytes between them.
struct EnginePair: ~Copyable {
    private var sender: NoiseEngine
    private var receiver: NoiseEngine
    private var wire = [UInt8](repeating: 0, count: 1 << 17)

    init(_ name: String) throws {
        var dialer = try Self.engine(name, .dialer)
        var acceptor = try Self.engine(name, .acceptor)
        for _ in 0..<2 {
            try Self.passHandshake(from: &dialer, to: &acceptor)
            try Self.passHandshake(from: &acceptor, to: &dialer)
        }
        sender = dialer
        receiver = acceptor
    }

    private static func engine(_ name: String, _ role: ChannelRole) throws -> NoiseEngine {
        let plan = try NoisePlan(
            name, role: role, identity: .generate(), trust: .anyone, presharedKeys: [],
            allowsExposedIdentity: false)
        return try NoiseEngine(plan, prologue: [])
    }

    private static func passHandshake(
        from writer: inout NoiseEngine, to reader: inout NoiseEngine
    ) throws {
        while let message = try writer.nextHandshake() {
            try reader.receiveHandshake(message.span)
            if case .awaitingTrustDecision = reader.phase { try reader.admit() }
        }
    }

    /// Seals one record and opens it.
    mutating func pass(_ payload: [UInt8]) throws {
        try Self.seal(payload, with: &sender, into: &wire)
        // A record's plaintext is its type, in one byte, and the payload.
        guard try Self.open(&wire, with: &receiver) == payload.count + 1 else {
            throw Failure.wrongRecord
        }
    }

    /// Opens the record at the start of `wire`, and returns the length of its plaintext; `nil` if
    /// the record is incomplete or has no plaintext.
    private static func open(
        _ wire: inout [UInt8], with receiver: inout NoiseEngine
    ) throws -> Int? {
        var span = wire.mutableSpan
        return try receiver.open(&span)?.plaintext?.count
    }

    private static func seal(
        _ payload: [UInt8], with sender: inout NoiseEngine, into wire: inout [UInt8]
    ) throws {
        try unsafe wire.withUnsafeMutableBufferPointer { storage in
            var output = unsafe OutputSpan(buffer: storage, initializedCount: 0)
            let head: [1 of UInt8] = [RecordType.data.rawValue]
            try sender.seal(head.span, payload.span, into: &output)
            _ = unsafe output.finalize(for: storage)
        }
    }

    enum Failure: Error { case wrongRecord }
}

/// Two channels over a memory link.
enum ChannelPair {
    /// Opens two channels whose link is on `loop`.
    static func open(
        _ name: String, loop: EventLoop
    ) async throws -> (dialer: SecureChannel, acceptor: SecureChannel) {
        let (first, second) = await loop.run { MemoryLink.pair(loop: loop) }
        async let dialer = SecureChannel.open(
            over: first, role: .dialer, configuration: configuration(name))
        async let acceptor = SecureChannel.open(
            over: second, role: .acceptor, configuration: configuration(name))
        return try await (dialer, acceptor)
    }

    private static func configuration(_ name: String) throws -> ChannelConfiguration {
        var configuration = ChannelConfiguration(identity: try .generate(), trust: .anyone)
        configuration.protocols = [name]
        return configuration
    }

    /// Sends one message and receives it.
    static func pass(
        _ message: [UInt8], from sender: SecureChannel, to receiver: SecureChannel
    ) async throws {
        try await sender.send(message)
        guard try await receiver.receive()?.count == message.count else {
            throw Failure.wrongMessage
        }
    }

    enum Failure: Error { case wrongMessage }
}
