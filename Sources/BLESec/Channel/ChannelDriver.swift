internal import BLESecChannelCore
internal import BLESecLinks

/// Moves bytes between a channel's machine and its link, and wakes waiting tasks. The machine makes
/// the decisions. The channel, its link and its timer use the driver, on the loop's thread only.
final class ChannelDriver {
    private let link: any Link
    let waiting: LoopCondition
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    var machine: ChannelMachine
    /// Asks the trust policy about the peer, and the store to remember the peer; nil once both are
    /// done.
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    var trustRequests: TrustRequests?
    /// Where the channel's listener reads how far the channel is; nil without a listener, and once
    /// the channel is over.
    var progress: HandshakeProgress?
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    /// The deadlines of the calls that wait for room or for an acknowledgement.
    private(set) var callDeadlines: [UInt64] = []

    private let loop: EventLoop
    private lazy var timer = LoopTimer(loop: loop, handler: self)
    /// Why the link cannot send any more; nil while it can. Bytes that have arrived are still read.
    private var sendError: ChannelError? { didSet { canSend = sendError == nil } }
    /// Whether ``sendError`` is nil. A property of its own, because comparing ``sendError`` with
    /// nil copies the error.
    private var canSend = true
    /// Whether the link has nothing more to read.
    private var hasLinkEnded = false
    /// Whether the link took nothing at the last attempt to send, and has not reported room since.
    private var isLinkFull = false
    /// When to try the link again after the kernel had no memory for a send; otherwise nil. The
    /// link cannot report that there is memory again.
    private var retryTime: UInt64?
    /// Whether the link was asked to keep its queue short.
    private var linkKeepsQueueShort = false
    private var halfCloseState = HalfCloseState.possible
    /// The link's ``Link/queuedBytes`` when this side last waited for the queue to drain.
    private var lastQueuedBytes = Int.max
    /// When the link's own queue last became shorter.
    private var lastDrainTime: UInt64 = 0
    /// How many messages the peer had acknowledged when the tasks that wait for acknowledgements
    /// were last woken.
    private var lastAcknowledged: UInt64 = 0
    /// The turn of the loop in which bytes were last offered to the link.
    private var lastSendTurn: UInt64 = 0
    /// Whether ``pump(now:)`` is to run at the end of the loop's turn.
    private var isFlushPending = false
    /// Whether this side's `ready` is sealed and waits for the end of the turn.
    private var isReadyDelayed = false
    /// Whether a call to the link is under way; the link must not call its handler meanwhile.
    private var isCallingLink = false
    private enum HalfCloseState { case possible, done, unsupported }

    /// The most reads from the link, and the most sends to the link, in one turn before other
    /// channels run.
    private static let callsPerTurn = 8
    /// The maximum number of reads before a deadline is checked. That many SDUs of the default size
    /// hold more than one whole record.
    private static let callsBeforeDeadline = 32
    /// When this many bytes of messages are queued, they do not wait for the end of the turn.
    private static let flushSize = 32 << 10
    /// How long to wait after the kernel had no memory for a send.
    private static let retryDelay: Duration = .milliseconds(20)
    /// The least and the most time between two checks whether the link's own queue is empty, before
    /// the link closes.
    private static let shortestDrainPause = Duration.milliseconds(2)
    private static let longestDrainPause = Duration.milliseconds(128)

    init(over link: any Link, _ machine: consuming ChannelMachine, _ trustRequests: TrustRequests) {
        self.link = link
        self.machine = machine
        self.trustRequests = trustRequests
        loop = link.loop
        waiting = LoopCondition(loop: link.loop)
    }

    var now: UInt64 { loop.now.nanoseconds }

    // MARK: - Beginning and end

    /// Begins the handshake. `onBudgetRevoked` is called, on any thread, when the process needs the
    /// memory of this channel's incomplete message.
    func start(onBudgetRevoked: @escaping @Sendable () -> Void) throws(ChannelError) {
        do throws(ChannelError) {
            try machine.begin(onBudgetRevoked: onBudgetRevoked)
        } catch {
            link.close()
            throw error
        }
        link.setHandler(self)
        pump()
    }

    func fail(_ error: ChannelError) {
        sendAll()
        machine.fail(error)
        trustRequests?.fail(error)
        pump()
    }

    /// Closes the link without an `end`, because nobody uses the channel any more.
    func drop() {
        sendAll()
        trustRequests?.cancelDecision()
        timer.disarm()
        link.close()
    }

    // MARK: - The link

    func read() {
        flushBeforeReceiving()
        let now = now
        read(calls: Self.callsPerTurn, now: now)
        pump(now: now)
    }

    /// Reads what has arrived, including bytes that the loop has not reported yet.
    func readUnreported() {
        stopWatching()
        read()
    }

    /// Stops watching the link, until ``pump(now:)`` watches it again. A read from a socket that is
    /// watched, and was empty at the last read, returns `wouldBlock` without a system call. A read
    /// from a socket that is not watched makes the system call.
    private func stopWatching() { link.wantsRead = false }

    private func read(calls: Int, now: UInt64) {
        for _ in 0..<calls where machine.wantsBytes && !hasLinkEnded {
            do throws(LinkError) {
                let result = try machine.receive(now: now) { space throws(LinkError) in
                    isCallingLink = true
                    defer { isCallingLink = false }
                    return try link.receive(into: &space)
                }
                switch result {
                case .bytes: continue
                case .wouldBlock: return
                case .end: linkEnded(nil)
                }
            } catch {
                linkEnded(ChannelError(link: error))
            }
        }
    }

    private func linkEnded(_ error: ChannelError?) {
        hasLinkEnded = true
        // In direct mode a peer may end by closing the link. The stage decides whether that is an
        // error, so an earlier error of sending must not replace the stage's decision.
        let mayBePlannedEnd = error == nil && machine.parameters.configuration.mode == .direct
        let reason = mayBePlannedEnd ? nil : error ?? sendError
        machine.linkEnded(reason, canSend: canSend, now: now)
    }

    /// Reads again if there is room now. `wasFull` says whether reading had stopped, because too many
    /// messages waited for the program. If `wasFull` is false, does nothing.
    func resumeReading(wasFull: Bool, now: UInt64) {
        if wasFull { flushBeforeReceiving() }
        if machine.resumeReading(wasFull: wasFull, now: now) { pump(now: now) }
    }

    /// Sends what was queued. Sends at once if the link has room, and either nothing was sent in
    /// this turn of the loop or much is queued; otherwise at the end of the turn.
    func flush() {
        let isFirstOfTurn = lastSendTurn != loop.turn
        let isMuchQueued = machine.queuedBytes >= Self.flushSize
        if isFirstOfTurn || isMuchQueued, !isLinkFull { pump() } else { flushAtEndOfTurn() }
    }

    /// Called when the ``DeliveryPort`` may take records again: processes the received records that
    /// have waited for the port, and sends the records that the port has.
    func portDidResume() {
        machine.portDidResume(now: now)
        portDidGetRecords(hasMessage: true)
    }

    /// Sends the records that the ``DeliveryPort`` has. Sends at once if a message is among them
    /// (`hasMessage`), nothing was sent in this turn, and the link has room; otherwise at the end
    /// of the turn.
    func portDidGetRecords(hasMessage: Bool) {
        machine.portMayHaveRecords()
        if hasMessage, lastSendTurn != loop.turn, !isLinkFull {
            pump()
        } else {
            flushAtEndOfTurn()
        }
    }

    /// Runs ``pump()`` at the end of the turn.
    func flushAtEndOfTurn() {
        guard !isFlushPending else { return }
        isFlushPending = true
        loop.runAtEndOfTurn(self)
    }

    /// Runs ``pump()`` now if it is to run at the end of the turn.
    func flushPending() { if isFlushPending { pump() } }

    /// Whether this side's `ready` waits for the end of the turn, and no message waits with it.
    var onlyReadyWaits: Bool { isReadyDelayed && machine.queuedBytes == 0 }

    /// Sends what was queued in this turn, as far as the link has room now. Called before received
    /// bytes are processed, because these bytes may end the channel.
    private func flushBeforeReceiving() {
        guard isFlushPending else { return }
        isLinkFull = false
        pump()
    }

    /// Sends what is queued, as far as the link has room now. Called before this side ends the
    /// channel, so that only what the link would not take is lost.
    private func sendAll() {
        isFlushPending = false
        guard machine.isReady else { return }
        machine.portMayHaveRecords()
        isLinkFull = false
        transmit(calls: .max, now: now)
    }

    /// Sends what can be sent, wakes waiting tasks, and arms the timer.
    func pump() { pump(now: now) }

    /// Does the same as ``pump()``, with the time that this turn has already read.
    func pump(now: UInt64) {
        (isFlushPending, isReadyDelayed) = (false, false)
        // A stage that depends on sending reads nothing now, so no read can report the link's end.
        if !canSend, machine.dependsOnSending { linkEnded(nil) }
        askAboutPeer(now: now)
        if becameReadyBySealing(now: now) {
            // What the program sends in the rest of this turn leaves together with `ready`.
            isReadyDelayed = true
            flushAtEndOfTurn()
        } else {
            transmit(now: now)
            // Sealing a stage's last record may have begun the next stage, which may have a
            // question about the peer.
            if askAboutPeer(now: now) { transmit(now: now) }
        }
        shutDownLink(now: now)
        wake(now: now)
        if machine.isOver {
            trustRequests?.cancelDecision()
            timer.arm(at: MonotonicTime(nanoseconds: trustRequests?.rememberDeadline ?? .max))
            link.close()
        } else {
            link.wantsRead = machine.wantsBytes && !hasLinkEnded
            // Armed even without a deadline, because the timer also reports the loop's shutdown.
            let next = MonotonicTime(nanoseconds: nextTimeout(now: now))
            timer.arm(at: min(next, LoopTimer.latestTime))
        }
        reportProgress()
    }

    /// Seals what waits, and returns whether that has made the channel ready.
    private func becameReadyBySealing(now: UInt64) -> Bool {
        guard !machine.isReady, canSend else { return false }
        machine.sealPending(now: now)
        return machine.isReady
    }

    /// Tells the listener how far the channel is. Every change of the machine is followed by
    /// ``pump(now:)``, which calls this method.
    func reportProgress() {
        guard let progress else { return }
        progress.stage = stage
        if machine.isOver { self.progress = nil }
    }

    private var stage: HandshakeProgress.Stage {
        if machine.isOver { return .over }
        if machine.isReady { return .ready }
        let isDeciding = trustRequests?.holdsDecisionPlace == true || machine.hasConfirmedPairing
        return isDeciding ? .deciding : .unproven
    }

    /// Whether a listener may give this handshake's place to another link.
    ///
    /// True until the peer has proven its identity, whatever it has sent, since messages can be
    /// replayed. There are two exceptions: while ``TrustPolicy/asking(_:)`` waits for the
    /// application's answer (the number of such peers is limited), and during the last confirmations
    /// of a pairing.
    var mayLosePlace: Bool { stage == .unproven }

    /// Sends until nothing waits, the link is full, or `calls` sends were made.
    private func transmit(calls: Int = callsPerTurn, now: UInt64) {
        var calls = calls
        if linkKeepsQueueShort != machine.keepsQueueShort {
            linkKeepsQueueShort = machine.keepsQueueShort
            link.keepsQueueShort = linkKeepsQueueShort
        }
        if !isLinkFull { retryTime = nil }
        // A full link reports when it has room; trying earlier would cost a system call each time.
        while calls > 0, canSend, !machine.isOver, !isLinkFull {
            calls -= 1
            do throws(LinkError) {
                let transmission = try machine.transmit(now: now) { bytes throws(LinkError) in
                    isCallingLink = true
                    defer { isCallingLink = false }
                    return try link.send(bytes)
                }
                if transmission != .nothing { lastSendTurn = loop.turn }
                guard case .sent = transmission else {
                    isLinkFull = transmission == .blocked
                    link.wantsWrite = isLinkFull
                    return
                }
            } catch {
                if error.isTemporary {
                    // Waits as for a full link, but not for a report of room: the link may have
                    // room, and would report it at once.
                    machine.linkDidBlock()
                    (isLinkFull, link.wantsWrite) = (true, false)
                    retryTime = now.after(Self.retryDelay)
                    return
                }
                // What the peer sent before the link broke is still read, unless the stage reads
                // nothing now and can only continue by sending.
                sendError = ChannelError(link: error)
                machine.linkWasLost(now: now)
                if hasLinkEnded || machine.dependsOnSending { linkEnded(sendError) }
            }
        }
        guard canSend else {
            // A link that has hung up reports room in every turn while writes are wanted.
            link.wantsWrite = false
            return
        }
        machine.sealPending(now: now)
        link.wantsWrite = retryTime == nil && machine.hasUnsentBytes
    }

    /// Half-closes or closes the link, if the machine permits that now.
    private func shutDownLink(now: UInt64) {
        if permittedShutdown(now: now) == .halfClose, halfCloseState == .possible {
            halfCloseState = link.halfClose() ? .done : .unsupported
        }
        guard permittedShutdown(now: now) == .closeWhenDrained else { return }
        let queued = link.queuedBytes
        if queued < lastQueuedBytes {
            machine.linkDidPassOn(now: now)
            lastDrainTime = now
        }
        lastQueuedBytes = queued
        guard queued == 0 else { return }
        link.close()
        machine.didCloseLink()
    }

    private func permittedShutdown(now: UInt64) -> LinkShutdown {
        machine.permittedLinkShutdown(canHalfClose: halfCloseState != .unsupported, now: now)
    }

    // MARK: - The trust decision

    /// Asks the stage's question about the peer, if there is one. If the question cannot be asked now,
    /// refuses the peer and returns true.
    @discardableResult
    private func askAboutPeer(now: UInt64) -> Bool {
        guard let trustRequests, let question = machine.takeTrustQuestion(),
            let refusal = trustRequests.ask(question)
        else { return false }
        machine.didDecide(refusal, now: now)
        return true
    }

    /// Applies the answer of a trust policy or store.
    func didDecide(_ verdict: TrustPolicy.Verdict) {
        trustRequests?.didDecide()
        machine.didDecide(verdict.refusal, now: now)
        pump()
    }

    // MARK: - Time

    /// Adds the deadline of a call that waits for room or for an acknowledgement. At that time, all
    /// such calls are woken. Each caller removes its own deadline with ``removeCallDeadline(_:)``.
    func addCallDeadline(_ deadline: UInt64) {
        callDeadlines.append(deadline)
        let time = MonotonicTime(nanoseconds: deadline)
        if time < timer.deadline ?? .distantFuture { timer.arm(at: time) }
    }

    func removeCallDeadline(_ deadline: UInt64) {
        guard let index = callDeadlines.firstIndex(of: deadline) else { return }
        callDeadlines.remove(at: index)
    }

    private func nextTimeout(now: UInt64) -> UInt64 {
        // Tasks whose deadline has passed are already woken, and remove their own deadlines.
        let callDeadline = callDeadlines.reduce(.max) { earliest, deadline in
            deadline > now ? min(earliest, deadline) : earliest
        }
        // Nested, because `min` allocates an array for more than three arguments.
        let deadline = min(
            machine.nextTimeout(now: now), min(callDeadline, retryTime ?? .max),
            trustRequests?.rememberDeadline ?? .max)
        let isDraining = permittedShutdown(now: now) == .closeWhenDrained
        return isDraining ? min(deadline, now.after(drainPause(now: now))) : deadline
    }

    /// The time until the next check whether the link's own queue is empty: the time since the
    /// queue last became shorter, within limits.
    private func drainPause(now: UInt64) -> Duration {
        let idle = Duration.nanoseconds(Int64(clamping: now - min(now, lastDrainTime)))
        return min(max(idle, Self.shortestDrainPause), Self.longestDrainPause)
    }

    /// Wakes the tasks whose wait may be over.
    private func wake(now: UInt64) {
        let isOver = machine.isOver
        if isOver || machine.isReady { waiting.wake(.ready) }
        if machine.canReceive { waiting.wake(.message) }
        if trustRequests?.rememberResult != nil { waiting.wake(.remembered) }
        let hasDeadlinePassed = callDeadlines.contains { $0 <= now }
        if isOver || hasDeadlinePassed { waiting.wake(.room) } else { wakeNextForRoom() }
        let acknowledged = machine.session?.acknowledged ?? 0
        let mustWakeAll =
            isOver || hasDeadlinePassed || machine.session?.cannotReadAcknowledgements == true
        if mustWakeAll || acknowledged > lastAcknowledged {
            lastAcknowledged = acknowledged
            waiting.wake(.acknowledgement, through: mustWakeAll ? .max : acknowledged)
        }
        if isOver || machine.hasPeerEnded { waiting.wake(.end) }
    }

    /// If there is room, wakes the first call that waits for room. When that call has queued its
    /// message, it wakes the next call.
    func wakeNextForRoom() {
        if machine.hasRoom { waiting.wake(.room, atMost: 1) }
    }
}

extension ChannelDriver: DeferredWork {
    func runDeferred() { if loop.hasBegunShutdown { sendAll() } else { flushPending() } }
}

extension ChannelDriver: LinkHandler, TimerHandler {
    func linkIsReadable() {
        checkCaller()
        failIfLoopIsShutDown()
        read()
    }

    func linkIsWritable() {
        checkCaller()
        failIfLoopIsShutDown()
        isLinkFull = false
        pump()
    }

    /// Ends the process if the link calls its handler during a call to the link, which
    /// ``LinkHandler`` forbids: both calls would use the same buffers.
    private func checkCaller() {
        precondition(!isCallingLink, "a link called its handler during a call to the link")
    }

    func linkDidHangUp() {
        checkCaller()
        failIfLoopIsShutDown()
        if canSend { sendError = ChannelError(.truncated, "the link to the peer broke") }
        machine.linkWasLost(now: now)
        // In direct mode, the peer may have ended its direction earlier; now the channel ends.
        if hasLinkEnded { linkEnded(nil) }
        read()
    }

    /// Handles a deadline, or the shutdown of the loop.
    func timerFired(_ timer: LoopTimer) {
        failIfLoopIsShutDown()
        let now = now
        trustRequests?.handleTimeout(now: now)
        if let retryTime, retryTime <= now { isLinkFull = false }
        // When a stopped process continues, deadlines have passed, although bytes that arrived in
        // time are unread. These bytes are read first, so that the peer does not count as silent.
        stopWatching()
        read(calls: Self.callsBeforeDeadline, now: now)
        // The link's own queue is checked before the deadline: an empty queue may complete the
        // channel, and in direct mode a shorter queue restarts the close deadline.
        shutDownLink(now: now)
        machine.handleTimeout(now: now)
        pump(now: now)
    }

    /// Ends the channel if the loop was shut down. It depends on the link whether the loop calls
    /// the link's handler or the timer's first. Both call this method, so the error is the same.
    private func failIfLoopIsShutDown() {
        guard loop.isShutDown else { return }
        let error = ChannelError(.closed, "the channel's event loop was shut down")
        machine.fail(error)
        trustRequests?.fail(error)
    }
}
