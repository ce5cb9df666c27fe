import BLESecChannelCore
import BLESecLocking
import BLESecPrimitives
import Testing

@Suite("Trust policies")
struct TrustPolicyTests {
    /// A store in memory.
    final class Store: TrustStore {
        let names = Locked<[String: Fingerprint]>([:])

        func key(named name: String) throws(ChannelError) -> Fingerprint? {
            names.withLock { $0[name] }
        }

        func bind(_ name: String, to key: Fingerprint) throws(ChannelError) {
            let known = names.withLock { names in
                if names[name] == nil { names[name] = key }
                return names[name]
            }
            guard known == key else {
                throw ChannelError(.untrusted, "\(name) is bound to another key")
            }
        }

        func contains(_ key: Fingerprint) throws(ChannelError) -> Bool {
            names.withLock { $0.values.contains(key) }
        }
    }

    static func newIdentity() throws -> PeerIdentity {
        .publicKey(try IdentityKey.generate().publicKey, curve: .x25519)
    }

    /// Whether the policy admits the identity, after a look-up if it needs one.
    static func admits(_ policy: TrustPolicy, _ identity: PeerIdentity) -> Bool {
        switch policy.decide(ClaimedIdentity(identity)) {
        case .admit: return true
        case .refuse, .ask: return false
        case .lookUp(let lookUp):
            if case .admit = lookUp() { return true }
            return false
        }
    }

    @Test(
        "pinned, first-use and enrolled policies refuse a peer that proves no key, and `anyone` admits it"
    )
    func keyless() throws {
        let key = PeerKey(fingerprint: try IdentityKey.generate().fingerprint)
        let store = Store()
        for identity in [PeerIdentity.group, .anonymous] {
            #expect(!Self.admits(.pinned([key]), identity))
            #expect(!Self.admits(.firstUse(store, name: "x"), identity))
            #expect(!Self.admits(.enrolled(store, window: nil), identity))
            #expect(Self.admits(.anyone, identity))
        }
    }

    @Test("an empty list of pinned keys admits no peer")
    func emptyPin() throws {
        #expect(!Self.admits(.pinned([]), try Self.newIdentity()))
    }

    @Test("the same key bytes on another curve are another identity")
    func curve() throws {
        let identity = try IdentityKey.generate()
        let pinned = TrustPolicy.pinned([try PeerKey(publicKey: identity.publicKey)])
        #expect(Self.admits(pinned, .publicKey(identity.publicKey, curve: .x25519)))
        #expect(!Self.admits(pinned, .publicKey(identity.publicKey, curve: .x448)))
    }

    @Test("the URI of a certificate is compared byte by byte")
    func uris() {
        let identity = PeerIdentity.certificate(subjectPublicKeyInfo: [1], uri: "a:K")
        #expect(Self.admits(.authority(uris: ["a:k", "a:K"]), identity))
        #expect(!Self.admits(.authority(uris: ["a:k"]), identity))
        // A Kelvin sign, which is canonically equivalent to K.
        #expect(!Self.admits(.authority(uris: ["a:\u{212A}"]), identity))
    }

    @Test("a deny list overrides the rule of a policy")
    func denied() throws {
        let identity = try Self.newIdentity()
        let key = try #require(identity.fingerprint)
        let store = Store()
        try store.bind("phone", to: key)
        let list = DenyList([key])
        for policy in [
            TrustPolicy.pinned([PeerKey(fingerprint: key)]), .anyone, .enrolled(store),
            .firstUse(store, name: "phone"), .asking { _ in .admit },
        ] {
            guard case .refuse = policy.denying(list).decide(ClaimedIdentity(identity)) else {
                Issue.record("a denied key is not refused")
                continue
            }
        }
        list.replace(with: [])
        #expect(Self.admits(TrustPolicy.anyone.denying(list), identity))
    }

    @Test(
        "a first-use policy stores the key only when told to remember it, and then refuses any other key"
    )
    func firstUse() throws {
        let store = Store()
        let policy = TrustPolicy.firstUse(store, name: "phone")
        let first = try Self.newIdentity()
        #expect(Self.admits(policy, first))
        #expect(try store.key(named: "phone") == nil)
        try policy.remember(first)
        #expect(Self.admits(policy, first))
        let second = try Self.newIdentity()
        #expect(!Self.admits(policy, second))
        #expect(throws: ChannelError(.untrusted, "")) { try policy.remember(second) }
        #expect(try store.key(named: "phone") == first.fingerprint)
    }

    @Test(
        "a policy with a condition admits a peer only if policy and condition do, and the store answers"
    )
    func condition() async throws {
        let store = Store()
        let (peer, other) = (try Self.newIdentity(), try Self.newIdentity())
        let key = try #require(peer.fingerprint)
        try store.bind("phone", to: key)
        let isReadable = Locked(true)
        let condition: TrustPolicy.Condition = { claimed throws(ChannelError) in
            guard isReadable.withLock({ $0 }) else { throw ChannelError(.badKey, "a bad line") }
            return try store.key(named: "phone") == claimed.fingerprint
                ? .admit : .refuse("forgotten")
        }
        func admits(_ policy: TrustPolicy, _ identity: PeerIdentity) async throws -> Bool {
            guard case .ask(let evaluate) = policy.decide(ClaimedIdentity(identity)) else {
                return Self.admits(policy, identity)
            }
            guard case .admit = try await evaluate(ClaimedIdentity(identity)) else { return false }
            return true
        }
        let asking = TrustPolicy.asking { _ in .admit }.requiring(condition)
        let policies = [
            TrustPolicy.pinned(key).requiring(condition), .anyone.requiring(condition), asking,
            .firstUse(store, name: "phone").requiring(condition),
        ]
        for policy in policies {
            #expect(try await admits(policy, peer))
            #expect(try await !admits(policy, other))
            #expect(try await !admits(policy, .anonymous))
        }
        let pinned = TrustPolicy.pinned(try #require(other.fingerprint))
        for rule in [pinned, .firstUse(store, name: "x")] {
            #expect(Self.admits(rule, other) && !Self.admits(rule.requiring(condition), other))
        }
        // A second condition does not replace the first.
        let both = TrustPolicy.anyone.requiring(condition).requiring { claimed in
            claimed.fingerprint == key ? .admit : .refuse("other")
        }
        #expect(Self.admits(both, peer) && !Self.admits(both, other))
        for isFirst in [true, false] {
            let no: TrustPolicy.Condition = { _ in .refuse("no") }
            let policy = TrustPolicy.anyone.requiring(isFirst ? no : condition)
            #expect(!Self.admits(policy.requiring(isFirst ? condition : no), peer))
        }
        let refusing = TrustPolicy.asking { _ in .refuse("no") }.requiring(condition)
        #expect(try await !admits(refusing, peer))
        // The name has been removed, and another name has the key.
        store.names.withLock { $0 = ["tablet": key] }
        for policy in policies { #expect(try await !admits(policy, peer)) }
        store.names.withLock { $0 = ["phone": key] }
        isReadable.withLock { $0 = false }
        for policy in policies.prefix(2) { #expect(!Self.admits(policy, peer)) }
        await #expect(throws: ChannelError(.badKey, "")) { try await admits(asking, peer) }
    }

    @Test("a listener enrols new peers only in an open window, up to the window's number of peers")
    func window() throws {
        let store = Store()
        let window = TrustPolicy.PairingWindow(peers: 2, for: .seconds(1_000))
        let policy = TrustPolicy.enrolled(store, window: window)
        let newPeers = try (0..<3).map { _ in try Self.newIdentity() }
        #expect(!Self.admits(.enrolled(store), newPeers[0]))
        // All three are admitted: a decision takes no place in the window, only `remember` does.
        for newPeer in newPeers { #expect(Self.admits(policy, newPeer)) }
        try policy.remember(newPeers[0])
        try policy.remember(newPeers[0])
        try policy.remember(newPeers[1])
        #expect(throws: ChannelError(.untrusted, "")) { try policy.remember(newPeers[2]) }
        #expect(!window.isOpen)
        #expect(Self.admits(policy, newPeers[0]) && Self.admits(policy, newPeers[1]))
        #expect(!Self.admits(policy, newPeers[2]))
    }

    @Test("a key that was enrolled before needs no window")
    func enrolledBefore() throws {
        let store = Store()
        let peer = try Self.newIdentity()
        try store.bind("phone", to: try #require(peer.fingerprint))
        let closed = TrustPolicy.PairingWindow(for: .seconds(1_000))
        closed.close()
        for policy in [TrustPolicy.enrolled(store), .enrolled(store, window: closed)] {
            #expect(Self.admits(policy, peer))
            try policy.remember(peer)
        }
        #expect(store.names.withLock { Array($0.keys) } == ["phone"])
    }

    @Test("one key takes one place of a window, even if storing it fails the first time")
    func samePlace() throws {
        final class Failing: TrustStore {
            let store = Store()
            let failuresLeft = Locked(1)
            func key(named name: String) throws(ChannelError) -> Fingerprint? { nil }
            func contains(_ key: Fingerprint) throws(ChannelError) -> Bool { false }
            func bind(_ name: String, to key: Fingerprint) throws(ChannelError) {
                let fails = failuresLeft.withLock { left in
                    left -= 1
                    return left >= 0
                }
                if fails { throw ChannelError(.cannotCreate, "the disk is full") }
                try store.bind(name, to: key)
            }
        }
        let store = Failing()
        let policy = TrustPolicy.enrolled(
            store, window: TrustPolicy.PairingWindow(for: .seconds(1_000)))
        let newPeer = try Self.newIdentity()
        let other = try Self.newIdentity()
        #expect(throws: ChannelError(.cannotCreate, "")) { try policy.remember(newPeer) }
        // The peer comes again, and has the only place.
        #expect(Self.admits(policy, newPeer) && !Self.admits(policy, other))
        try policy.remember(newPeer)
        #expect(throws: ChannelError(.untrusted, "")) { try policy.remember(other) }
    }

    @Test("a window that is closed or expired enrols no peer")
    func closedWindow() throws {
        let store = Store()
        let closed = TrustPolicy.PairingWindow(for: .seconds(1_000))
        closed.close()
        let expired = TrustPolicy.PairingWindow(for: .zero)
        for window in [closed, expired] {
            #expect(!window.isOpen)
            let newPeer = try Self.newIdentity()
            let policy = TrustPolicy.enrolled(store, window: window)
            #expect(!Self.admits(policy, newPeer))
            #expect(throws: ChannelError(.untrusted, "")) { try policy.remember(newPeer) }
        }
        #expect(store.names.withLock(\.isEmpty))
    }

    @Test("a policy whose store cannot be read refuses the peer")
    func brokenStore() throws {
        struct Broken: TrustStore {
            func key(named name: String) throws(ChannelError) -> Fingerprint? { throw error }
            func bind(_ name: String, to key: Fingerprint) throws(ChannelError) { throw error }
            func contains(_ key: Fingerprint) throws(ChannelError) -> Bool { throw error }
            var error: ChannelError { ChannelError(.permission, "no") }
        }
        #expect(!Self.admits(.firstUse(Broken(), name: "x"), try Self.newIdentity()))
        #expect(!Self.admits(.enrolled(Broken()), try Self.newIdentity()))
    }
}

@Suite("Deny lists")
struct DenyListTests {
    @Test("each observer receives every change, until it stops observing")
    func observers() throws {
        let list = DenyList()
        // The units count the calls of the first observer, the tens those of the second.
        let calls = Locked(0)
        let first = list.observe { _ in calls.withLock { $0 += 1 } }
        let second = list.observe { _ in calls.withLock { $0 += 10 } }
        list.replace(with: [])
        #expect(calls.withLock { $0 } == 11)
        list.stopObserving(first)
        list.stopObserving(first)
        list.replace(with: [])
        #expect(calls.withLock { $0 } == 21)
        list.stopObserving(second)
        list.replace(with: [])
        #expect(calls.withLock { $0 } == 21)
    }
}
