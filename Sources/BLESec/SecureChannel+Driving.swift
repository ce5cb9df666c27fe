internal import BLESecChannelCore
internal import BLESecLinks

// The actor connects the machine, which decides, to the link, which moves bytes.
extension SecureChannel {
    /// The most link calls that one turn makes to read or to send, before the loop's other channels
    /// run.
    private static let callsPerTurn = 8
    /// The most link calls that read before a deadline is checked: enough for more than a whole
    /// record, at the sizes that a socket returns per call.
    private static let callsBeforeDeadline = 32
    /// How often a draining link queue is checked.
    private static let drainPoll: Duration = .milliseconds(2)
    /// The minimum buffer space for one read; most reads have much more.
    private static let readSize = 16 << 10

    /// Begins the handshake; called once, before any other code has the channel.
    func start() throws(ChannelError) {
        do throws(ChannelError) {
            try machine.begin()
        } catch {
            machine.fail(error)
            link.close()
            throw error
        }
        timer = LoopTimer(loop: loop, handler: port)
        port.channel = self
        link.setHandler(port)
        machine.revokeReassembly = { [weak self] in
            guard let self else { return }
            Task(executorPreference: self.loop) { await self.abort(.tooMuchUnderWay) }
        }
        if let denied = configuration.trust.denied {
            denyToken = denied.observe { [weak self] _ in
                guard let self else { return }
                Task(executorPreference: self.loop) { await self.lookAtDenyList() }
            }
        }
        pump()
    }

    /// Waits until both sides have proven their identity.
    func waitUntilReady() async throws(ChannelError) {
        while !machine.isReady {
            if let outcome = machine.outcome { throw outcome.error }
            do throws(ChannelError) {
                try await wait(for: .ready) { machine.isReady || machine.outcome != nil }
            } catch {
                machine.fail(error)
                pump()
                throw error
            }
        }
        // A channel can become ready and end in one turn; messages that have arrived can still be
        // received.
    }

    func read() {
        let now = now
        read(calls: Self.callsPerTurn, now: now)
        pump(now: now)
    }

    private func read(calls: Int, now: UInt64) {
        for _ in 0..<calls where machine.wantsBytes && !hasLinkEnded {
            guard readOnce(now: now) else { return }
        }
    }

    /// Reads once; returns whether there may be more to read.
    private func readOnce(now: UInt64) -> Bool {
        let before = machine.inbound.count
        let allowance = machine.readAllowance
        let result: LinkReceive
        do throws(LinkError) {
            result = try machine.inbound.append(
                room: Self.readSize, atMost: allowance,
                orThrow: LinkError(.tooLarge, "the channel's buffer has no room for what arrives")
            ) { space throws(LinkError) in
                try link.receive(into: &space)
            }
        } catch {
            linkEnded(ChannelError(link: error))
            return false
        }
        switch result {
        case .bytes:
            machine.process(arrived: machine.inbound.count - before, now: now)
            return true
        case .wouldBlock:
            return false
        case .end:
            linkEnded(nil)
            return false
        }
    }

    private func linkEnded(_ error: ChannelError?) {
        hasLinkEnded = true
        // In direct mode the end of the link is the only end, so it is no error.
        let isEnd = error == nil && configuration.mode == .direct
        machine.linkEnded(
            isEnd ? nil : error ?? brokenLink, canSend: brokenLink == nil, now: now)
    }

    func hangUp() {
        if brokenLink == nil {
            brokenLink = ChannelError(.truncated, "the link to the peer broke")
        }
        machine.startDraining(now: now)
        // While a trust policy decides, nothing is read, and what the peer sent no longer matters.
        if machine.stage == .awaitingTrustDecision { linkEnded(nil) }
        // In direct mode the peer may already have ended its direction.
        if hasLinkEnded { linkEnded(nil) }
        read()
    }

    /// Handles a deadline, or the shutdown of the loop.
    func timeout() {
        if loop.isShutDown {
            let error = ChannelError(.closed, "the channel's event loop was shut down")
            machine.fail(error)
            remembered(.failure(error))
        }
        storeTimeout(now: now)
        // After the process was stopped for a while, its deadlines are past, while bytes that
        // arrived in time are still unread. Reading first avoids taking that for silence of the
        // peer.
        let now = now
        read(calls: Self.callsBeforeDeadline, now: now)
        machine.timeout(now: now)
        pump(now: now)
    }

    /// Advances the channel: sends what can be sent, wakes waiting tasks, arms the timer.
    func pump() { pump(now: now) }

    /// Advances the channel, with the time already read in this turn.
    func pump(now: UInt64) {
        askPolicy()
        askStore()
        transmit(now: now)
        sayFarewell(now: now)
        wake(now: now)
        if machine.outcome == nil {
            link.wantsRead = machine.wantsBytes && !hasLinkEnded
            timer?.arm(at: MonotonicTime(nanoseconds: nextDeadline(now: now)))
        } else {
            armForStore()
            trustEvaluationTask?.cancel()
            trustDecisionPlace = nil
            link.close()
        }
    }

    private func transmit(now: UInt64) {
        var calls = 0
        while brokenLink == nil, machine.outcome == nil {
            machine.sealPending(now: now)
            guard !machine.outbound.isEmpty else {
                link.wantsWrite = false
                return
            }
            guard calls < Self.callsPerTurn else {
                link.wantsWrite = true
                return
            }
            calls += 1
            do throws(LinkError) {
                let sduLimit = machine.maximumSDU
                let sent = try machine.outbound.withBytes { bytes throws(LinkError) in
                    try link.send(bytes.span.extracting(first: sduLimit))
                }
                guard sent > 0 else {
                    machine.didBlock()
                    link.wantsWrite = true
                    return
                }
                machine.didSend(sent, now: now)
            } catch {
                // What the peer sent before the link broke is still to be read.
                brokenLink = ChannelError(link: error)
                machine.startDraining(now: now)
                link.wantsWrite = false
                if hasLinkEnded { linkEnded(brokenLink) }
            }
        }
    }

    private func askPolicy() {
        guard let evaluate = machine.takeTrustEvaluation(), let identity = machine.claimedIdentity
        else {
            return
        }
        if let trustDecisions {
            trustDecisionPlace = trustDecisions.take()
            guard trustDecisionPlace != nil else {
                return machine.didDecide(.refuse("too many trust decisions are pending"), now: now)
            }
        }
        trustEvaluationTask = Task { [weak self] in
            var verdict = TrustPolicy.Verdict.refuse("the trust policy failed")
            do {
                verdict = try await evaluate(identity)
            } catch {
                verdict = .refuse("the trust policy failed: \(error)")
            }
            await self?.didDecide(verdict)
        }
    }

    func didDecide(_ verdict: TrustPolicy.Verdict) {
        trustEvaluationTask = nil
        trustDecisionPlace = nil
        machine.didDecide(verdict, now: now)
        pump()
    }

    private func lookAtDenyList() {
        guard let key = machine.claimedIdentity?.fingerprint,
            configuration.trust.denied?.contains(key) == true
        else { return }
        machine.fail(ChannelError(.untrusted, "\(key) has been put on the deny list"))
        pump()
    }

    private func sayFarewell(now: UInt64) {
        if machine.linkShutdown(canHalfClose: canHalfClose, now: now) == .halfClose,
            !hasSaidHalfClose
        {
            hasSaidHalfClose = true
            canHalfClose = link.halfClose()
        }
        guard mayClose(now: now), link.isDrained else { return }
        link.close()
        machine.didCloseLink()
    }

    private func mayClose(now: UInt64) -> Bool {
        machine.linkShutdown(canHalfClose: canHalfClose, now: now) == .closeWhenDrained
    }

    private func nextDeadline(now: UInt64) -> UInt64 {
        // Tasks whose deadline has passed are already woken, and remove their own deadlines.
        let delivery = deliveryDeadlines.reduce(.max) { $1 > now ? min($0, $1) : $0 }
        let deadline = min(machine.deadline(now: now), delivery, rememberDeadline ?? .max)
        return mayClose(now: now) ? min(deadline, now.after(Self.drainPoll)) : deadline
    }

    private func wake(now: UInt64) {
        let isOver = machine.outcome != nil
        if machine.isReady || isOver { waiting.wake(.ready) }
        if hasMessageNews { waiting.wake(.message) }
        let isLate = deliveryDeadlines.contains { $0 <= now }
        if isOver || isLate || machine.hasRoom { waiting.wake(.room) }
        if isOver || isLate || machine.acknowledgements.acknowledged > lastAcknowledged
            || machine.hidesAcknowledgements
        {
            lastAcknowledged = machine.acknowledgements.acknowledged
            waiting.wake(.acknowledgement)
        }
        if isOver || machine.hasPeerEnded { waiting.wake(.end) }
    }
}
