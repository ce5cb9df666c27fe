internal import BLESecChannelCore
internal import BLESecLocking

/// A memory limit for all incomplete messages of a process, and a smaller limit for those of each peer.
///
/// When the memory does not suffice, the peer whose incomplete messages take most memory loses the
/// largest of them, and the channel of this message ends. If no peer's messages take more than those
/// of the peer that needs memory, the channel that needs the memory ends. So one peer cannot keep
/// others from sending.
final class ReassemblyBudget: Sendable {
    /// 256 MiB, room for 16 messages of the default maximum length; at most 64 MiB for one peer.
    static let shared = ReassemblyBudget(bytes: 256 << 20, share: 64 << 20)

    /// The bytes that one channel's ``Part`` has taken.
    private struct Holding {
        /// The number of the share that this holding counts towards.
        let share: UInt64
        var bytes = 0
        /// Ends the channel; called on any thread.
        let revoke: @Sendable () -> Void
    }

    /// What all channels of a peer hold together. A peer without a key has one share for each
    /// channel.
    private struct Share {
        let peer: PeerIdentity?
        var bytes = 0
        var holdings = 0
    }

    private struct State {
        var bytesLeft: Int
        var holdings: [UInt64: Holding] = [:]
        var shares: [UInt64: Share] = [:]
        /// The share of each peer with a key. Used only when a part is made or released: to find an
        /// identity in a dictionary takes much longer than to find a number.
        var shareOfPeer: [PeerIdentity: UInt64] = [:]
        /// The number that was given to a holding or a share last.
        var lastNumber: UInt64 = 0

        mutating func nextNumber() -> UInt64 {
            lastNumber += 1
            return lastNumber
        }

        /// The number of the share of `peer`; makes the share if there is none yet. If `peer` is
        /// `nil`, always makes a new share.
        mutating func share(of peer: PeerIdentity?) -> UInt64 {
            if let peer, let number = shareOfPeer[peer] { return number }
            let number = nextNumber()
            shares[number] = Share(peer: peer)
            if let peer { shareOfPeer[peer] = number }
            return number
        }

        /// Adds `count` bytes to a holding; a negative count removes bytes.
        mutating func add(_ count: Int, to token: UInt64) {
            guard let share = holdings[token]?.share else { return }
            holdings[token]?.bytes += count
            shares[share]?.bytes += count
            bytesLeft -= count
        }

        /// The bytes of the share that a holding counts towards.
        func sum(of token: UInt64) -> Int {
            holdings[token].flatMap { shares[$0.share]?.bytes } ?? 0
        }

        /// Removes a holding with its bytes, and returns the holding. Also removes the holding's share
        /// if the share has no other holding.
        @discardableResult
        mutating func remove(_ token: UInt64) -> Holding? {
            add(-(holdings[token]?.bytes ?? 0), to: token)
            guard let holding = holdings.removeValue(forKey: token),
                var share = shares[holding.share]
            else { return nil }
            share.holdings -= 1
            shares[holding.share] = share.holdings > 0 ? share : nil
            if share.holdings == 0, let peer = share.peer { shareOfPeer[peer] = nil }
            return holding
        }

        /// The largest holding of the peer that holds most.
        func largestHolding() -> UInt64? {
            holdings.max { first, second in
                let (firstSum, secondSum) = (sum(of: first.key), sum(of: second.key))
                return (firstSum, first.value.bytes) < (secondSum, second.value.bytes)
            }?.key
        }
    }

    private let state: Locked<State>
    /// The most bytes of one share. If the maximum length of one message is higher, that length is
    /// the limit instead.
    private let shareLimit: Int

    init(bytes: Int, share: Int) {
        state = Locked(State(bytesLeft: bytes))
        shareLimit = share
    }

    /// One channel's part of a budget, released with the last reference.
    final class Part: Sendable {
        private let budget: ReassemblyBudget
        /// The number of the part's holding.
        private let token: UInt64

        fileprivate init(_ budget: ReassemblyBudget, _ token: UInt64) {
            self.budget = budget
            self.token = token
        }

        deinit { budget.remove(token) }
        /// Takes `count` more bytes for a message of at most `maximumMessageLength` bytes in all;
        /// returns false if the budget does not allow it.
        func take(_ count: Int, maximumMessageLength: Int) -> Bool {
            budget.take(count, by: token, maximumMessageLength: maximumMessageLength)
        }

        func giveBackAll() { budget.giveBackAll(token) }
    }

    /// Makes the part for one channel to `peer`. `revoke` is called, on any thread, after the part
    /// has lost its bytes to another peer.
    func part(for peer: PeerIdentity?, revoke: @escaping @Sendable () -> Void) -> Part {
        // Peers without a key cannot be told apart, so each of their channels counts as a peer.
        let owner = peer?.fingerprint == nil ? nil : peer
        let token = state.withLock { state in
            let token = state.nextNumber()
            let share = state.share(of: owner)
            state.shares[share]?.holdings += 1
            state.holdings[token] = Holding(share: share, revoke: revoke)
            return token
        }
        return Part(self, token)
    }

    var bytesLeft: Int { state.withLock { $0.bytesLeft } }

    private func take(_ count: Int, by token: UInt64, maximumMessageLength: Int) -> Bool {
        let (isTaken, revoked) = state.withLock { state -> (Bool, [Holding]) in
            guard state.holdings[token] != nil,
                state.sum(of: token) + count <= max(shareLimit, maximumMessageLength)
            else { return (false, []) }
            if count <= state.bytesLeft {
                state.add(count, to: token)
                return (true, [])
            }
            var newState = state
            newState.add(count, to: token)
            var revoked: [Holding] = []
            while newState.bytesLeft < 0, let largest = newState.largestHolding() {
                // A peer loses nothing to another peer that holds as much or more.
                guard newState.sum(of: largest) > newState.sum(of: token) else {
                    return (false, [])
                }
                if let holding = newState.remove(largest) { revoked.append(holding) }
            }
            state = newState
            return (true, revoked)
        }
        for holding in revoked { holding.revoke() }
        return isTaken
    }

    private func giveBackAll(_ token: UInt64) {
        state.withLock { state in state.add(-(state.holdings[token]?.bytes ?? 0), to: token) }
    }

    private func remove(_ token: UInt64) { state.withLock { state in _ = state.remove(token) } }
}
