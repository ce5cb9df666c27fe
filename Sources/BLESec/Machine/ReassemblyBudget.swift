internal import BLESecChannelCore
internal import BLESecLocking

/// A memory limit for all incomplete messages of a process, with a share for each peer.
///
/// When the memory does not suffice, the peer that holds most loses its largest incomplete message
/// and that message's channel, so that one peer cannot keep others from receiving.
final class ReassemblyBudget: Sendable {
    /// 256 MiB, room for 16 messages of the default maximum length; a peer's share is 64 MiB.
    static let shared = ReassemblyBudget(bytes: 256 << 20, share: 64 << 20)

    private struct Holding {
        /// `nil` for a peer without an identity of its own.
        let peer: PeerIdentity?
        var bytes = 0
        /// Ends the channel; called on any thread.
        let revoke: @Sendable () -> Void
    }

    private struct State {
        var left: Int
        var holdings: [UInt64: Holding] = [:]
        var lastToken: UInt64 = 0
        /// The bytes that each peer with an identity holds.
        var peers: [PeerIdentity: Int] = [:]

        /// Adds `count` bytes to a holding; a negative count removes bytes.
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

        /// The bytes of all channels of a holding's peer; of its channel alone, if it has no key.
        func sum(of token: UInt64) -> Int {
            guard let holding = holdings[token] else { return 0 }
            return holding.peer.map { peers[$0, default: 0] } ?? holding.bytes
        }

        /// The largest holding of the peer that holds most.
        func largest() -> UInt64? {
            holdings.max { first, second in
                let (firstSum, secondSum) = (sum(of: first.key), sum(of: second.key))
                return (firstSum, first.value.bytes) < (secondSum, second.value.bytes)
            }?.key
        }
    }

    private let state: Locked<State>
    private let share: Int

    init(bytes: Int, share: Int) {
        state = Locked(State(left: bytes))
        self.share = share
    }

    /// One channel's part of a budget, released with the last reference.
    final class Part: Sendable {
        private let budget: ReassemblyBudget
        private let token: UInt64

        fileprivate init(_ budget: ReassemblyBudget, _ token: UInt64) {
            self.budget = budget
            self.token = token
        }

        deinit { budget.remove(token) }
        /// Takes `count` more bytes for a message whose maximum length is `limit` bytes; returns
        /// false if the budget does not allow it.
        func take(_ count: Int, limit: Int) -> Bool { budget.take(count, by: token, limit: limit) }
        func giveAll() { budget.giveAll(token) }
    }

    /// Makes the part for one channel to `peer`. `revoke` is called, on any thread, if the peer
    /// holds most while another peer needs memory; the part has lost its bytes by then.
    func part(for peer: PeerIdentity?, revoke: @escaping @Sendable () -> Void) -> Part {
        // Peers without a key cannot be told apart, so each of their channels counts as a peer.
        let owner = peer?.fingerprint == nil ? nil : peer
        let token = state.withLock { state in
            state.lastToken += 1
            state.holdings[state.lastToken] = Holding(peer: owner, revoke: revoke)
            return state.lastToken
        }
        return Part(self, token)
    }

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
                // A peer loses nothing to another peer that holds as much or more.
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
