package import BLESecChannelCore
internal import BLESecPrimitives

/// An application's engine with its type erased, so that a channel need not be generic.
package class AnySecureEngine {
    fileprivate init() {}

    /// Boxes an engine.
    package static func boxing<Wrapped: SecureEngine & ~Copyable>(
        _ engine: consuming Wrapped
    ) -> AnySecureEngine {
        EngineBox(engine)
    }

    var phase: EnginePhase { .failed }
    var framesHandshake: Bool { false }
    var handshakeHash: [UInt8] { [] }
    var announcesRekey: Bool { false }
    var provesEnd: Bool { false }
    var isPeerProven: Bool { false }
    var owesProof: Bool { false }
    var bulkPayload: Int { 0 }
    func sealedLength(_ count: Int) -> Int { 0 }
    func recordLength(_ bytes: Span<UInt8>) throws(ChannelError) -> Int? { nil }
    func receiveHandshake(_ bytes: Span<UInt8>) throws(ChannelError) -> Int { 0 }
    func nextHandshake() throws(ChannelError) -> [UInt8]? { nil }
    func admit() throws(ChannelError) {}
    func refuse() -> Refusal { .silent }
    func seal(
        _ type: UInt8?, _ payload: Span<UInt8>, into output: inout OutputSpan<UInt8>
    ) throws(ChannelError) {}
    func open(_ buffer: inout MutableSpan<UInt8>) throws(ChannelError) -> OpenedRecord? { nil }
    func rekeySending() throws(ChannelError) {}
    func rekeyReceiving() throws(ChannelError) {}
    func export(
        label: String, context: [UInt8], count: Int
    ) throws(ChannelError) -> SecretBytes {
        throw .engineIsDead
    }
}

/// The box around one engine. Its overrides forward, one line each.
private final class EngineBox<Wrapped: SecureEngine & ~Copyable>: AnySecureEngine {
    private var engine: Wrapped

    init(_ engine: consuming Wrapped) { self.engine = engine }

    override var phase: EnginePhase { engine.phase }
    override var framesHandshake: Bool { engine.framesHandshake }
    override var handshakeHash: [UInt8] { engine.handshakeHash }
    override var announcesRekey: Bool { engine.announcesRekey }
    override var provesEnd: Bool { engine.provesEnd }
    override var isPeerProven: Bool { engine.isPeerProven }
    override var owesProof: Bool { engine.owesProof }
    override var bulkPayload: Int { engine.bulkPayload }
    override func sealedLength(_ count: Int) -> Int { engine.sealedLength(count) }
    override func recordLength(_ bytes: Span<UInt8>) throws(ChannelError) -> Int? {
        try engine.recordLength(bytes)
    }
    override func receiveHandshake(_ bytes: Span<UInt8>) throws(ChannelError) -> Int {
        try engine.receiveHandshake(bytes)
    }
    override func nextHandshake() throws(ChannelError) -> [UInt8]? { try engine.nextHandshake() }
    override func admit() throws(ChannelError) { try engine.admit() }
    override func refuse() -> Refusal { engine.refuse() }
    override func seal(
        _ type: UInt8?, _ payload: Span<UInt8>, into output: inout OutputSpan<UInt8>
    ) throws(ChannelError) {
        try engine.seal(type, payload, into: &output)
    }
    override func open(_ buffer: inout MutableSpan<UInt8>) throws(ChannelError) -> OpenedRecord? {
        try engine.open(&buffer)
    }
    override func rekeySending() throws(ChannelError) { try engine.rekeySending() }
    override func rekeyReceiving() throws(ChannelError) { try engine.rekeyReceiving() }
    override func export(
        label: String, context: [UInt8], count: Int
    ) throws(ChannelError) -> SecretBytes {
        try engine.export(label: label, context: context, count: count)
    }
}
