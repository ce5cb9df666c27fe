internal import BLESecChannelCore
internal import BLESecNoiseEngine
internal import BLESecPrimitives
internal import BLESecTLSEngine

/// The engine of one channel: one of ours, an application's, or none any more.
///
/// Each call takes the engine out, leaves `failed` in its place, and puts it back when the call has
/// succeeded: whatever throws is dead by construction, and its `deinit` wipes the keys.
enum Engine: ~Copyable {
    case noise(NoiseEngine)
    case tls(TLSEngine)
    case app(AnySecureEngine)
    case failed
}

extension Engine {
    var phase: EnginePhase {
        switch self {
        case .noise(let engine): engine.phase
        case .tls(let engine): engine.phase
        case .app(let engine): engine.phase
        case .failed: .failed
        }
    }

    /// Whether each handshake message travels behind a u16 length.
    var framesHandshake: Bool {
        switch self {
        case .noise(let engine): engine.framesHandshake
        case .tls(let engine): engine.framesHandshake
        case .app(let engine): engine.framesHandshake
        case .failed: false
        }
    }

    var handshakeHash: [UInt8] {
        switch self {
        case .noise(let engine): engine.handshakeHash
        case .tls(let engine): engine.handshakeHash
        case .app(let engine): engine.handshakeHash
        case .failed: []
        }
    }

    var announcesRekey: Bool {
        switch self {
        case .noise(let engine): engine.announcesRekey
        case .tls(let engine): engine.announcesRekey
        case .app(let engine): engine.announcesRekey
        case .failed: false
        }
    }

    var provesEnd: Bool {
        switch self {
        case .noise(let engine): engine.provesEnd
        case .tls(let engine): engine.provesEnd
        case .app(let engine): engine.provesEnd
        case .failed: false
        }
    }

    var isPeerProven: Bool {
        switch self {
        case .noise(let engine): engine.isPeerProven
        case .tls(let engine): engine.isPeerProven
        case .app(let engine): engine.isPeerProven
        case .failed: false
        }
    }

    var owesProof: Bool {
        switch self {
        case .noise(let engine): engine.owesProof
        case .tls(let engine): engine.owesProof
        case .app(let engine): engine.owesProof
        case .failed: false
        }
    }

    var bulkPayload: Int {
        switch self {
        case .noise(let engine): engine.bulkPayload
        case .tls(let engine): engine.bulkPayload
        case .app(let engine): engine.bulkPayload
        case .failed: 0
        }
    }

    func sealedLength(_ count: Int) -> Int {
        switch self {
        case .noise(let engine): engine.sealedLength(count)
        case .tls(let engine): engine.sealedLength(count)
        case .app(let engine): engine.sealedLength(count)
        case .failed: 0
        }
    }

    func recordLength(_ bytes: Span<UInt8>) throws(ChannelError) -> Int? {
        switch self {
        case .noise(let engine): try engine.recordLength(bytes)
        case .tls(let engine): try engine.recordLength(bytes)
        case .app(let engine): try engine.recordLength(bytes)
        case .failed: throw .engineIsDead
        }
    }

    func export(
        label: String, context: [UInt8], count: Int
    ) throws(ChannelError) -> SecretBytes {
        switch self {
        case .noise(let engine): try engine.export(label: label, context: context, count: count)
        case .tls(let engine): try engine.export(label: label, context: context, count: count)
        case .app(let engine): try engine.export(label: label, context: context, count: count)
        case .failed: throw .engineIsDead
        }
    }

    @discardableResult
    mutating func receiveHandshake(_ bytes: Span<UInt8>) throws(ChannelError) -> Int {
        switch consume self {
        case .noise(var engine):
            self = .failed
            let used = try engine.receiveHandshake(bytes)
            self = .noise(engine)
            return used
        case .tls(var engine):
            self = .failed
            let used = try engine.receiveHandshake(bytes)
            self = .tls(engine)
            return used
        case .app(let engine):
            self = .failed
            let used = try engine.receiveHandshake(bytes)
            self = .app(engine)
            return used
        case .failed:
            self = .failed
            throw .engineIsDead
        }
    }

    /// Goes on with a fallback on the ephemeral that this engine has sent.
    mutating func fallBack(to plan: NoisePlan, prologue: [UInt8]) throws(ChannelError) {
        switch consume self {
        case .noise(let engine):
            self = .failed
            self = .noise(try NoiseEngine(fallback: plan, after: engine, prologue: prologue))
        case .tls:
            self = .failed
            throw .engineIsDead
        case .app:
            self = .failed
            throw .engineIsDead
        case .failed:
            self = .failed
            throw .engineIsDead
        }
    }

    mutating func nextHandshake() throws(ChannelError) -> [UInt8]? {
        switch consume self {
        case .noise(var engine):
            self = .failed
            let message = try engine.nextHandshake()
            self = .noise(engine)
            return message
        case .tls(var engine):
            self = .failed
            let message = try engine.nextHandshake()
            self = .tls(engine)
            return message
        case .app(let engine):
            self = .failed
            let message = try engine.nextHandshake()
            self = .app(engine)
            return message
        case .failed:
            self = .failed
            throw .engineIsDead
        }
    }

    mutating func admit() throws(ChannelError) {
        switch consume self {
        case .noise(var engine):
            self = .failed
            try engine.admit()
            self = .noise(engine)
        case .tls(var engine):
            self = .failed
            try engine.admit()
            self = .tls(engine)
        case .app(let engine):
            self = .failed
            try engine.admit()
            self = .app(engine)
        case .failed:
            self = .failed
            throw .engineIsDead
        }
    }

    mutating func refuse() -> Refusal {
        switch consume self {
        case .noise(var engine):
            let refusal = engine.refuse()
            self = .noise(engine)
            return refusal
        case .tls(var engine):
            let refusal = engine.refuse()
            self = .tls(engine)
            return refusal
        case .app(let engine):
            let refusal = engine.refuse()
            self = .app(engine)
            return refusal
        case .failed:
            self = .failed
            return .silent
        }
    }

    mutating func seal(
        _ type: UInt8?, _ payload: Span<UInt8>, into output: inout OutputSpan<UInt8>
    ) throws(ChannelError) {
        switch consume self {
        case .noise(var engine):
            self = .failed
            try engine.seal(type, payload, into: &output)
            self = .noise(engine)
        case .tls(var engine):
            self = .failed
            try engine.seal(type, payload, into: &output)
            self = .tls(engine)
        case .app(let engine):
            self = .failed
            try engine.seal(type, payload, into: &output)
            self = .app(engine)
        case .failed:
            self = .failed
            throw .engineIsDead
        }
    }

    mutating func open(
        _ buffer: inout MutableSpan<UInt8>
    ) throws(ChannelError) -> OpenedRecord? {
        switch consume self {
        case .noise(var engine):
            self = .failed
            let record = try engine.open(&buffer)
            self = .noise(engine)
            return record
        case .tls(var engine):
            self = .failed
            let record = try engine.open(&buffer)
            self = .tls(engine)
            return record
        case .app(let engine):
            self = .failed
            let record = try engine.open(&buffer)
            self = .app(engine)
            return record
        case .failed:
            self = .failed
            throw .engineIsDead
        }
    }

    mutating func rekeySending() throws(ChannelError) {
        switch consume self {
        case .noise(var engine):
            self = .failed
            try engine.rekeySending()
            self = .noise(engine)
        case .tls(var engine):
            self = .failed
            try engine.rekeySending()
            self = .tls(engine)
        case .app(let engine):
            self = .failed
            try engine.rekeySending()
            self = .app(engine)
        case .failed:
            self = .failed
            throw .engineIsDead
        }
    }

    mutating func rekeyReceiving() throws(ChannelError) {
        switch consume self {
        case .noise(var engine):
            self = .failed
            try engine.rekeyReceiving()
            self = .noise(engine)
        case .tls(var engine):
            self = .failed
            try engine.rekeyReceiving()
            self = .tls(engine)
        case .app(let engine):
            self = .failed
            try engine.rekeyReceiving()
            self = .app(engine)
        case .failed:
            self = .failed
            throw .engineIsDead
        }
    }
}

extension ChannelError {
    static var engineIsDead: ChannelError {
        ChannelError(.closed, "the channel's keys are wiped; open a new channel")
    }
}
