internal import BLESecChannelCore
internal import BLESecNoiseEngine
internal import BLESecTLSEngine

/// The engine of one channel: Noise, TLS, or none once the engine has ended.
///
/// Other code can change the engine only in the closures of ``call(_:_:)``. A call that throws ends
/// the engine.
///
/// At most one of ``noise`` and ``tls`` is set. They are optionals rather than cases of an enum,
/// because Swift changes an optional in place. With an enum, each call would move about 820 bytes
/// out and back, which took a fifth to a third of the time of a 64-byte record.
struct Engine: ~Copyable {
    private var noise: NoiseEngine?
    private var tls: TLSEngine?
    /// Whether ``noise`` is set. A property of its own, because checking ``noise`` copies it.
    private let isNoise: Bool

    /// No engine: every call throws.
    static var none: Engine { Engine() }
    private init() { isNoise = false }
    init(_ engine: consuming NoiseEngine) {
        noise = consume engine
        isNoise = true
    }
    init(_ engine: consuming TLSEngine) {
        tls = consume engine
        isNoise = false
    }

    /// Makes one call. If it throws, the engine ends: its keys are wiped, and later calls throw.
    mutating func call<Result>(
        _ noiseCall: (inout NoiseEngine) throws(ChannelError) -> Result,
        _ tlsCall: (inout TLSEngine) throws(ChannelError) -> Result
    ) throws(ChannelError) -> Result {
        do throws(ChannelError) {
            if let result = try noise?.lend(to: noiseCall) { return result }
            if let result = try tls?.lend(to: tlsCall) { return result }
        } catch {
            self = .none
            throw error
        }
        throw .engineHasEnded
    }

    /// The length of a sealed record with `count` bytes of plaintext; 0 when there is no engine.
    ///
    /// ``ask(_:_:)`` would copy the engine for each record, and the copy takes longer than the
    /// answer. The length is the same for every Noise engine; a TLS engine is asked in place.
    mutating func sealedLength(_ count: Int) -> Int {
        if isNoise { return NoiseEngine.sealedLength(count) }
        return tls?.lend { $0.sealedLength(count) } ?? 0
    }

    /// Whether a record can be sealed now; if not, more bytes of the peer have to arrive first. True
    /// when there is no engine: the call that seals then throws. The engine is asked in place, as
    /// for ``sealedLength(_:)``.
    mutating func canSeal() -> Bool {
        if isNoise { return true }
        return tls?.lend { $0.canSeal } ?? true
    }

    /// Reads from the engine without changing it; returns `nil` when there is no engine.
    func ask<Answer: ~Copyable, Failure: Error>(
        _ noiseAnswer: (borrowing NoiseEngine) throws(Failure) -> Answer,
        _ tlsAnswer: (borrowing TLSEngine) throws(Failure) -> Answer
    ) throws(Failure) -> Answer? {
        switch noise {
        case .some(let engine): return try noiseAnswer(engine)
        case nil: break
        }
        switch tls {
        case .some(let engine): return try tlsAnswer(engine)
        case nil: return nil
        }
    }
}

extension SecureEngine where Self: ~Copyable {
    /// Makes a call on the engine where it is stored: optional chaining does not copy the engine.
    fileprivate mutating func lend<Result, Failure: Error>(
        to call: (inout Self) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try call(&self)
    }
}

extension ChannelError {
    static var engineHasEnded: ChannelError {
        ChannelError(.closed, "the channel's keys are wiped; open a new channel")
    }
}
