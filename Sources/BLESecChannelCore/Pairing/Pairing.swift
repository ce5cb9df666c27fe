extension TrustPolicy {
    /// How two sides that do not know each other come to know each other's keys.
    public enum Pairing: Sendable {
        /// One side shows an invitation, and the other reads it.
        case invitation(PairingInvitation)
        /// One side shows a short code, and a person gives it to the other.
        case code(PairingCode)
        /// Both sides show six digits, and a person says on both whether they are the same.
        case comparison(confirm: @Sendable (_ digits: String) async throws -> Bool)

        /// The number of the way in a record of type `pair`.
        var number: UInt8 {
            switch self {
            case .invitation: 1
            case .code: 2
            case .comparison: 3
            }
        }

        static func name(of number: UInt8) -> String {
            switch number {
            case 1: "by an invitation"
            case 2: "by a code"
            case 3: "by comparing digits"
            default: "in an unknown way"
            }
        }

        /// Ends what was good for one pairing.
        func close() {
            switch self {
            case .invitation(let invitation): invitation.close()
            case .code(let code): code.close()
            case .comparison: break
            }
        }
    }

    /// What ``pairing(_:store:name:)`` was given.
    package struct PairingRule: Sendable {
        package let way: Pairing
        let store: any TrustStore
        let name: String

        /// The invitation, if there is one.
        package var invitation: PairingInvitation? {
            if case .invitation(let invitation) = way { invitation } else { nil }
        }

        /// Decides whether to begin to pair with the holder of `key`. May block.
        func verdict(on key: Fingerprint) throws(ChannelError) -> Verdict {
            if let bound = try store.key(named: name), bound != key {
                return .refuse("\(name) is known with \(bound), and this peer has \(key)")
            }
            switch way {
            case .invitation(let invitation): return invitation.verdict(on: key)
            case .code(let code):
                // A pairing that was interrupted is ended without the code.
                if try store.pendingPeer(key) == nil, let refusal = code.refusal {
                    return .refuse(refusal)
                }
                return .admit
            case .comparison: return .admit
            }
        }
    }

    /// How the policy pairs; nil if it does not.
    package var pairingRule: PairingRule? {
        if case .pairing(let rule) = rule { rule } else { nil }
    }
}
