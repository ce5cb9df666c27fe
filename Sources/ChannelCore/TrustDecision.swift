extension TrustPolicy {
    /// What can be said at once, without suspending.
    package enum Decision: Sendable {
        case admit
        case refuse(String)
        case ask(Judge)
    }

    /// Judges an identity that the peer claims. Nothing is written here; see ``remember(_:)``.
    package func decide(_ identity: ClaimedIdentity) -> Decision {
        if let key = identity.fingerprint, denied?.contains(key) == true {
            return .refuse("\(key) is on the deny list")
        }
        do throws(ChannelError) {
            switch rule {
            case .anyone:
                return .admit
            case .asking(let judge):
                return .ask(judge)
            case .pinned(let keys):
                guard let key = identity.fingerprint else { return Self.provesNothing }
                return keys.contains { $0.fingerprint == key }
                    ? .admit : .refuse("the peer's key \(key) is not among the expected ones")
            case .authority(let uris):
                guard let uri = identity.uri else {
                    return .refuse("no authority vouches for the peer")
                }
                return uris?.contains(uri) != false
                    ? .admit : .refuse("the peer is \(uri), and others are expected")
            case .firstUse(let store, let name):
                guard let key = identity.fingerprint else { return Self.provesNothing }
                guard let known = try store.key(named: name) else { return .admit }
                return known == key
                    ? .admit
                    : .refuse("\(name) is known with \(known), and this peer has \(key)")
            case .enrolled(let store, let window):
                guard let key = identity.fingerprint else { return Self.provesNothing }
                if try store.contains(key) { return .admit }
                return window?.isOpen == true
                    ? .admit : .refuse("\(key) is not enrolled, and no pairing window is open")
            }
        } catch {
            return .refuse(error.reason)
        }
    }

    /// Writes what the policy learns from a peer that is proven and ready on both sides.
    package func remember(_ identity: PeerIdentity) throws(ChannelError) {
        guard let key = identity.fingerprint else { return }
        switch rule {
        case .firstUse(let store, let name):
            try store.bind(name, to: key)
        case .enrolled(let store, let window):
            guard try !store.contains(key) else { return }
            guard let window, let name = window.take(key) else {
                throw ChannelError(.untrusted, "the pairing window closed before \(key) was ready")
            }
            try store.bind(name, to: key)
        case .pinned, .authority, .anyone, .asking:
            break
        }
    }

    private static let provesNothing = Decision.refuse("the peer proves no key")
}
