extension TrustPolicy {
    /// What the policy answers without waiting: a decision, or a question that leads to a decision.
    package enum FirstAnswer: Sendable {
        case admit
        case refuse(String)
        case ask(Evaluation)
        /// A question to a store or a file. The call may block, so make it on a thread where no
        /// other work waits.
        case lookUp(@Sendable () -> Verdict)
    }

    /// Decides about an identity that the peer claims. Writes nothing; see ``remember(_:)``.
    package func decide(_ identity: ClaimedIdentity) -> FirstAnswer {
        let fingerprint = identity.fingerprint
        if let denied, let fingerprint, denied.contains(fingerprint) {
            return .refuse("\(fingerprint) is on the deny list")
        }
        let answer = answerOfRule(identity)
        guard let condition else { return answer }
        switch answer {
        case .refuse: return answer
        case .admit:
            return Self.lookUp { () throws(ChannelError) in try condition(identity) }
        case .lookUp(let lookUp):
            return Self.lookUp { () throws(ChannelError) in
                let verdict = lookUp()
                guard case .admit = verdict else { return verdict }
                return try condition(identity)
            }
        case .ask(let evaluate):
            return .ask { claimed in
                let verdict = try await evaluate(claimed)
                guard case .admit = verdict else { return verdict }
                return try condition(claimed)
            }
        }
    }

    private func answerOfRule(_ identity: ClaimedIdentity) -> FirstAnswer {
        let fingerprint = identity.fingerprint
        switch rule {
        case .anyone: return .admit
        case .asking(let evaluate): return .ask(evaluate)
        case .pinned(let keys):
            guard let key = fingerprint else { return Self.provesNothing }
            return keys.contains { $0.fingerprint == key }
                ? .admit : .refuse("the peer's key \(key) is not among the expected ones")
        case .authority(let uris):
            guard let uri = identity.uri else {
                return .refuse("no authority vouches for the peer")
            }
            return uris?.containsExactly(uri) ?? true
                ? .admit : .refuse("the peer is \(uri), which is not among the expected ones")
        case .firstUse(let store, let name):
            guard let key = fingerprint else { return Self.provesNothing }
            return Self.lookUp { () throws(ChannelError) in
                guard let known = try store.key(named: name), known != key else { return .admit }
                return .refuse("\(name) is known with \(known), and this peer has \(key)")
            }
        case .pairing(let rule):
            guard let key = fingerprint else { return Self.provesNothing }
            return Self.lookUp { () throws(ChannelError) in try rule.verdict(on: key) }
        case .enrolled(let store, let window):
            guard let key = fingerprint else { return Self.provesNothing }
            return Self.lookUp { () throws(ChannelError) in
                if try store.contains(key) { return .admit }
                // The window has a limited number of places. A key that got a place keeps the place,
                // even if the store then failed to store the key.
                return window?.mayEnrol(key) == true
                    ? .admit : .refuse("\(key) is not enrolled, and no pairing window is open")
            }
        }
    }

    /// Wraps a question to a store; if the store fails, the peer is refused.
    private static func lookUp(
        _ question: @escaping @Sendable () throws(ChannelError) -> Verdict
    ) -> FirstAnswer {
        .lookUp {
            do throws(ChannelError) {
                return try question()
            } catch {
                return .refuse(error.reason)
            }
        }
    }

    /// Whether ``remember(_:)`` may write to a store.
    package var remembers: Bool {
        switch rule {
        case .firstUse, .enrolled: true
        case .pinned, .pairing, .authority, .anyone, .asking: false
        }
    }

    /// Stores what the policy remembers about a proven peer; see ``TrustPolicy``. May block.
    package func remember(_ identity: PeerIdentity) throws(ChannelError) {
        guard let key = identity.fingerprint else { return }
        switch rule {
        case .firstUse(let store, let name): try store.bind(name, to: key)
        case .enrolled(let store, let window):
            guard try !store.contains(key) else { return }
            guard let window, let name = window.nameForEnrolling(key) else {
                throw ChannelError(.untrusted, "the pairing window closed before \(key) was ready")
            }
            try store.bind(name, to: key)
        case .pinned, .pairing, .authority, .anyone, .asking: break
        }
    }

    private static let provesNothing = FirstAnswer.refuse("the peer proves no key")
}

extension Set<String> {
    /// Whether a member has the same bytes as `text`. `contains` also finds a member that has other
    /// bytes and is canonically equivalent.
    fileprivate func containsExactly(_ text: String) -> Bool {
        firstIndex(of: text).map { self[$0].utf8.elementsEqual(text.utf8) } ?? false
    }
}
