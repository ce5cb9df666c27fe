internal import BLESecChannelCore
internal import BLESecNoise
internal import BLESecPrimitives

// What arrives: from the link's bytes to whole messages in the inbox.
extension ChannelMachine {
    /// Takes note of bytes that the driver has appended to ``inbound``, and works on all of them
    /// that can be worked on.
    mutating func process(arrived count: Int, now: UInt64) {
        guard outcome == nil else {
            inbound.removeAll()
            return
        }
        if count > 0 { clocks.didArrive(now: now) }
        if !isPeerReady { unauthenticatedBytes += count }
        // A driver that keeps to ``readAllowance`` never brings more.
        guard isPeerReady || unauthenticatedBytes <= unauthenticatedLimit else {
            return fail(.unauthenticated(after: unauthenticatedLimit))
        }
        do throws(ChannelError) {
            while outcome == nil, try step(now: now) {}
        } catch {
            fail(error)
        }
        // Nothing more is read, so that only a policy that still thinks can make a difference.
        guard
            isPeerReady || unauthenticatedBytes < unauthenticatedLimit
                || stage == .awaitingTrustDecision
        else {
            return fail(.unauthenticated(after: unauthenticatedLimit))
        }
        noteCompletion(now: now)
    }

    /// What a peer may send up to and with what authenticates it: its `ready`, or in direct mode what
    /// proves it; where that is a transport message, it may be as long as any.
    var unauthenticatedLimit: Int {
        configuration.limits.unauthenticatedBytes
            + (awaitsProof ? 2 + HandshakeState.maximumMessageLength : 0)
    }

    /// How many bytes the driver may append to ``inbound`` before the next ``process(arrived:now:)``.
    ///
    /// Before the peer is authenticated that is what the limit leaves, so that nothing beyond the
    /// limit is held or worked on; what the link has more than that stays there until then.
    var readAllowance: Int {
        isPeerReady ? .max : max(0, unauthenticatedLimit - unauthenticatedBytes)
    }

    /// Does one thing with what has arrived, and says whether there may be more to do.
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

    /// Moves the handshake on: this side's turn, the policy's, or the peer's.
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
            // A TLS hello of direct mode lies there until it is whole.
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

    /// An acceptor has nothing to say to a dial of its own process.
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

    /// Sends the last words of a handshake that has failed, and waits for the peer to go.
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

    /// Takes the answer of a policy that was asked; late answers change nothing.
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

    /// Remembers a refusal: the handshake ends in the engine's own way or in a `reject` record where
    /// that shows nothing of this side, and in silence elsewhere.
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

    /// Direct mode has no `ready`: what the peer has sent by now is its proof.
    mutating func peerIsProven(now: UInt64) {
        isPeerReady = true
        becomeReady(now: now)
    }

    /// Both sides are proven.
    mutating func becomeReady(now: UInt64) {
        clocks.ready = now
        dialToken = nil
    }

    /// This side refuses: what is queued is sent, and then the peer is expected to go.
    mutating func refuse(_ error: ChannelError, now: UInt64) {
        refusal = error
        stage = .refusing
        clocks.closing = now
    }
}

extension ChannelError {
    /// The peer has sent all that it may before it is authenticated.
    fileprivate static func unauthenticated(after limit: Int) -> ChannelError {
        ChannelError(
            .limitExceeded, "the peer sent \(limit) bytes and did not authenticate itself with them"
        )
    }
}
