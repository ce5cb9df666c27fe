internal import BLESecChannelCore
internal import BLESecNoise
internal import BLESecNoiseEngine
internal import BLESecPrimitives

/// Code that seals records and opens them again: a library, or a layer of this package above it.
protocol EngineLayer: AnyObject {
    var name: String { get }

    /// Seals `count` bytes of plaintext, at least one, and opens them again, `repetitions` times.
    func sealAndOpen(_ count: Int, repetitions: Int) throws

    /// If the layer copies records from one buffer into another, allocates `gap` bytes and then new
    /// buffers, so that the buffers get other addresses.
    ///
    /// A copy between two buffers is up to 45 % slower if the destination starts a few bytes after
    /// the source, modulo the page size. Without new addresses, all samples of a run could have
    /// such buffers. With new addresses, few samples have them, and the median does not change.
    func moveBuffers(by gap: Int) throws
}

extension EngineLayer {
    func moveBuffers(by gap: Int) {}
}

/// The AEAD of `BLESecPrimitives`.
final class AEADLayer: EngineLayer {
    let name = "AEAD"
    private var sealing: AEAD
    private var opening: AEAD
    private var buffer = [UInt8](repeating: 0, count: EngineScenario.bufferSize)
    private var nonce: UInt64 = 0

    init(_ algorithm: AEADAlgorithm) {
        let key = SecretBytes(count: AEADAlgorithm.keyLength)
        sealing = AEAD(algorithm, key: key)
        opening = AEAD(algorithm, key: key)
    }

    func sealAndOpen(_ count: Int, repetitions: Int) throws {
        try Self.run(&sealing, &opening, &buffer, nonce, count, repetitions)
        nonce += UInt64(repetitions)
    }

    // With `inout` parameters, Swift checks exclusive access once for the run and not for each
    // call.
    private static func run(
        _ sealing: inout AEAD, _ opening: inout AEAD, _ buffer: inout [UInt8],
        _ firstNonce: UInt64, _ count: Int, _ repetitions: Int
    ) throws {
        var span = buffer.mutableSpan
        for nonce in firstNonce..<firstNonce + UInt64(repetitions) {
            try sealing.seal(&span, count: count, nonce: nonce)
            try opening.open(&span, count: count + AEADAlgorithm.tagLength, nonce: nonce)
        }
    }
}

/// Noise's transport states, one for each end.
final class TransportLayer: EngineLayer {
    let name = "TransportState"
    private var sender: TransportState
    private var receiver: TransportState
    private var buffer = [UInt8](repeating: 0, count: EngineScenario.bufferSize)

    init(_ protocolName: String) throws {
        let ends = try NoiseHandshakes(protocolName).finishedSides()
        sender = try ends.dialer.takeTransport()
        receiver = try ends.acceptor.takeTransport()
    }

    func sealAndOpen(_ count: Int, repetitions: Int) throws {
        try Self.run(&sender, &receiver, &buffer, count, repetitions)
    }

    private static func run(
        _ sender: inout TransportState, _ receiver: inout TransportState,
        _ buffer: inout [UInt8], _ count: Int, _ repetitions: Int
    ) throws {
        var span = buffer.mutableSpan
        for _ in 0..<repetitions {
            try sender.encrypt(inPlace: &span, count: count)
            _ = try receiver.decrypt(inPlace: &span, at: 0, count: count + TransportState.overhead)
        }
    }
}

/// A channel's Noise engine, which also frames records: a plaintext is a type and a payload. Each
/// record is opened in the buffer into which it was sealed.
final class NoiseEngineLayer: EngineLayer {
    let name = "NoiseEngine"
    private var sender: NoiseEngine
    private var receiver: NoiseEngine
    private var wire = RecordBuffer(capacity: EngineScenario.bufferSize)
    private let payload = [UInt8](repeating: 0, count: EngineScenario.bufferSize)

    init(_ protocolName: String) throws {
        var dialer = try Self.engine(protocolName, .dialer)
        var acceptor = try Self.engine(protocolName, .acceptor)
        while !dialer.isEstablished || !acceptor.isEstablished {
            try Self.pass(from: &dialer, to: &acceptor)
            try Self.pass(from: &acceptor, to: &dialer)
        }
        sender = dialer
        receiver = acceptor
    }

    private static func engine(
        _ protocolName: String, _ role: ChannelRole
    ) throws -> NoiseEngine {
        let name = try ProtocolName(protocolName)
        let identity = try IdentityKey.generate(curve: name.curve, hash: name.hash)
        let plan = try NoisePlan(
            protocolName, role: role, identity: identity, trust: .anyone, presharedKeys: [],
            allowsExposedIdentity: true)
        return try NoiseEngine(plan, prologue: [])
    }

    private static func pass(from writer: inout NoiseEngine, to reader: inout NoiseEngine) throws {
        if case .awaitingTrustDecision = writer.phase { try writer.admit() }
        while let message = try writer.nextHandshake() {
            try reader.receiveHandshake(message.span)
            if case .awaitingTrustDecision = reader.phase { try reader.admit() }
        }
    }

    func sealAndOpen(_ count: Int, repetitions: Int) throws {
        let payload = payload
        let span = payload.span.extracting(first: count - 1)
        try Self.run(&sender, &receiver, &wire, span, repetitions)
    }
}

extension EngineLayer {
    /// Seals `repetitions` records with one engine of a channel, and opens them with the other.
    ///
    /// A channel calls its engine without generic code. So does this function when it is inlined
    /// into a caller that knows the type `Engine`. Calls through generic code would add 2 % to the
    /// time for a record of 1 KiB.
    // Not `@inline(always)`, which crashes the compiler of Swift 6.3 in a debug build.
    @inline(__always)
    static func run<Engine: SecureEngine & ~Copyable>(
        _ sender: inout Engine, _ receiver: inout Engine, _ wire: inout RecordBuffer,
        _ payload: Span<UInt8>, _ repetitions: Int
    ) throws {
        let length = sender.sealedLength(payload.count + 1)
        let head: [1 of UInt8] = [RecordType.data.rawValue]
        for _ in 0..<repetitions {
            try wire.append(room: length) { output throws(ChannelError) in
                try sender.seal(head.span, payload, into: &output)
            }
            let record = try wire.withBytes { bytes throws(ChannelError) in
                try receiver.open(&bytes)
            }
            guard let record, record.plaintext?.count == payload.count + 1 else {
                throw BenchError.wrongResult("\(Self.self)")
            }
            wire.consume(record.consumed)
        }
    }
}

extension NoiseEngine {
    fileprivate var isEstablished: Bool { if case .established = phase { true } else { false } }
}
