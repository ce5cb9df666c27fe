internal import BLESecChannelCore
internal import BLESecLocking

/// What all incomplete messages of a process may take together, with a share for each peer.
///
/// When there is not enough for all, the peer that holds most is charged: its largest message is
/// given up, and its channel with it, so that nobody can keep others from receiving.
final class ReassemblyBudget: Sendable {
    /// The process's own: 256 MiB, sixteen messages of the default maximum, of which one peer gets
    /// four.
    static let shared = ReassemblyBudget(bytes: 256 << 20, share: 64 << 20)

    /// One channel's part.
    private struct Holding {
        /// `nil` for a peer without an identity of its own.
        let peer: PeerIdentity?
        var bytes = 0
        /// Ends the channel, from whatever thread.
        let revoke: @Sendable () -> Void
    }

    private struct State {
        var left: Int
        var holdings: [UInt64: Holding] = [:]
        var lastToken: UInt64 = 0
        /// What each peer that has an identity holds.
        var peers: [PeerIdentity: Int] = [:]

        /// Adds to what a holding has; a negative count takes away.
        mutating func add(_ count: Int, to token: UInt64) {
            guard let peer = holdings[token]?.peer else {
                holdings[token]?.bytes += count
                return left -= count
            }
            holdings[token]?.bytes += count
            left -= count
            let sum = peers[peer, default: 0] + count
            peers[peer] = sum > 0 ? sum : nil
        }

        /// What the peer of a holding has over all its channels.
        func sum(of token: UInt64) -> Int {
            guard let holding = holdings[token] else { return 0 }
            return holding.peer.map { peers[$0, default: 0] } ?? holding.bytes
        }

        /// The largest holding of the peer that has most.
        func largest() -> UInt64? {
            holdings.max { left, right in
                let (one, other) = (sum(of: left.key), sum(of: right.key))
                return (one, left.value.bytes) < (other, right.value.bytes)
            }?.key
        }
    }

    private let state: Locked<State>
    private let share: Int

    /// A budget of `bytes` overall, and `share` for each peer.
    init(bytes: Int, share: Int) {
        state = Locked(State(left: bytes))
        self.share = share
    }

    /// One channel's part of a budget, given back when the last reference goes.
    final class Part: Sendable {
        private let budget: ReassemblyBudget
        private let token: UInt64

        fileprivate init(_ budget: ReassemblyBudget, _ token: UInt64) {
            self.budget = budget
            self.token = token
        }

        deinit { budget.remove(token) }

        /// Takes so many bytes more for a message that is allowed to have `limit` bytes, and says
        /// whether that went well.
        func take(_ count: Int, limit: Int) -> Bool { budget.take(count, by: token, limit: limit) }

        /// Gives everything back.
        func giveAll() { budget.giveAll(token) }
    }

    /// The part of a channel to a peer. `revoke` is called, from whatever thread, when the peer holds
    /// most while somebody else needs room; what the part held is not its own any more then.
    func part(of peer: PeerIdentity?, revoke: @escaping @Sendable () -> Void) -> Part {
        // A group and nobody in particular have no share: each of their channels counts for itself.
        let owner = peer?.fingerprint == nil ? nil : peer
        let token = state.withLock { state in
            state.lastToken += 1
            state.holdings[state.lastToken] = Holding(peer: owner, revoke: revoke)
            return state.lastToken
        }
        return Part(self, token)
    }

    /// The bytes that nobody holds.
    var bytesLeft: Int { state.withLock { $0.left } }

    private func take(_ count: Int, by token: UInt64, limit: Int) -> Bool {
        let (isTaken, revoked) = state.withLock { state -> (Bool, [Holding]) in
            guard state.holdings[token] != nil,
                state.sum(of: token) + count <= max(share, limit)
            else { return (false, []) }
            guard state.left < count else {
                state.add(count, to: token)
                return (true, [])
            }
            var after = state
            after.add(count, to: token)
            var revoked: [Holding] = []
            while after.left < 0, let largest = after.largest() {
                // Nobody is charged for somebody who holds as much.
                guard after.sum(of: largest) > after.sum(of: token) else { return (false, []) }
                after.add(-(after.holdings[largest]?.bytes ?? 0), to: largest)
                after.holdings.removeValue(forKey: largest).map { revoked.append($0) }
            }
            state = after
            return (true, revoked)
        }
        for holding in revoked { holding.revoke() }
        return isTaken
    }

    private func giveAll(_ token: UInt64) {
        state.withLock { state in state.add(-(state.holdings[token]?.bytes ?? 0), to: token) }
    }

    private func remove(_ token: UInt64) {
        state.withLock { state in
            state.add(-(state.holdings[token]?.bytes ?? 0), to: token)
            state.holdings[token] = nil
        }
    }
}
