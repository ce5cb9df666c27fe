internal import BLESecChannelCore
internal import BLESecNoiseEngine
internal import BLESecPrimitives
internal import BLESecTLSEngine

// The calls of ``SecureEngine``, forwarded to the engine in use. They are in a file of their own, so
// that they can reach the engine only through ``Engine/call(_:_:)`` and ``Engine/ask(_:_:)``. Each of
// these two functions takes a closure for Noise, and then a closure for TLS.
extension Engine {
    @discardableResult
    mutating func receiveHandshake(_ bytes: Span<UInt8>) throws(ChannelError) -> Int {
        try call(
            { engine throws(ChannelError) in try engine.receiveHandshake(bytes) },
            { engine throws(ChannelError) in try engine.receiveHandshake(bytes) })
    }

    /// Continues with a fallback handshake that reuses the ephemeral key that this engine has sent.
    mutating func fallBack(to plan: NoisePlan, prologue: [UInt8]) throws(ChannelError) {
        try call(
            { engine throws(ChannelError) in try engine.fallBack(to: plan, prologue: prologue) },
            { _ throws(ChannelError) in throw .engineHasEnded })
    }

    mutating func nextHandshake() throws(ChannelError) -> [UInt8]? {
        try call(
            { engine throws(ChannelError) in try engine.nextHandshake() },
            { engine throws(ChannelError) in try engine.nextHandshake() })
    }

    mutating func admit() throws(ChannelError) {
        try call(
            { engine throws(ChannelError) in try engine.admit() },
            { engine throws(ChannelError) in try engine.admit() })
    }

    mutating func refuse() -> Refusal { (try? call({ $0.refuse() }, { $0.refuse() })) ?? .silent }

    mutating func seal(
        _ head: Span<UInt8>, _ payload: Span<UInt8>, into output: inout OutputSpan<UInt8>
    ) throws(ChannelError) {
        try call(
            { engine throws(ChannelError) in try engine.seal(head, payload, into: &output) },
            { engine throws(ChannelError) in try engine.seal(head, payload, into: &output) })
    }

    mutating func open(_ buffer: inout MutableSpan<UInt8>) throws(ChannelError) -> OpenedRecord? {
        try call(
            { engine throws(ChannelError) in try engine.open(&buffer) },
            { engine throws(ChannelError) in try engine.open(&buffer) })
    }

    mutating func rekeySending() throws(ChannelError) {
        try call(
            { engine throws(ChannelError) in try engine.rekeySending() },
            { engine throws(ChannelError) in try engine.rekeySending() })
    }

    mutating func rekeyReceiving() throws(ChannelError) {
        try call(
            { engine throws(ChannelError) in try engine.rekeyReceiving() },
            { engine throws(ChannelError) in try engine.rekeyReceiving() })
    }

    /// Exports a key. A failed export is the caller's mistake and does not end the engine.
    func export(label: String, context: [UInt8], count: Int) throws(ChannelError) -> SecretBytes {
        let key = try ask(
            { engine throws(ChannelError) in
                try engine.export(label: label, context: context, count: count)
            },
            { engine throws(ChannelError) in
                try engine.export(label: label, context: context, count: count)
            })
        guard let key else { throw .engineHasEnded }
        return key
    }

    var phase: EnginePhase { ask({ $0.phase }, { $0.phase }) ?? .failed }
    var handshakeHash: [UInt8] { ask({ $0.handshakeHash }, { $0.handshakeHash }) ?? [] }
    var framesHandshake: Bool { ask({ $0.framesHandshake }, { $0.framesHandshake }) ?? false }
    var announcesRekey: Bool { ask({ $0.announcesRekey }, { $0.announcesRekey }) ?? false }
    var provesEnd: Bool { ask({ $0.provesEnd }, { $0.provesEnd }) ?? false }
    var isPeerProven: Bool { ask({ $0.isPeerProven }, { $0.isPeerProven }) ?? false }
    var owesProof: Bool { ask({ $0.owesProof }, { $0.owesProof }) ?? false }
    var bulkPayload: Int { ask({ $0.bulkPayload }, { $0.bulkPayload }) ?? 0 }
}
