internal import BLESecChannelCore
internal import BLESecNoiseEngine
internal import BLESecTLSEngine

/// The engine of one channel: Noise, TLS, or none any more.
///
/// Only ``call(_:_:)`` leads to an engine that can be changed, and a call that throws ends it.
///
/// There is one of the two at most. They are optionals and not the cases of an enum, because Swift
/// changes an optional in its place: out of an enum some 750 bytes would move for each call and back
/// again, which took a fifth to a third of the time of a record of 64 bytes.
struct Engine: ~Copyable {
    private var noise: NoiseEngine?
    private var tls: TLSEngine?

    /// No engine: every call throws.
    static var none: Engine { Engine() }

    private init() {}

    init(_ engine: consuming NoiseEngine) { noise = consume engine }

    init(_ engine: consuming TLSEngine) { tls = consume engine }

    /// Makes one call to the engine. When it throws there is no engine any more: its `deinit` has
    /// wiped the keys, and every later call throws.
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
        throw .engineIsDead
    }

    /// Asks the engine for something that changes nothing; `nil` when there is none.
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
    fileprivate mutating func lend<Result>(
        to call: (inout Self) throws(ChannelError) -> Result
    ) throws(ChannelError) -> Result {
        try call(&self)
    }
}

extension ChannelError {
    static var engineIsDead: ChannelError {
        ChannelError(.closed, "the channel's keys are wiped; open a new channel")
    }
}
