/// What a store keeps of an endpoint: enough to continue after the process has ended.
///
/// `docs/delivery.md`, "Terms", explains the words, such as *instance*, *token* and *epoch*.
package struct StoredEndpoint: Sendable, Equatable {
    /// A message that the peer has not confirmed; or this side's end, which has the number after
    /// the last message.
    package struct Message: Sendable, Equatable {
        /// The message's number among all that the program has sent, whatever the epoch.
        package var id: UInt64
        /// The bytes of a message; nil for this side's end.
        package var bytes: [UInt8]?

        package init(id: UInt64, bytes: [UInt8]?) {
            self.id = id
            self.bytes = bytes
        }
    }

    /// The tokens of this side's instances and the epochs of this side, in the order in which they
    /// became the newest. An identifier that becomes the newest again moves to the end. The token
    /// of an instance that has not received a `resume` of the peer is not here, since the peer
    /// cannot name such a token.
    package var own: [Identifier] = []
    /// This side's present epoch.
    package var epoch = Identifier.none
    /// The number of `messages[0]` in the epoch; without messages, the number of the next message.
    /// In each epoch the numbers begin at 1, but a ``Message/id`` is never used again.
    package var first: UInt64 = 1
    /// The messages that the peer has not confirmed, and this side's end until it is confirmed;
    /// oldest first.
    package var messages: [Message] = []
    /// The id of the program's next message.
    package var nextID: UInt64 = 1
    /// The number, in the present epoch, of the last message that may have left: its last byte may
    /// have been given to a link. 0 if none may have left.
    package var lastThatMayHaveLeft: UInt64 = 0
    /// What the peer last said of itself: the token in its last `resume`, and the epoch in its last
    /// `resume` or `epoch`. This side may not have taken them over yet.
    package var seen = PeerState()
    /// The token that this side has taken over: that of the last peer instance that is known to have
    /// received a `resume` of this side.
    package var peerToken = Identifier.none
    /// The peer's epoch that this side has taken over.
    package var peerEpoch = Identifier.none
    /// Epochs of the peer before ``peerEpoch``, oldest first.
    package var pastEpochs: [Identifier] = []
    /// This side's program has confirmed the peer's messages up to this number of the peer's epoch.
    package var confirmed: UInt64 = 0
    /// Whether this side has finished.
    package var hasFinished = false
    /// The peer's epoch in which this side has confirmed the peer's end.
    package var peerEndEpoch = Identifier.none
    package var hasConfirmedPeerEnd: Bool { peerEndEpoch != .none }
    /// Whether the store has ever turned out to be an older copy.
    package var wasRolledBack = false
    /// Whether the peer's messages have ever failed to continue what the peer had sent before.
    package var wasInterrupted = false
    package var fates = Fates()
    package var notes = Notes()

    /// The program's last notes. A note is bytes that the program commits together with a message or
    /// a confirmation, such as its position in a file.
    package struct Notes: Sendable, Equatable {
        /// The last note with a message to send; empty if there was none.
        package var sent: [UInt8] = []
        /// The last note with a confirmation; empty if there was none.
        package var confirmed: [UInt8] = []

        package init() {}
    }

    /// The most identifiers in ``own``, and the most in ``pastEpochs``; the oldest are removed. If
    /// the peer names an identifier of this side that was removed, this side concludes that its
    /// own store is an older copy. To prevent this wrong conclusion, an identifier that the peer
    /// still names is moved to the end of ``own``.
    package static let mostIdentifiers = 2_048

    package init() {}

    /// The messages that have not left, with this side's end if it has not left.
    package var queued: ArraySlice<Message> {
        messages.dropFirst(
            lastThatMayHaveLeft < first ? 0 : Int(clamping: lastThatMayHaveLeft - first + 1))
    }

    private mutating func add(_ identifier: Identifier) { Self.add(identifier, to: &own) }

    /// Adds an identifier as the newest, or makes it the newest if it is there already.
    static func add(_ identifier: Identifier, to own: inout [Identifier]) {
        if let index = own.lastIndex(of: identifier) { own.remove(at: index) }
        own.append(identifier)
        if own.count > mostIdentifiers { own.removeFirst() }
    }

    /// Applies a change that is committed.
    package mutating func apply(_ change: StoreChange) {
        switch change {
        case .newestIdentifier(let identifier): add(identifier)
        case .message(let message):
            messages.append(message)
            nextID = message.id + 1
            if message.bytes == nil { hasFinished = true }
        case .mayHaveLeft(let number): lastThatMayHaveLeft = max(lastThatMayHaveLeft, number)
        case .retired(let number):
            guard number >= first else { return }
            let count = min(messages.count, Int(number - first + 1))
            for message in messages.prefix(count) where message.bytes != nil {
                fates.add(id: message.id, isUnknown: false)
            }
            messages.removeFirst(count)
            first = number + 1
        case .epoch(let epoch, let keptIDs):
            self.epoch = epoch
            add(epoch)
            for message in messages where !keptIDs.contains(message.id) {
                fates.add(id: message.id, isUnknown: true)
            }
            messages.removeAll { !keptIDs.contains($0.id) }
            (first, lastThatMayHaveLeft) = (1, 0)
        case .seen(let state): seen = state
        case .peer(let token): peerToken = token
        case .peerEpoch(let epoch, let confirmed):
            if peerEpoch != .none, peerEpoch != epoch { pastEpochs.append(peerEpoch) }
            if pastEpochs.count > Self.mostIdentifiers { pastEpochs.removeFirst() }
            peerEpoch = epoch
            self.confirmed = confirmed
        case .confirmed(let number): confirmed = number
        case .peerEndConfirmed: peerEndEpoch = peerEpoch
        case .sentNote(let note): notes.sent = note
        case .confirmedNote(let note): notes.confirmed = note
        case .fatesTaken(let id): fates.take(through: id)
        case .dropped(let ids):
            fates.drop(ids)
            messages.removeAll { ids.contains($0.id) }
        case .rolledBack:
            wasRolledBack = true
            fates.makeDroppedUnknown()
        case .interrupted: wasInterrupted = true
        }
    }
}

/// The token and the epoch that show whether a peer's state continues or was lost.
package struct PeerState: Sendable, Equatable {
    package var token = Identifier.none
    package var epoch = Identifier.none

    package init(token: Identifier = .none, epoch: Identifier = .none) {
        self.token = token
        self.epoch = epoch
    }
}

/// A change that an endpoint asks its store to commit. The store commits changes in their order.
package enum StoreChange: Sendable, Equatable {
    /// An identifier of this side that is now the newest: the token of an instance; a token or an
    /// epoch that must not be removed yet; or, if the store was an older copy, a token or an epoch
    /// that the peer knows and the copy lacks.
    case newestIdentifier(Identifier)
    /// A message of the program or this side's end, with the next number.
    case message(StoredEndpoint.Message)
    /// Messages up to this number may have left.
    case mayHaveLeft(through: UInt64)
    /// The peer has confirmed messages up to this number.
    case retired(through: UInt64)
    /// A new epoch. The messages with these ids get the epoch's first numbers; the other messages
    /// are removed, and their fate is unknown.
    case epoch(Identifier, keeping: Set<UInt64>)
    /// The token in the peer's last `resume`, and the epoch in the peer's last `resume` or `epoch`.
    case seen(PeerState)
    /// The token of a peer instance that has received a `resume` of this side.
    case peer(Identifier)
    /// The peer's epoch, and the position *confirmed* in it.
    case peerEpoch(Identifier, confirmed: UInt64)
    /// This side's program has confirmed the peer's messages up to this number.
    case confirmed(through: UInt64)
    /// This side's program has confirmed everything up to the peer's end.
    case peerEndConfirmed
    /// The program's note with a message that it sends (``StoredEndpoint/Notes``).
    case sentNote([UInt8])
    /// The program's note with a confirmation (``StoredEndpoint/Notes``).
    case confirmedNote([UInt8])
    /// The program has taken the fates of messages up to this id.
    case fatesTaken(through: UInt64)
    /// Messages that have not left, and are not to be sent. Later messages keep their ids, and get
    /// the numbers that become free.
    case dropped(Set<UInt64>)
    /// The store has turned out to be an older copy. This change comes after the change `epoch`.
    /// The fates of dropped messages become unknown, except those that the program has taken.
    case rolledBack
    /// The peer's messages do not continue what was sent before.
    case interrupted
}
