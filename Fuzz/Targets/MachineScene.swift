@testable internal import BLESec
internal import BLESecLinks
internal import BLESecPrimitives

/// The victim's machine, the peer's machine, and the link between them. The fuzzer can use the
/// peer's keys.
final class MachineScene {
    private var victim: ChannelMachine
    private var peer: ChannelMachine
    private var now: UInt64 = 1_000_000_000
    /// The bytes on their way to the victim.
    private var wire: [UInt8] = []
    /// Whether the link takes bytes from the victim.
    private var linkTakesBytes = true
    private var hasLinkEnded = false
    /// Whether the peer's direction of the link has ended, so that nothing reaches the victim.
    private var hasPeersDirectionEnded = false
    /// Whether everything that the victim received came from an honest machine, complete and in
    /// order.
    private var isInputHonest = true
    /// The messages that the peer's machine has accepted for sending.
    private var peerMessages: [[UInt8]] = []
    /// The number of messages that the victim's application has taken.
    private var takenCount = 0
    /// Whether the peer's machine, which has the keys, has answered the victim with a handshake
    /// message.
    private var hasPeerAnswered = false
    /// Whether a record was sealed with the peer's keys.
    private var hasPeerSealed = false
    /// Whether only a record, and not a handshake message, can prove the peer to the victim.
    private let isProvenOnlyByRecord: Bool

    /// The most bytes that wait on the link; bytes that would exceed this number are dropped.
    private static let maximumWireLength = 256 << 10

    init(_ setting: Setting, victim role: ChannelRole, policyAsks: Bool) {
        victim = ChannelMachine(
            role: role, configuration: setting.configuration(role, policyAsks: policyAsks),
            maximumSDU: 2_048, now: now)
        peer = ChannelMachine(
            role: role.peer, configuration: setting.configuration(role.peer), maximumSDU: 2_048,
            now: now)
        isProvenOnlyByRecord = setting.mode == .negotiated || setting.roleAwaitingProof == role
        must { try victim.begin() }
        must { try peer.begin() }
    }

    /// Delivers what both sides send, unchanged, in eight rounds, and admits the peer if the victim
    /// asks. Eight rounds complete the handshake of two honest sides.
    func shakeHands() {
        for _ in 0..<8 {
            flush()
            deliver()
            if victim.takeTrustQuestion() != nil { victim.didDecide(nil, now: now) }
        }
    }

    var isReady: Bool { victim.isReady }

    /// Plays one event.
    func play(_ script: inout Script) {
        switch script.number(below: 15) {
        case 0: inject(script.piece())
        case 1: deliver(atMost: Int(script.byte()) << 4)
        case 2:
            isInputHonest = false
            wire = script.damage(wire)
        case 3: seal(script.byte(), script.piece())
        case 4: seal(0, Array(repeating: 7, count: Int(script.byte()) << 8 | 255))
        case 5: queuePeerMessage(Array(repeating: 1, count: Int(script.byte()) << 3))
        case 6: takeMessage()
        case 7: sendMessage(Array(repeating: 2, count: Int(script.byte()) << 4))
        case 8: advanceClock(Self.durations[script.number(below: Self.durations.count)])
        case 9: victim.end(EndReason(rawValue: script.byte()))
        case 10: decideTrust(script.byte())
        case 11: endLink(script.byte())
        case 12: linkTakesBytes.toggle()
        case 13: peer.end(EndReason(rawValue: script.byte()))
        default: allowRekey()
        }
        flush()
        verify()
    }

    /// Ends the link and then the channel, and checks the final state.
    func end() {
        deliver()
        linkTakesBytes = true
        flush()
        if !hasLinkEnded { endLink(0) }
        victim.fail(ChannelError(.closed, "the input is over"))
        verify()
        while victim.popMessage() != nil {}
        precondition(victim.session?.inbox.byteCount ?? 0 == 0)
    }

    // MARK: - The peer

    private func inject(_ bytes: [UInt8]) {
        isInputHonest = isInputHonest && bytes.isEmpty
        append(bytes)
    }

    /// Seals a record of any type with the session's keys, and puts it on the wire.
    private func seal(_ type: UInt8, _ payload: [UInt8]) {
        guard let records = peer.stage?.records, case .established = records.engine.phase else {
            return
        }
        isInputHonest = false
        hasPeerSealed = true
        let head = peer.parameters.configuration.mode == .direct ? [] : [type]
        let length = records.engine.sealedLength(head.count + payload.count)
        let record = try? [UInt8](capacity: length) { output throws(ChannelError) in
            try records.engine.seal(head.span, payload.span, into: &output)
        }
        append(record ?? [])
        if type == RecordType.rekey.rawValue { try? records.engine.rekeySending() }
    }

    /// Simulates that the peer has sent enough records to be allowed to change its key.
    private func allowRekey() {
        victim.stage?.records.receiving.records = Record.leastRekeyInterval + 1
    }

    private func queuePeerMessage(_ message: [UInt8]) {
        guard peer.hasRoom, (try? peer.queue(message)) != nil else { return }
        peerMessages.append(message)
    }

    private func append(_ bytes: [UInt8]) {
        guard wire.count + bytes.count <= Self.maximumWireLength else {
            isInputHonest = false
            return
        }
        wire += bytes
    }

    // MARK: - The link

    /// Hands the waiting bytes to the victim, as a driver does, in pieces of at most `piece` bytes,
    /// or of at most 16 KiB if `piece` is 0.
    private func deliver(atMost piece: Int = 0) {
        let piece = piece == 0 ? 16 << 10 : min(piece, 16 << 10)
        var rest = wire[...]
        while !rest.isEmpty, victim.wantsBytes, !hasPeersDirectionEnded {
            let count = victim.arrive(Array(rest.prefix(piece)), now: now)
            guard count > 0 else { break }
            rest = rest.dropFirst(count)
        }
        wire = Array(rest)
    }

    /// Lets both sides seal what they have, hands the victim's bytes to the peer, and puts the
    /// peer's bytes on the wire.
    private func flush() {
        while linkTakesBytes {
            let bytes = victim.transmit(now: now)
            guard !bytes.isEmpty else { break }
            var rest = bytes[...]
            while let stage = peer.stage, !rest.isEmpty {
                let waiting = peer.bytesAwaitingLink
                rest = rest.dropFirst(peer.arrive(Array(rest), now: now))
                // The peer seals a record when it enters a ready exchange, or a direct session in
                // which it has to send its proof. In other direct sessions it seals nothing here,
                // but `verify` does not read `hasPeerSealed` then.
                if peer.stage !== stage, peer.stage is ReadyExchange || peer.session != nil {
                    hasPeerSealed = true
                }
                if peer.bytesAwaitingLink > waiting { hasPeerAnswered = true }
                while peer.popMessage() != nil {
                    peer.session?.didTakeMessage(now: now)
                    peer.didResumeReading(now: now)
                }
            }
        }
        if !linkTakesBytes { victim.block(now: now) }
        while true {
            fillPeer()
            let bytes = peer.transmit(now: now)
            guard !bytes.isEmpty else { break }
            append(bytes)
        }
    }

    /// Lets the peer seal what it has. Handshake messages are made when bytes arrive and not here,
    /// so any new bytes are records.
    private func fillPeer() {
        let waiting = peer.bytesAwaitingLink
        peer.sealPending(now: now)
        if peer.bytesAwaitingLink > waiting { hasPeerSealed = true }
    }

    /// Ends the link. Bit 0 of `options`: the victim first hears of a lost link, and gets the
    /// waiting bytes. Bit 1: in direct mode, only the peer's direction ends. Bit 2: the link fails
    /// with an error.
    private func endLink(_ options: UInt8) {
        if options & 1 == 1, !hasLinkEnded {
            victim.linkWasLost(now: now)
            deliver()
        }
        let isHalfClose = options & 2 == 2 && victim.parameters.configuration.mode == .direct
        let error = options & 4 == 4 ? ChannelError(.link, "the link broke") : nil
        hasPeersDirectionEnded = true
        if !isHalfClose { hasLinkEnded = true }
        victim.linkEnded(isHalfClose ? nil : error, canSend: isHalfClose, now: now)
    }

    // MARK: - The victim's side

    private func sendMessage(_ message: [UInt8]) {
        if victim.hasRoom { _ = try? victim.queue(message) }
    }

    private func takeMessage() {
        let wasFull = !victim.wantsBytes
        guard let message = victim.popMessage() else { return }
        defer { victim.resumeReading(wasFull: wasFull, now: now) }
        victim.session?.didTakeMessage(now: now)
        if isInputHonest, victim.parameters.configuration.mode == .negotiated {
            precondition(
                takenCount < peerMessages.count && message == peerMessages[takenCount],
                "not the next message that the peer sent")
        }
        takenCount += 1
    }

    private func decideTrust(_ verdict: UInt8) {
        _ = victim.takeTrustQuestion()
        victim.didDecide(
            verdict & 1 == 0 ? nil : ChannelError(.untrusted, "no"), now: now)
    }

    /// By how much the clock may advance, in nanoseconds, from 1 ms to 25 hours; nil means up to
    /// the victim's next deadline.
    private static let durations: [UInt64?] = [
        nil, 50_000_000, 1_000_000, 1_000_000_000, 2_000_000_000, 5_000_000_000, 10_000_000_000,
        31_000_000_000, 61_000_000_000, 90_000_000_000_000,
    ]

    /// Advances the clock by `duration`, or to the victim's next deadline if `duration` is nil.
    private func advanceClock(_ duration: UInt64?) {
        let deadline = victim.nextTimeout(now: now)
        let next = duration.map { now + $0 } ?? deadline
        guard next < 1 << 60 else { return }
        now = max(now, next)
        victim.handleTimeout(now: now)
        peer.handleTimeout(now: now)
        victim.sealPending(now: now)
        // A deadline that has passed and stays set would keep the loop busy forever.
        precondition(
            victim.isOver || victim.nextTimeout(now: now) > now, "a deadline stays in the past")
    }

    /// The record layer of the victim's latest stage; its buffers must be empty when the channel
    /// has ended.
    private var records: RecordLayer?

    private func verify(_ acknowledgements: AcknowledgementState) {
        precondition(acknowledgements.acknowledged <= acknowledgements.sent)
        precondition(acknowledgements.ackSent <= acknowledgements.received)
        precondition(
            acknowledgements.rule == .arrived
                || acknowledgements.ackSent
                    <= (acknowledgements.rule == .taken
                        ? acknowledgements.taken : acknowledgements.confirmed)
                        + (acknowledgements.hasReceivedEnd ? 1 : 0),
            "a message is acknowledged before the program has it")
    }

    /// Checks what must hold after any events.
    private func verify() {
        let limits = victim.parameters.configuration.limits
        // Only the peer has its keys, so bytes that the fuzzer invents or replays must not make the
        // victim ready.
        precondition(
            !victim.isReady || (isProvenOnlyByRecord ? hasPeerSealed : hasPeerAnswered),
            "the victim is ready, but the peer has proven nothing")
        if let session = victim.session as? NegotiatedSession { verify(session.acknowledgements) }
        if let session = victim.session {
            precondition(
                session.inbox.byteCount
                    <= limits.readAhead + limits.maximumMessageLength + 2 << 20)
        }
        if let stage = victim.stage as? UnauthenticatedStage {
            precondition(
                stage.arrived <= stage.unauthenticatedLimit,
                "more was read than an unauthenticated peer may send")
            precondition(
                !stage.wantsBytes || stage.readAllowance > 0,
                "the channel waits for bytes that it may not read")
        }
        if let stage = victim.stage { records = stage.records }
        guard let outcome = victim.outcome else { return }
        if let records {
            precondition(records.inbound.isEmpty && records.outbound.isEmpty)
            precondition(records.engine.phase == .failed, "keys outlive the channel")
        }
        precondition(victim.session?.outbox.isEmpty != false)
        if isInputHonest, case .failed(let error) = outcome {
            let faults: [ChannelError.Code] = [
                .protocolViolation, .authenticationFailed, .internal, .selfConnection,
            ]
            precondition(!faults.contains(error.code), "an honest peer is blamed: \(error)")
        }
    }
}

extension ChannelMachine {
    /// Hands bytes from a link to the machine, as a driver does, within the machine's allowance;
    /// returns how many it took.
    fileprivate mutating func arrive(_ bytes: [UInt8], now: UInt64) -> Int {
        var count = 0
        do throws(LinkError) {
            _ = try receive(now: now) { space throws(LinkError) in
                count = min(space.freeCapacity, bytes.count)
                for byte in bytes.prefix(count) { space.append(byte) }
                return count > 0 ? .bytes : .wouldBlock
            }
        } catch {
            fatalError("\(error)")
        }
        return count
    }

    /// Takes at most `limit` bytes of the next SDU, as a link does.
    fileprivate mutating func transmit(atMost limit: Int = .max, now: UInt64) -> [UInt8] {
        var taken: [UInt8] = []
        do throws(LinkError) {
            _ = try transmit(now: now) { bytes throws(LinkError) in
                taken = (0..<min(limit, bytes.count)).map { bytes[$0] }
                return taken.count
            }
        } catch {
            fatalError("\(error)")
        }
        return taken
    }

    /// Offers bytes to a link that takes none.
    fileprivate mutating func block(now: UInt64) { _ = transmit(atMost: 0, now: now) }

    /// How many bytes wait for the link.
    fileprivate var bytesAwaitingLink: Int { stage?.records.outbound.count ?? 0 }
}
