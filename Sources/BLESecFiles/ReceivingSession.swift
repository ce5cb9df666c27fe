internal import BLESecLocking

/// What a sender has offered over one connection, and which notes there are about it.
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
        /// The ids of the offers that are not stored, or whose sender does not know that yet.
        var missing: Set<[UInt8]> = []
        /// Whether something is missing that `missing` does not list, because the offer did not
        /// arrive or the list was full.
        var isIncomplete = false
        /// The ids of the offers that are stored, and whose sender knows that.
        var stored: [Place: Set<[UInt8]>] = [:]
    }

    private let state = Locked(State())
    private static let mostMissing = 1_000
    /// How many notes are kept. The notes about further offers are removed as soon as the sender
    /// knows that they are stored.
    private static let mostNotes = 10_000

    package init() {}

    /// Records that an offer has arrived.
    func begin(_ id: [UInt8]) {
        state.withLock { state in
            if state.missing.count < Self.mostMissing {
                state.missing.insert(id)
            } else if !state.missing.contains(id) {
                state.isIncomplete = true
            }
        }
    }

    /// Records that an offer has not arrived, for example because the sender was ended.
    func noteOfferGivenUp() { state.withLock { $0.isIncomplete = true } }

    /// Records that the sender knows that this offer is stored, and returns whether the offer's
    /// note is kept. The note is not kept if there are too many.
    func recordStored(_ id: [UInt8], in folder: String, from peer: [UInt8]) -> Bool {
        state.withLock { state in
            state.missing.remove(id)
            guard state.stored.values.reduce(0, { $0 + $1.count }) < Self.mostNotes else {
                return false
            }
            state.stored[Place(folder: folder, peer: peer), default: []].insert(id)
            return true
        }
    }

    /// Removes the notes, unless something is missing. Called when the sender has ended the
    /// connection, and all transfers have ended.
    package func end() async {
        let stored = state.withLock { state in
            state.missing.isEmpty && !state.isIncomplete ? state.stored : [:]
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
