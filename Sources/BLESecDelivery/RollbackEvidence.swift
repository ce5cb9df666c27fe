/// What a `resume` of the peer shows about this side's store: whether the store is an older copy, or
/// another process uses a copy of it. `docs/delivery.md`, "A received `resume`", step 1, has the rules.
struct RollbackEvidence {
    let resume: Resume
    let own: OwnIdentifiers
    /// This side's epoch.
    let epoch: Identifier
    /// Whether this side can have sent as much as the peer's positions say. Means something only if
    /// these positions belong to ``epoch``.
    let canHaveSent: Bool
    /// The peer's state as in its last `resume` or `epoch` before this `resume`.
    let seenPeer: PeerState
    /// The peer's epoch that this side has taken over.
    let peerEpoch: Identifier
    /// This side's position *confirmed* in ``peerEpoch``.
    let confirmed: UInt64
    /// The peer's epochs before ``peerEpoch``.
    let pastEpochs: [Identifier]

    /// Whether this store has met the peer.
    var hasMetPeer: Bool { seenPeer.token != .none || peerEpoch != .none }

    /// The identifiers that the peer names as this side's, and that this side does not know.
    var foreignIdentifiers: [Identifier] {
        [resume.peerToken, resume.peerEpoch].filter { $0 != epoch && own.isForeign($0) }
    }

    /// Whether the peer has met a later state of this side than the one that the store had.
    var showsOlderCopy: Bool {
        if foreignIdentifiers.contains(where: { !isOfLostStore($0) }) { return true }
        if resume.peerEpoch == epoch, !canHaveSent { return true }
        // A gap in an epoch that this store does not know may come from a store that was lost.
        let gapConcernsThisStore =
            resume.epoch == peerEpoch || resume.epoch == seenPeer.epoch
            || isOfThisStore(resume.peerToken)
        return gapConcernsThisStore && leavesGap
    }

    /// Whether the peer has met a copy of this store in another process: it names an identifier of
    /// this store that this side does not know, or no longer keeps messages that this side has not
    /// confirmed.
    var showsCopyInUse: Bool {
        foreignIdentifiers.contains(where: isOfThisStore)
            || isOfThisStore(resume.peerToken) && leavesGap
    }

    /// Whether the peer no longer keeps messages that this side has not confirmed.
    var leavesGap: Bool {
        if resume.epoch == peerEpoch { return resume.first > confirmed + 1 }
        return resume.first > 1 && !pastEpochs.contains(resume.epoch)
    }

    private func isOfThisStore(_ identifier: Identifier) -> Bool {
        identifier.sharesStore(with: epoch)
    }

    /// Whether a foreign identifier belongs to another store of this side, which was lost before
    /// this store was made. At the first `resume` of the peer, ``own`` gets the identifiers of the
    /// lost store that this `resume` names.
    private func isOfLostStore(_ identifier: Identifier) -> Bool {
        guard !isOfThisStore(identifier) else { return false }
        return !hasMetPeer || own.includesStore(of: identifier)
    }
}
