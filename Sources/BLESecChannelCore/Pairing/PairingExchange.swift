internal import BLESecLocking
internal import BLESecPrimitives

/// One side of a pairing, as a state machine without I/O.
///
/// The records of a pairing follow both sides' `ready` and precede the first message
/// (`docs/wire-format.md`, "Pairing"). The driver passes the peer's records to ``receive(_:)``, and
/// sends the records that ``nextRecord()`` returns. Between two records there may be a
/// ``question``, for the store or for a person. While a question is open, no record may be passed
/// in; the driver passes the answer to ``didDecide(_:)``.
package final class PairingExchange {
    /// What has to be decided or stored before the exchange goes on.
    package enum Question: Sendable {
        /// For the store, which may block.
        case store(@Sendable () -> TrustPolicy.Verdict)
        /// For a person.
        case person(@Sendable () async throws -> TrustPolicy.Verdict)
    }

    /// Both sides of the channel.
    package struct Parties: Sendable {
        package let role: ChannelRole
        /// The key that this side has proven.
        package let own: Fingerprint
        /// The key that the peer has proven.
        package let peer: Fingerprint
        package let handshakeHash: [UInt8]

        package init(
            role: ChannelRole, own: Fingerprint, peer: Fingerprint, handshakeHash: [UInt8]
        ) {
            self.role = role
            self.own = own
            self.peer = peer
            self.handshakeHash = handshakeHash
        }

        func key(of side: ChannelRole) -> [UInt8] { (side == role ? own : peer).digest }
    }

    private enum State {
        /// The store is asked what it has kept of the peer.
        case lookingUp
        /// The peer's record with this step is next.
        case awaiting(PairingStep)
        /// A person compares digits.
        case comparing
        /// The store is asked to keep the peer as pending; this side's confirmation is next.
        case keeping
        /// The store is asked to bind the name to the peer's key; then this side sends `done` if
        /// `sendsDone` is true.
        case binding(sendsDone: Bool)
        /// The store is asked to keep the peer as verified; this side's proof is next.
        case settling
        /// The store is asked to remove its pending entry for this pairing; then the exchange fails.
        case failing(ChannelError)
        case complete
    }

    private let rule: TrustPolicy.PairingRule
    private let parties: Parties
    private var state = State.lookingUp
    /// The payloads of this side's records that ``nextRecord()`` has not returned yet.
    private var records: [[UInt8]] = []
    /// How the store keeps the peer's key; nil if the store does not keep the key, or has not
    /// answered yet.
    private let keptPeer = Locked<TrustPolicy.KeptPeer?>(nil)
    /// The store's last error.
    private let storeError = Locked<ChannelError?>(nil)
    /// What this side has kept of an earlier pairing with the peer. This side's `begin` states it.
    private var standing = PairingStanding.nothing
    /// With a code, this side's run of CPace until the peer's share arrives.
    private var run: CPace?
    /// In a comparison, this side's nonce.
    private var nonce: [UInt8] = []
    /// In a comparison, on the acceptor's side, the dialer's commitment to its nonce.
    private var commitment: [UInt8] = []
    /// With a code, this side's confirmation, and the confirmation that the peer must send.
    private var confirmation: [UInt8] = []
    private var expectedConfirmation: [UInt8] = []
    /// The hash over the pairing; see ``TrustPolicy/PendingPeer/transcript``. At first the
    /// transcript of the store's pending entry, if there is one; later the transcript that this
    /// exchange calculates.
    private var transcript: [UInt8] = []
    /// Whether this exchange has begun a new pairing and made a pending entry for the peer, which
    /// the store still keeps.
    private var hasMadeEntry = false

    /// What has to be asked now; nil if nothing.
    package private(set) var question: Question?
    /// Whether this side has made its last confirmation, so that the peer may complete the pairing.
    package private(set) var hasConfirmed = false
    /// Whether the exchange has failed because the name belongs to another key by now. The store
    /// keeps nothing of the pairing then, so this side cannot complete it later.
    package private(set) var isNameTaken = false

    /// Begins; ``question`` is then the first thing to ask.
    package init(_ rule: TrustPolicy.PairingRule, _ parties: Parties) {
        self.rule = rule
        self.parties = parties
        let (key, keptPeer) = (parties.peer, keptPeer)
        ask { () throws(ChannelError) in
            let peer = try rule.keptPeer(withKey: key)
            keptPeer.withLock { $0 = peer }
        }
    }

    /// Whether this side has stored the peer and sent its last record. A side that has sent `done`
    /// cannot know whether `done` has arrived.
    package var isComplete: Bool { if case .complete = state { true } else { false } }
    /// Whether the peer's next record may be passed in.
    package var wantsRecord: Bool { if case .awaiting = state { true } else { false } }
    /// The step that the peer's next record must have; nil while none is expected.
    var expectedStep: PairingStep? { if case .awaiting(let step) = state { step } else { nil } }
    /// Whether the peer's `done` is next. A dialer awaits `done` only from an acceptor that already
    /// knows the dialer.
    package var awaitsDone: Bool { if case .awaiting(.done) = state { true } else { false } }
    /// Whether the store is storing a peer that has confirmed.
    package var isBinding: Bool { if case .binding = state { true } else { false } }
    /// Whether the peer has sent `done`, its last record. The peer's session has then begun, and a
    /// session takes no `reject`.
    package var isPeerInSession: Bool {
        if case .binding(sendsDone: false) = state { true } else { false }
    }
    /// Whether the peer's next record waits for a person on the peer's side.
    package var awaitsPersonAtPeer: Bool {
        guard case .comparing = rule.way, case .awaiting(.confirm) = state else { return false }
        return true
    }

    /// The payload of the next record for the peer; nil if there is none.
    package func nextRecord() -> [UInt8]? { records.isEmpty ? nil : records.removeFirst() }

    // MARK: - Records

    /// Takes the payload of the peer's next record.
    ///
    /// - Throws: `protocolViolation` for a record that is malformed or out of place; `untrusted` if
    ///   the peer has another code or pairs in another way, or if the code, the invitation or the
    ///   comparison is not valid for the peer any more.
    package func receive(_ payload: [UInt8]) throws(ChannelError) {
        guard case .awaiting(let expected) = state, let first = payload.first,
            PairingStep(rawValue: first) == expected,
            expected.lengths.contains(payload.count - 1)
        else { throw Self.outOfPlace }
        let value = Array(payload.dropFirst())
        switch expected {
        case .begin: try didReceiveBegin(value)
        case .share: try didReceiveShare(value)
        case .commit: try didReceiveCommitment(value)
        case .nonce: try didReceiveNonce(value)
        case .confirm: try didReceiveConfirmation(value)
        case .settle: try didReceiveProof(value)
        case .done:
            // Binding is also needed for a known peer if this exchange has made a pending entry,
            // since binding removes the entry.
            if standing == .known, !hasMadeEntry {
                finish(sendsDone: false)
            } else {
                bind(sendsDone: false)
            }
        }
    }

    /// Applies the answer to ``question``. A refusal ends the exchange with `untrusted`.
    package func didDecide(_ verdict: TrustPolicy.Verdict) throws(ChannelError) {
        question = nil
        if case .failing(let error) = state { throw error }
        if case .refuse(let reason) = verdict {
            let error = storeError.withLock { $0.take() }
            if isBinding, error?.code == .untrusted {
                isNameTaken = true
                // Nobody else can pair under this name either.
                rule.way.end()
            }
            throw error ?? ChannelError(.untrusted, reason)
        }
        switch state {
        case .lookingUp: begin()
        case .comparing:
            if isDialer { try keep(isVerified: true) } else { state = .awaiting(.confirm) }
        case .keeping:
            hasMadeEntry = true
            hasConfirmed = true
            send(.confirm, confirmation)
            state = .awaiting(isDialer ? .confirm : .done)
        case .binding(let sendsDone): finish(sendsDone: sendsDone)
        case .settling:
            sendProof()
            state = .awaiting(.done)
        case .awaiting, .failing, .complete: break
        }
    }

    private var isDialer: Bool { parties.role == .dialer }

    private func send(_ step: PairingStep, _ value: [UInt8]) {
        records.append([step.rawValue] + value)
    }

    // MARK: - The beginning

    private func begin() {
        switch keptPeer.withLock({ $0 }) {
        case .known: standing = .known
        case .pending(let peer):
            standing = peer.isVerified ? .verified : .pending
            transcript = peer.transcript
        case nil: standing = .nothing
        }
        if isDialer { sendBegin() }
        state = .awaiting(.begin)
    }

    private func sendBegin() { send(.begin, [rule.way.number, standing.rawValue]) }

    private func didReceiveBegin(_ value: [UInt8]) throws(ChannelError) {
        guard let peerStanding = PairingStanding(rawValue: value[1]) else { throw Self.outOfPlace }
        if !isDialer { sendBegin() }
        switch PairingCourse(own: standing, peer: peerStanding, role: parties.role) {
        case .sendDone: finish(sendsDone: true)
        case .awaitDone:
            // The peer's `begin` says that it knows this side; its `done` follows.
            hasConfirmed = true
            state = .awaiting(.done)
        case .settle:
            if isDialer { sendProof() }
            state = .awaiting(.settle)
        case .full:
            guard value[0] == rule.way.number else {
                throw ChannelError(
                    .untrusted,
                    "the peer pairs \(TrustPolicy.Pairing.name(of: value[0])), and this side "
                        + "\(TrustPolicy.Pairing.name(of: rule.way.number)): use the same on both sides"
                )
            }
            try pair()
        }
    }

    /// Begins a new pairing.
    private func pair() throws(ChannelError) {
        if let refusal = rule.refusal(of: parties.peer) { throw ChannelError(.untrusted, refusal) }
        switch rule.way {
        case .code(let code):
            let run = code.begin(context, isInitiator: isDialer)
            // The acceptor sends its share after it has received the dialer's.
            if isDialer { send(.share, run.share) }
            self.run = consume run
            state = .awaiting(.share)
        case .invitation:
            transcript = sha256(Self.label("transcript"), parties.handshakeHash)
            if isDialer { try keep(isVerified: true) } else { state = .awaiting(.confirm) }
        case .comparing(let comparison):
            transcript = sha256(Self.label("transcript"), parties.handshakeHash)
            nonce = randomBytes(count: 32)
            // The try is counted before the dialer commits to its nonce. Otherwise an attacker in
            // the middle who knows one side's digits could repeat runs with the other side until
            // both sides have the same digits, and end each failed run before a person sees digits.
            if isDialer { try comparison.spend() }
            if isDialer { send(.commit, commitment(to: nonce)) }
            state = .awaiting(isDialer ? .nonce : .commit)
        }
    }

    // MARK: - With a code

    private var context: CPace.Context {
        CPace.Context(
            channel: Array("blesec/1 pairing, \(CPace.draft)".utf8), session: parties.handshakeHash,
            initiator: Self.label("dialer") + parties.key(of: .dialer),
            responder: Self.label("acceptor") + parties.key(of: .acceptor))
    }

    private func didReceiveShare(_ share: [UInt8]) throws(ChannelError) {
        guard case .code(let code) = rule.way, let run = run.take() else { throw Self.outOfPlace }
        let ownShare = run.share
        let keys = run.finish(peerShare: share)
        guard let keys else {
            throw .violation(
                "a share of the pairing that is no valid element, or is this side's own")
        }
        confirmation = keys.confirmation(ofInitiator: isDialer)
        expectedConfirmation = keys.confirmation(ofInitiator: !isDialer)
        let dialerConfirmation = isDialer ? confirmation : expectedConfirmation
        let acceptorConfirmation = isDialer ? expectedConfirmation : confirmation
        transcript = sha256(
            Self.label("transcript"), parties.handshakeHash, dialerConfirmation,
            acceptorConfirmation)
        if isDialer {
            // The try is counted before the confirmation leaves, because the confirmation lets the
            // peer check a guess.
            try code.spend()
            try keep(isVerified: false)
        } else {
            send(.share, ownShare)
            state = .awaiting(.confirm)
        }
    }

    private func didReceiveConfirmation(_ value: [UInt8]) throws(ChannelError) {
        if case .code(let code) = rule.way {
            guard value.count == CPace.keyLength else { throw Self.outOfPlace }
            // The try is counted before the check, because this side's answer shows whether the
            // peer's guess is right.
            if !isDialer { try code.spend() }
            let expected = expectedConfirmation
            guard constantTimeEqual(value.span, expected.span) else { throw code.mismatch }
        } else if !value.isEmpty {
            throw Self.outOfPlace
        }
        guard isDialer else { return try keep(isVerified: true) }
        do throws(ChannelError) {
            try reserveForPeer()
        } catch {
            // With the pending entry that this side has kept, the peer could complete this pairing
            // later.
            return forget(failingWith: error)
        }
        bind(sendsDone: true)
    }

    /// Reserves the code or the comparison for the peer. Throws if it is reserved for another peer,
    /// or if the invitation, the code or the comparison was ended.
    private func reserveForPeer() throws(ChannelError) {
        guard rule.way.reserve(for: parties.peer) else {
            throw ChannelError(
                .untrusted, "another peer was first to pair, or the pairing was ended here")
        }
    }

    // MARK: - By comparison

    private func commitment(to nonce: [UInt8]) -> [UInt8] {
        sha256(
            Self.label("commitment"), parties.key(of: .dialer), parties.key(of: .acceptor),
            parties.handshakeHash, nonce)
    }

    private func didReceiveCommitment(_ value: [UInt8]) throws(ChannelError) {
        guard case .comparing(let comparison) = rule.way else { throw Self.outOfPlace }
        try comparison.spend()
        commitment = value
        send(.nonce, nonce)
        state = .awaiting(.nonce)
    }

    private func didReceiveNonce(_ value: [UInt8]) throws(ChannelError) {
        guard case .comparing(let comparison) = rule.way else { throw Self.outOfPlace }
        if isDialer {
            send(.nonce, nonce)
        } else {
            let (promised, expected) = (commitment, commitment(to: value))
            guard constantTimeEqual(promised.span, expected.span) else {
                throw .violation("a nonce that does not belong to its commitment")
            }
        }
        let hash = sha256(
            Self.label("digits"), parties.key(of: .dialer), parties.key(of: .acceptor),
            parties.handshakeHash, isDialer ? nonce : value, isDialer ? value : nonce)
        // The remainder of a random 64-bit number is uniform, up to a bias of less than 10^-13.
        let number = hash.prefix(8).reduce(UInt64(0)) { $0 << 8 | UInt64($1) } % 1_000_000
        let text = String(number)
        let digits = String(repeating: "0", count: 6 - text.count) + text
        state = .comparing
        question = .person {
            try await comparison.confirm(digits)
                ? .admit : .refuse("the digits differ, or nobody has confirmed them")
        }
    }

    // MARK: - An earlier pairing

    /// The proof with which `side` shows that it has kept the same earlier pairing.
    private func proof(of side: ChannelRole) -> [UInt8] {
        var hash = HashContext(.sha256)
        var mac = [UInt8](repeating: 0, count: 32)
        var span = mac.mutableSpan
        let key = transcript
        let message = Self.label("settle") + [side.rawValue] + parties.handshakeHash
        hash.hmac(key: key.span, message.span, into: &span)
        return mac
    }

    private func sendProof() {
        hasConfirmed = true
        send(.settle, proof(of: parties.role))
    }

    private func didReceiveProof(_ value: [UInt8]) throws(ChannelError) {
        let expected = proof(of: parties.role.peer)
        guard constantTimeEqual(value.span, expected.span) else {
            return forget(
                failingWith: ChannelError(
                    .untrusted,
                    "the interrupted pairing cannot be completed: the peer has kept another one; "
                        + "pair again"))
        }
        if isDialer { return bind(sendsDone: true) }
        guard case .pending(let peer) = keptPeer.withLock({ $0 }), !peer.isVerified else {
            sendProof()
            state = .awaiting(.done)
            return
        }
        // The peer is kept as verified before this side's proof leaves. With the proof the peer can
        // store this side, and the peer's next `begin` then says `known`; only a side that has kept
        // the peer as verified accepts this (``PairingCourse``).
        let verified = TrustPolicy.PendingPeer(
            name: peer.name, key: peer.key, transcript: peer.transcript, isVerified: true)
        let store = rule.store
        state = .settling
        ask { () throws(ChannelError) in try store.keepPending(verified) }
    }

    // MARK: - The store

    /// Asks the store to keep the peer as pending. `isVerified` says whether this side has accepted
    /// the peer.
    private func keep(isVerified: Bool) throws(ChannelError) {
        if isVerified { try reserveForPeer() }
        let peer = TrustPolicy.PendingPeer(
            name: rule.name, key: parties.peer, transcript: transcript, isVerified: isVerified)
        let store = rule.store
        state = .keeping
        ask { () throws(ChannelError) in try store.keepPending(peer) }
    }

    /// Asks the store to remove the pending entry for this pairing; then the exchange fails with
    /// `error`.
    private func forget(failingWith error: ChannelError) {
        let removal = removal
        hasMadeEntry = false
        state = .failing(error)
        ask(removal)
    }

    /// A call that removes the store's pending entry for the peer, if the entry belongs to this
    /// pairing. Another exchange with the same key may have replaced the entry.
    private var removal: @Sendable () throws(ChannelError) -> Void {
        let (store, key, transcript) = (rule.store, parties.peer, transcript)
        return { () throws(ChannelError) in
            guard try store.pendingPeer(key)?.transcript == transcript else { return }
            try store.forgetPending(key)
        }
    }

    /// Called when the exchange has failed with `error`, and the peer cannot have stored this side.
    /// Returns true if this exchange has made a pending entry for the peer: ``question`` is then to
    /// remove the entry, and ``didDecide(_:)`` throws `error`. An entry of another exchange stays.
    package func forgetPeer(failingWith error: ChannelError) -> Bool {
        guard hasMadeEntry else { return false }
        forget(failingWith: error)
        return true
    }

    /// Asks the store to bind the name to the peer's key.
    private func bind(sendsDone: Bool) {
        let (store, name, key, removal) = (rule.store, rule.name, parties.peer, removal)
        state = .binding(sendsDone: sendsDone)
        ask { () throws(ChannelError) in
            do throws(ChannelError) {
                try store.bind(name, to: key)
            } catch {
                guard error.code == .untrusted else { throw error }
                // The name belongs to another key by now, so this pairing cannot be completed.
                try removal()
                throw ChannelError(
                    .untrusted,
                    "\(error.reason): this side has forgotten the pairing, and the peer may remember "
                        + "this side; choose another name, and pair again")
            }
            // A pending entry that cannot be removed has no effect: a known key takes precedence.
            try? store.forgetPending(key)
        }
    }

    private func finish(sendsDone: Bool) {
        rule.way.end()
        if sendsDone { send(.done, []) }
        state = .complete
    }

    /// Makes a call to the store the next ``question``.
    private func ask(_ call: @escaping @Sendable () throws(ChannelError) -> Void) {
        let storeError = storeError
        question = .store {
            do throws(ChannelError) {
                try call()
                return .admit
            } catch {
                storeError.withLock { $0 = error }
                return .refuse(error.reason)
            }
        }
    }

    private static func label(_ use: String) -> [UInt8] { Array("blesec/1 pairing \(use)".utf8) }

    private static var outOfPlace: ChannelError {
        .violation("a record of the pairing that is malformed or out of place")
    }
}

extension ChannelError {
    fileprivate static func violation(_ what: String) -> ChannelError {
        ChannelError(.protocolViolation, "the peer broke the protocol: \(what)")
    }
}
