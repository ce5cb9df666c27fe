extension TrustPolicy {
    /// How two sides that do not know each other come to know each other's keys.
    public enum Pairing: Sendable {
        /// One side shows an invitation, and the other reads it.
        case invitation(PairingInvitation)
        /// One side shows a short code, and a person gives it to the other.
        case code(PairingCode)
        /// Both sides show six digits, and on each side a person says whether they are the same.
        case comparing(PairingComparison)

        /// Both sides show six digits, and `confirm` asks a person whether they are the same; see
        /// ``PairingComparison``.
        public static func comparison(
            confirm: @escaping PairingComparison.Confirmation
        ) -> Pairing {
            .comparing(PairingComparison(confirm: confirm))
        }

        /// The number of this way of pairing in the step `begin`.
        var number: UInt8 {
            switch self {
            case .invitation: 1
            case .code: 2
            case .comparing: 3
            }
        }

        /// How the way with this number completes a sentence such as "the peer pairs …".
        static func name(of number: UInt8) -> String {
            switch number {
            case 1: "by an invitation"
            case 2: "by a code"
            case 3: "by comparing digits"
            default: "in an unknown way"
            }
        }

        /// Reserves the code or the comparison for a key that this side has verified. Returns false
        /// if the code or the comparison is reserved for another key, or has ended. For an
        /// invitation, reserves nothing, and returns whether the invitation is still open.
        func reserve(for key: Fingerprint) -> Bool {
            switch self {
            case .invitation(let invitation): invitation.isOpen
            case .code(let code): code.reserve(for: key)
            case .comparing(let comparison): comparison.reserve(for: key)
            }
        }

        /// Whether this side should give up after a channel that was to pair has failed with
        /// `error`: either nobody can pair with this side any more, or a person has to act first.
        ///
        /// A listener gives up if it refuses a peer while its code has no try left, or while its
        /// invitation has ended. If the code is reserved for a key, or the invitation has an owner,
        /// only a refusal of the peer with this key counts. When another peer is refused, the last
        /// confirmations with the holder of this key may still be under way. A listener that compares
        /// digits does not give up.
        ///
        /// A dialer gives up when either side refuses the other, so that it does not dial again
        /// with the same code before a person has checked the code. But if no try was used, or the
        /// peer is not the inviter, the dialer has only met another device and does not give up.
        package func isOver(after error: ChannelError, as role: ChannelRole) -> Bool {
            switch (self, role) {
            case (.code(let code), .acceptor):
                guard error.code == .untrusted, code.triesLeft == 0 else { return false }
                return code.owner.map { $0 == error.claimed?.fingerprint } ?? true
            case (.invitation(let invitation), .acceptor):
                guard error.code == .untrusted, !invitation.isOpen else { return false }
                return invitation.owner.map { $0 == error.claimed?.fingerprint } ?? true
            case (.comparing, .acceptor): return false
            case (.code(let code), .dialer):
                return error.isRefusal && code.triesLeft < PairingCode.maximumTries
            case (.invitation(let invitation), .dialer):
                return error.isRefusal && error.claimed?.fingerprint == invitation.key
            case (.comparing(let comparison), .dialer):
                return error.isRefusal && comparison.triesLeft < PairingTries.maximum
            }
        }

        /// The error with which this side gives up after `error`; nil if it does not give up (see
        /// ``isOver(after:as:)``).
        package func finalError(after error: ChannelError, as role: ChannelRole) -> ChannelError? {
            guard isOver(after: error, as: role) else { return nil }
            if case .code(let code) = self { return code.updated(error) }
            return error
        }

        /// Ends the invitation, the code or the comparison, since the pairing is complete or cannot
        /// be completed.
        func end() {
            switch self {
            case .invitation(let invitation): invitation.close()
            case .code(let code): code.end()
            case .comparing(let comparison): comparison.end()
            }
        }
    }

    /// The arguments of ``pairing(_:store:name:)``.
    package struct PairingRule: Sendable {
        package let way: Pairing
        let store: any TrustStore
        let name: String

        /// The invitation, if there is one.
        package var invitation: PairingInvitation? {
            if case .invitation(let invitation) = way { invitation } else { nil }
        }

        /// How the store keeps `key` under the name that this policy gives the peer; nil if the
        /// store does not keep the key under this name.
        func keptPeer(withKey key: Fingerprint) throws(ChannelError) -> KeptPeer? {
            if try store.key(named: name) == key { return .known }
            guard let pending = try store.pendingPeer(key), pending.name == name else { return nil }
            return .pending(pending)
        }

        /// Decides whether to begin to pair with the holder of `key`. May block.
        func verdict(on key: Fingerprint) throws(ChannelError) -> Verdict {
            if let bound = try store.key(named: name), bound != key {
                return .refuse("\(name) is known with \(bound), and this peer has \(key)")
            }
            // An interrupted pairing is completed without the invitation or code that it began
            // with.
            if try keptPeer(withKey: key) != nil { return .admit }
            return refusal(of: key).map { .refuse($0) } ?? .admit
        }

        /// Why the invitation, the code or the comparison is not valid for this key; nil if it is
        /// valid. If this side's valid invitation has no owner yet, the key becomes its owner.
        func refusal(of key: Fingerprint) -> String? {
            switch way {
            case .invitation(let invitation):
                if case .refuse(let reason) = invitation.admit(key) { reason } else { nil }
            case .code(let code): code.refusal
            case .comparing(let comparison): comparison.refusal
            }
        }
    }

    /// The state in which a store keeps a peer's key.
    enum KeptPeer {
        case known
        case pending(PendingPeer)
    }

    /// How the policy pairs; nil for a policy that does not pair.
    package var pairingRule: PairingRule? {
        if case .pairing(let rule) = rule { rule } else { nil }
    }
}

extension ChannelError {
    /// Whether one side has refused the other.
    fileprivate var isRefusal: Bool { [.refused, .untrusted].contains(code) }
}
