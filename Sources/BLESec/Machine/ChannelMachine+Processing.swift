internal import BLESecChannelCore
internal import BLESecNoise
internal import BLESecPrimitives

// Receiving: from the link's bytes to whole messages in the inbox.
extension ChannelMachine {
    /// Records bytes that the driver has appended to ``inbound``, and processes all of them that
    /// can be processed.
    mutating func process(arrived count: Int, now: UInt64) {
        guard outcome == nil else {
            inbound.removeAll()
            return
        }
        if count > 0 { clocks.didArrive(now: now) }
        if !isPeerReady { unauthenticatedBytes += count }
        // A driver that respects ``readAllowance`` never exceeds this limit.
        guard isPeerReady || unauthenticatedBytes <= unauthenticatedLimit else {
            return fail(.unauthenticated(after: unauthenticatedLimit))
        }
        do throws(ChannelError) {
            while outcome == nil, try step(now: now) {}
        } catch {
            fail(error)
        }
        // At the limit nothing more is read, so only a pending trust decision can still change the
        // outcome.
        guard
            isPeerReady || unauthenticatedBytes < unauthenticatedLimit
                || stage == .awaitingTrustDecision
        else {
            return fail(.unauthenticated(after: unauthenticatedLimit))
        }
        noteCompletion(now: now)
    }

    /// How many bytes a peer may send until it is authenticated, including the bytes that
    /// authenticate it: its `ready`, or in direct mode its proof. If the proof is a transport
    /// message, it may have the maximum length.
    var unauthenticatedLimit: Int {
        configuration.limits.unauthenticatedBytes
            + (awaitsProof ? 2 + HandshakeState.maximumMessageLength : 0)
    }

    /// How many bytes the driver may append to ``inbound`` before the next call of
    /// ``process(arrived:now:)``.
    ///
    /// Before the peer is authenticated, this is the rest of the limit, so that nothing beyond the
    /// limit is held or processed; further bytes stay in the link until then.
    var readAllowance: Int {
        isPeerReady ? .max : max(0, unauthenticatedLimit - unauthenticatedBytes)
    }

    /// Processes one unit of the bytes that have arrived; returns whether there may be more to
    /// process.
    private mutating func step(now: UInt64) throws(ChannelError) -> Bool {
        switch stage {
        case .hello: return try readHello()
        case .early: return try readEarly(now: now)
        case .answer: return try readAnswer(now: now)
        case .handshake: return try shakeHands(now: now)
        case .awaitingTrustDecision: return false
        case .records: return try readRecord(now: now)
        case .refusing:
            inbound.removeAll()
            return false
        }
    }

    /// Advances the handshake: by a message of this side, a trust decision, or a message of the
    /// peer.
    mutating func shakeHands(now: UInt64) throws(ChannelError) -> Bool {
        switch engine.phase {
        case .awaitingTrustDecision(let identity):
            try evaluateTrust(identity, now: now)
            return true
        case .established(let identity):
            try handshakeDone(identity, now: now)
            return true
        case .failing(let error):
            try giveUp(error, now: now)
            return true
        case .handshaking, .failed:
            break
        }
        if let message = try engine.nextHandshake() {
            try appendHandshake(message)
            return true
        }
        if engine.framesHandshake {
            guard let message = try takeFramed() else { return false }
            try refuseOwnDial(message)
            try engine.receiveHandshake(message.span)
        } else {
            // A TLS hello in direct mode stays in the buffer until it is complete.
            if unauthenticatedBytes == inbound.count {
                try refuseOwnDial(
                    inbound.withBytes {
                        $0.span.array(in: 0..<min($0.count, PendingDials.prefixLength))
                    })
            }
            let used = try Self.receiveHandshake(&engine, &inbound)
            inbound.consume(used)
            return used > 0
        }
        return true
    }

    /// Rejects a dial of the acceptor's own process without sending anything.
    private func refuseOwnDial(_ message: [UInt8]) throws(ChannelError) {
        guard role == .acceptor,
            configuration.pendingDials.refuses(message, by: configuration.ownKeys)
        else { return }
        throw .talksToItself
    }

    private static func receiveHandshake(
        _ engine: inout Engine, _ inbound: inout WireBuffer
    ) throws(ChannelError) -> Int {
        try inbound.withBytes { bytes throws(ChannelError) in
            try engine.receiveHandshake(bytes.span)
        }
    }

    /// Sends the final messages of a failed handshake, and waits for the peer to close the link.
    private mutating func giveUp(_ error: ChannelError, now: UInt64) throws(ChannelError) {
        while let words = try engine.nextHandshake() { try appendHandshake(words) }
        refuse(refusal ?? error, now: now)
    }

    /// Asks the trust policy about an identity, once.
    private mutating func evaluateTrust(_ identity: ClaimedIdentity, now: UInt64)
        throws(ChannelError)
    {
        claimedIdentity = identity
        guard !configuration.isOwn(identity) else { throw .talksToItself }
        switch configuration.policy(for: protocolName).decide(identity) {
        case .admit:
            try engine.admit()
        case .refuse(let reason):
            try deny(ChannelError(.untrusted, reason))
        case .ask(let evaluate):
            pendingEvaluation = evaluate
            clocks.awaitingTrustDecision = now
            stage = .awaitingTrustDecision
        case .lookUp(let lookUp):
            pendingLookUp = lookUp
            clocks.awaitingTrustDecision = now
            stage = .awaitingTrustDecision
        }
    }

    /// Applies the decision of the trust policy; a late decision changes nothing.
    mutating func didDecide(_ verdict: TrustPolicy.Verdict, now: UInt64) {
        guard outcome == nil, stage == .awaitingTrustDecision else { return }
        pendingEvaluation = nil
        pendingLookUp = nil
        clocks.awaitingTrustDecision = nil
        clocks.negotiated = now
        stage = .handshake
        do throws(ChannelError) {
            switch verdict {
            case .admit: try engine.admit()
            case .refuse(let reason): try deny(ChannelError(.untrusted, reason))
            }
        } catch {
            fail(error)
        }
        process(arrived: 0, now: now)
    }

    /// Records a refusal. The handshake ends in the engine's own way or with a `reject` record if
    /// that reveals nothing about this side, and without a message otherwise.
    private mutating func deny(_ reason: ChannelError) throws(ChannelError) {
        var error = reason
        error.claimed = claimedIdentity
        switch engine.refuse() {
        case .byHandshake:
            refusal = error
        case .byRecord where configuration.mode == .negotiated:
            refusal = error
            try engine.admit()
        case .byRecord, .silent:
            throw error
        }
    }

    private mutating func handshakeDone(
        _ identity: PeerIdentity, now: UInt64
    ) throws(ChannelError) {
        self.identity = identity
        clocks.handshakeDone = now
        noteHandshakeHash()
        stage = .records
        switch configuration.mode {
        case .direct:
            isOwnReadySent = true
            if engine.isPeerProven { peerIsProven(now: now) }
        case .negotiated:
            acknowledgements.rule =
                switch configuration.acknowledgement {
                case .manual: .confirmed
                case .automatic: features.contains(.acknowledgesTaken) ? .taken : .arrived
                }
            if let refusal {
                control.reject = .refused
                refuse(refusal, now: now)
            } else {
                control.ready = true
            }
        }
    }

    /// Records the peer's proof. Direct mode has no `ready`: what the peer has sent by now proves
    /// its identity.
    mutating func peerIsProven(now: UInt64) {
        isPeerReady = true
        becomeReady(now: now)
    }

    /// Records that both sides are proven.
    mutating func becomeReady(now: UInt64) {
        clocks.ready = now
        dialToken = nil
    }

    /// Refuses the peer: what is queued is sent, and then the peer is expected to close the link.
    mutating func refuse(_ error: ChannelError, now: UInt64) {
        refusal = error
        stage = .refusing
        clocks.closing = now
    }
}

extension ChannelError {
    /// The error for a peer that has sent all it may send before it is authenticated.
    fileprivate static func unauthenticated(after limit: Int) -> ChannelError {
        ChannelError(
            .limitExceeded, "the peer sent \(limit) bytes and did not authenticate itself with them"
        )
    }
}
