internal import BLESecLocking

/// What a sender has offered over one connection, and which notes there are about the stored offers
/// (``StoredNotes``).
///
/// A sender that is started again offers everything again. So that it sends nothing twice, the
/// notes stay until the sender has ended the connection and knows that everything is stored.
package final class ReceivingSession: Sendable {
    /// The folder of a peer's notes.
    private struct Place: Hashable {
        let folder: String
        let peer: [UInt8]
    }

    private struct State {
        /// The ids of the offers that are not stored, or are stored but the sender does not know
        /// that yet.
        var unsettled: Set<[UInt8]> = []
        /// Whether there was such an offer that `unsettled` does not contain, because the offer did
        /// not arrive or the set was full.
        var hasUnlisted = false
        /// The ids of the offers that are stored, and whose sender knows that.
        var stored: [Place: Set<[UInt8]>] = [:]
    }

    private let state = Locked(State())
    private static let mostUnsettled = 1_000
    /// How many notes are kept. The note about a further offer is removed as soon as the sender
    /// knows that this offer is stored.
    private static let mostNotes = 10_000

    package init() {}

    /// Records that an offer has arrived.
    func begin(_ id: [UInt8]) {
        state.withLock { state in
            if state.unsettled.count < Self.mostUnsettled {
                state.unsettled.insert(id)
            } else if !state.unsettled.contains(id) {
                state.hasUnlisted = true
            }
        }
    }

    /// Records that an offer has not arrived, for example because the sender was ended.
    func noteOfferGivenUp() { state.withLock { $0.hasUnlisted = true } }

    /// Records that the sender knows that this offer is stored, and returns whether the offer's
    /// note is kept. The note is not kept if there are too many.
    func recordStored(_ id: [UInt8], in folder: String, from peer: [UInt8]) -> Bool {
        state.withLock { state in
            state.unsettled.remove(id)
            guard state.stored.values.reduce(0, { $0 + $1.count }) < Self.mostNotes else {
                return false
            }
            state.stored[Place(folder: folder, peer: peer), default: []].insert(id)
            return true
        }
    }

    /// Removes the notes if every offer is known to be stored, and the sender knows that.
    /// Called when the sender has ended the connection, and all transfers have ended.
    package func end() async {
        let stored = state.withLock { state in
            state.unsettled.isEmpty && !state.hasUnlisted ? state.stored : [:]
        }
        guard !stored.isEmpty, let thread = BlockingThread.start() else { return }
        await thread.run {
            for (place, ids) in stored {
                let folder = try? FileFolder(place.folder, from: place.peer, FileFolder.Rules())
                folder?.forget(ids)
            }
        }
    }
}
