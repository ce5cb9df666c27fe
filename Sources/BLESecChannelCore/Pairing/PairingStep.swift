/// The first byte of a record of type `pair`, and what follows it (`docs/wire-format.md`,
/// "Pairing").
package enum PairingStep: UInt8, Sendable {
    /// The number of the way of pairing, and the sender's ``PairingStanding``: 2 bytes.
    case begin = 0
    /// The sender's share of CPace, 32 bytes.
    case share = 1
    /// The sender's confirmation. With a code, the confirmation of CPace follows, 64 bytes;
    /// otherwise nothing.
    case confirm = 2
    /// The sender has stored the peer's key. A dialer sends `done` when it has just stored the key,
    /// after the acceptor's confirmation or proof. A side of either role may send `done` if it has
    /// stored the key in an earlier exchange. Nothing follows.
    case done = 3
    /// The dialer's commitment to its nonce, 32 bytes.
    case commit = 4
    /// A nonce, 32 bytes.
    case nonce = 5
    /// A proof of an earlier pairing that is not complete, 32 bytes.
    case settle = 6

    /// The lengths in bytes that the rest of a record, behind this step, may have.
    var lengths: [Int] {
        switch self {
        case .begin: [2]
        case .share, .commit, .nonce, .settle: [32]
        case .confirm: [0, 64]
        case .done: [0]
        }
    }
}

/// What a side has kept of an earlier pairing with the same key, as `begin` tells the peer.
enum PairingStanding: UInt8 {
    case nothing = 0
    /// The pairing is not complete, and this side has not verified the peer.
    case pending = 1
    /// The pairing is not complete, but this side has verified the peer.
    case verified = 2
    /// The store knows the peer's key under the name that the policy gives the peer.
    case known = 3
}

/// How this side goes on after `begin`. Each side calculates its course from both standings.
enum PairingCourse: Equatable {
    /// Both sides pair.
    case full
    /// Both sides complete an earlier pairing, and send each other proofs of it.
    case settle
    /// This side knows the peer, and tells it so with `done`.
    case sendDone
    /// This side knows the peer, or has verified it earlier, and waits for the peer's `done`.
    case awaitDone

    init(own: PairingStanding, peer: PairingStanding, role: ChannelRole) {
        self =
            switch (own, peer) {
            case (.pending, .pending), (.pending, .verified), (.verified, .pending),
                (.verified, .verified):
                .settle
            case (.known, .verified): .sendDone
            case (.verified, .known): .awaitDone
            case (.known, .known): role == .dialer ? .sendDone : .awaitDone
            default: .full
            }
    }
}
