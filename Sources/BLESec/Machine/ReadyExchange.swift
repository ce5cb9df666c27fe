internal import BLESecChannelCore
internal import BLESecPrimitives

/// The stage in which each side sends `ready`, to say that it has completed the handshake and trusts
/// the other side (`docs/wire-format.md`, "Records").
final class ReadyExchange: UnauthenticatedStage {
    private let agreement: Agreement
    /// The payload that the peer's `ready` must have.
    private let expectedPayload: [UInt8]
    /// The payload of this side's `ready`.
    private let ownPayload: [UInt8]
    private var hasSealedReady = false
    private var isPeerReady = false

    init(
        after handshake: Handshake, _ agreement: Agreement, _ transcript: NegotiationTranscript,
        now: UInt64
    ) {
        self.agreement = agreement
        ownPayload = transcript.ready(from: handshake.parameters.role)
        expectedPayload = transcript.ready(from: handshake.parameters.role.peer)
        super.init(after: handshake, now: now)
    }

    override var phase: ChannelPhase { .proving }
    /// False after the peer's `ready`: the peer sends no data before it has this side's `ready`.
    override var wantsBytes: Bool { !isPeerReady }
    override var dependsOnSending: Bool { isPeerReady && !hasSealedReady }
    override var failsAtByteLimit: Bool { !isPeerReady }
    override var claimedKey: Fingerprint? { agreement.peer.fingerprint }

    override func step(now: UInt64) throws(ChannelError) -> Step {
        // The next stage begins only when this side's `ready` is sealed, too.
        if isPeerReady {
            guard hasSealedReady else { return .wait }
            return .next(try nextStage(now: now))
        }
        guard !records.inbound.isEmpty, let record = try records.open() else { return .wait }
        if let plaintext = record.plaintext { isPeerReady = try isReady(plaintext) }
        records.inbound.consume(record.consumed)
        return .again
    }

    private func nextStage(now: UInt64) throws(ChannelError) -> ChannelStage {
        guard let rule = configuration.trust.pairingRule else {
            return NegotiatedSession(after: self, agreement, now: now)
        }
        guard let own = configuration.ownFingerprint(for: agreement.protocolName),
            let peer = agreement.peer.fingerprint
        else { throw ChannelError(.configuration, "pairing needs a key that each side proves") }
        return PairingStage(after: self, agreement, rule, own: own, peer: peer, now: now)
    }

    override func sealNext(now: UInt64) throws(ChannelError) -> Bool {
        guard !hasSealedReady else { return false }
        try records.seal(.ready, ownPayload)
        hasSealedReady = true
        return true
    }

    /// Whether a record is the peer's `ready`. False for an ignorable record. Throws for any other
    /// record, and for a `ready` that does not confirm the negotiation.
    private func isReady(_ plaintext: Range<Int>) throws(ChannelError) -> Bool {
        guard !plaintext.isEmpty else { throw .violation("a record without a type") }
        let record = records.inbound.withBytes { $0.span.array(in: plaintext) }
        let payload = Array(record.dropFirst())
        switch RecordType(rawValue: record[0]) {
        case .ready:
            let expected = expectedPayload
            guard constantTimeEqual(payload.span, expected.span) else { throw .wrongReady }
            try refuseOwnKey(ClaimedIdentity(agreement.peer))
            return true
        case .reject:
            var error = try Self.rejection(payload)
            error.claimed = ClaimedIdentity(agreement.peer)
            throw error
        case let type:
            guard type.isIgnorable else { throw .violation("a record before its ready") }
            return false
        }
    }

    private static func rejection(_ payload: [UInt8]) throws(ChannelError) -> ChannelError {
        guard payload.count == Record.readyLength, let code = RejectCode(rawValue: payload[0]),
            payload.dropFirst().allSatisfy({ $0 == 0 })
        else { throw .violation("a malformed reject") }
        return switch code {
        case .refused: ChannelError(.refused, "the peer refuses this identity")
        case .busy: ChannelError(.busy, "the peer has too many channels; try again later")
        case .internal: ChannelError(.refused, "something failed inside the peer")
        }
    }

    override func nextTimeout(now: UInt64) -> UInt64 {
        beginTime.after(configuration.timeouts.ready)
    }

    override func handleTimeout(now: UInt64) throws(ChannelError) -> Step {
        guard now >= nextTimeout(now: now) else { return .wait }
        throw .late("the peer's ready did not come within", configuration.timeouts.ready)
    }
}

extension ChannelError {
    static var wrongReady: ChannelError {
        ChannelError(.authenticationFailed, "the peer's ready does not confirm the negotiation")
    }
}
