import BLESecLocking
import BLESecPrimitives
import Testing

@testable import BLESecChannelCore

/// A trust store in memory that also keeps the pending peers of incomplete pairings.
final class PairingStore: TrustStore {
    struct Content: Equatable {
        var names: [String: Fingerprint] = [:]
        var pending: [Fingerprint: TrustPolicy.PendingPeer] = [:]
    }

    let content = Locked(Content())
    /// Called before each change. If it throws, the change fails with this error.
    let beforeChange = Locked<@Sendable () throws(ChannelError) -> Void>({})

    private func change(_ body: (inout Content) -> Void) throws(ChannelError) {
        let check = beforeChange.withLock { $0 }
        try check()
        content.withLock { body(&$0) }
    }

    func key(named name: String) throws(ChannelError) -> Fingerprint? {
        content.withLock { $0.names[name] }
    }

    func contains(_ key: Fingerprint) throws(ChannelError) -> Bool {
        content.withLock { $0.names.values.contains(key) }
    }

    func bind(_ name: String, to key: Fingerprint) throws(ChannelError) {
        if let bound = try self.key(named: name), bound != key {
            throw ChannelError(.untrusted, "\(name) is known with \(bound)")
        }
        try change { $0.names[name] = key }
    }

    func pendingPeer(_ key: Fingerprint) throws(ChannelError) -> TrustPolicy.PendingPeer? {
        content.withLock { $0.pending[key] }
    }

    func keepPending(_ peer: TrustPolicy.PendingPeer) throws(ChannelError) {
        try change { $0.pending[peer.key] = peer }
    }

    func forgetPending(_ key: Fingerprint) throws(ChannelError) {
        try change { $0.pending[key] = nil }
    }
}

/// A device that pairs: its key and its store.
struct PairingDevice: Sendable {
    let key: Fingerprint
    /// The claim to hold the key.
    let claim: ClaimedIdentity
    let store = PairingStore()

    init() throws {
        let identity = try IdentityKey.generate()
        key = identity.fingerprint
        claim = ClaimedIdentity(.publicKey(identity.publicKey, curve: .x25519))
    }

    var names: [String: Fingerprint] { store.content.withLock { $0.names } }
    var pending: [TrustPolicy.PendingPeer] { store.content.withLock { Array($0.pending.values) } }
}

/// Runs two exchanges, and passes records between them.
struct PairingRun {
    /// How a run of both sides ended.
    struct Outcome {
        var errors: [ChannelRole: ChannelError] = [:]
        var complete: Set<ChannelRole> = []
        var confirmed: Set<ChannelRole> = []
        /// The records that were sent before the cut, as they were before ``tamper`` got them.
        var records: [(from: ChannelRole, payload: [UInt8])] = []
    }

    /// The number of records that are passed on before the link is cut.
    var recordsBeforeCut = Int.max
    /// Gets the number, the sender and the payload of each record. Returns the payload that
    /// arrives, or nil if the record is lost.
    var tamper: (Int, ChannelRole, [UInt8]) -> [UInt8]? = { _, _, payload in payload }

    static func rule(
        _ way: TrustPolicy.Pairing, _ device: PairingDevice, name: String
    ) throws -> TrustPolicy.PairingRule {
        let policy = TrustPolicy.pairing(way, store: device.store, name: name)
        return try #require(policy.pairingRule)
    }

    /// Pairs `dialer` with `acceptor`. `peerNames` has the name under which each side stores its peer,
    /// `hashes` the handshake hash of each side, and `seenKeys` the key that each side sees as its
    /// peer's. By default the hashes are equal, and each side sees its peer's real key.
    func pair(
        _ dialer: PairingDevice, _ dialersWay: TrustPolicy.Pairing, _ acceptor: PairingDevice,
        _ acceptorsWay: TrustPolicy.Pairing,
        peerNames: (byDialer: String, byAcceptor: String) = ("bob", "alice"),
        hashes: (dialer: [UInt8], acceptor: [UInt8])? = nil,
        seenKeys: (byDialer: Fingerprint, byAcceptor: Fingerprint)? = nil
    ) async throws -> Outcome {
        let sharedHash = randomBytes(count: 32)
        let exchanges = [
            ChannelRole.dialer: PairingExchange(
                try Self.rule(dialersWay, dialer, name: peerNames.byDialer),
                .init(
                    role: .dialer, own: dialer.key, peer: seenKeys?.byDialer ?? acceptor.key,
                    handshakeHash: hashes?.dialer ?? sharedHash)),
            .acceptor: PairingExchange(
                try Self.rule(acceptorsWay, acceptor, name: peerNames.byAcceptor),
                .init(
                    role: .acceptor, own: acceptor.key, peer: seenKeys?.byAcceptor ?? dialer.key,
                    handshakeHash: hashes?.acceptor ?? sharedHash)),
        ]
        var outcome = Outcome()
        var inFlight: [ChannelRole: [[UInt8]]] = [.dialer: [], .acceptor: []]
        var hasProgress = true
        while hasProgress {
            hasProgress = false
            for role in [ChannelRole.dialer, .acceptor] {
                guard let exchange = exchanges[role], outcome.errors[role] == nil else { continue }
                do throws(ChannelError) {
                    if let question = exchange.question {
                        hasProgress = true
                        try exchange.didDecide(await Self.answer(question))
                    } else if exchange.wantsRecord, let next = inFlight[role]?.first {
                        hasProgress = true
                        inFlight[role]?.removeFirst()
                        try exchange.receive(next)
                    }
                } catch {
                    outcome.errors[role] = error
                }
                while let record = exchange.nextRecord() {
                    hasProgress = true
                    guard outcome.records.count < recordsBeforeCut else { continue }
                    let number = outcome.records.count
                    outcome.records.append((role, record))
                    if let passed = tamper(number, role, record) {
                        inFlight[role.peer]?.append(passed)
                    }
                }
            }
        }
        for (role, exchange) in exchanges {
            if exchange.isComplete { outcome.complete.insert(role) }
            if exchange.hasConfirmed { outcome.confirmed.insert(role) }
        }
        return outcome
    }

    static func answer(_ question: PairingExchange.Question) async -> TrustPolicy.Verdict {
        switch question {
        case .store(let call): return call()
        case .person(let call):
            do { return try await call() } catch { return .refuse("\(error)") }
        }
    }
}
