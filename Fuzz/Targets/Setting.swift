@testable internal import BLESec

/// How a dialer and an acceptor are configured: the mode, the protocols of each, and special cases
/// of keys and proofs.
struct Setting: Sendable {
    let mode: ChannelConfiguration.Mode
    let dialerProtocols: [String]
    let acceptorProtocols: [String]
    /// Whether the dialer expects a key that the acceptor has lost.
    var dialerExpectsOldKey = false
    /// In direct mode, the role that has no proof of its peer before the peer's first transport
    /// message (Noise §7.7).
    let roleAwaitingProof: ChannelRole?
    /// The role that has no static key in the pattern, if the other role has one.
    let keyless: ChannelRole?

    private static let xx = "Noise_XX_25519_ChaChaPoly_SHA256"
    private static let ik = "Noise_IK_25519_ChaChaPoly_SHA256"
    private static let aes = "Noise_XX_25519_AESGCM_SHA256"
    private static let tls = TLSContext.protocolName

    private init(
        _ dialerProtocols: [String], _ acceptorProtocols: [String]? = nil,
        mode: ChannelConfiguration.Mode = .negotiated, dialerExpectsOldKey: Bool = false,
        roleAwaitingProof: ChannelRole? = nil, keyless: ChannelRole? = nil
    ) {
        self.dialerProtocols = dialerProtocols
        self.acceptorProtocols = acceptorProtocols ?? dialerProtocols
        self.mode = mode
        self.dialerExpectsOldKey = dialerExpectsOldKey
        self.roleAwaitingProof = roleAwaitingProof
        self.keyless = keyless
    }

    /// Settings for every answer to a hello except `busy`, and for both engines in both modes.
    static let all = [
        Setting([xx]), Setting([ik]), Setting(["Noise_KK_25519_AESGCM_SHA256"]),
        Setting(["Noise_NNpsk0_25519_ChaChaPoly_SHA256"]),
        Setting([ik, xx], dialerExpectsOldKey: true), Setting([xx, aes], [aes]), Setting([tls]),
        Setting([tls, xx], [xx]), Setting([xx, tls], [tls]), Setting([xx], [aes]),
        Setting([xx], mode: .direct), Setting([tls], mode: .direct),
        Setting([ik], mode: .direct, roleAwaitingProof: .acceptor),
        Setting(["Noise_IX_25519_ChaChaPoly_SHA256"], mode: .direct, roleAwaitingProof: .acceptor),
        Setting(
            ["Noise_KN_25519_ChaChaPoly_SHA256"], mode: .direct, roleAwaitingProof: .acceptor,
            keyless: .acceptor),
        Setting(
            ["Noise_NX1_25519_ChaChaPoly_SHA256"], mode: .direct, roleAwaitingProof: .dialer,
            keyless: .dialer),
        Setting(
            ["Noise_NNpsk0_25519_ChaChaPoly_SHA256"], mode: .direct, roleAwaitingProof: .acceptor),
    ]

    /// Whether the two devices have a protocol in common.
    var hasCommonProtocol: Bool { dialerProtocols.contains(where: acceptorProtocols.contains) }

    /// The configuration of a device with fixed keys. `policyAsks` selects a policy that asks the
    /// program about the peer.
    func configuration(_ role: ChannelRole, policyAsks: Bool = false) -> ChannelConfiguration {
        let protocols = role == .dialer ? dialerProtocols : acceptorProtocols
        let isNN = protocols[0].contains("_NN")
        let peerKey = must { try PeerKey(publicKey: Devices.identity(role.peer).publicKey) }
        var trust = TrustPolicy.pinned([peerKey])
        if dialerExpectsOldKey, role == .dialer {
            trust = .pinned([
                must { try PeerKey(publicKey: Devices.lost.publicKey) },
                PeerKey(fingerprint: peerKey.fingerprint),
            ])
        }
        if isNN || keyless == role.peer { trust = .anyone }
        // A policy that asks names no keys. So it does not suit patterns that need the peer's key
        // before the handshake.
        if policyAsks, !protocols.contains(where: { $0.contains("K") }) {
            trust = .asking { _ in .admit }
        }
        var configuration = ChannelConfiguration(
            identity: isNN ? nil : Devices.identity(role), trust: trust)
        configuration.certificateTrust = policyAsks ? .asking { _ in .admit } : .authority()
        configuration.tls = Devices.tls(role)
        configuration.protocols = protocols
        configuration.mode = mode
        configuration.allowsExposedIdentity = true
        if isNN { configuration.presharedKeys = Array(Devices.preSharedKeys.prefix(1)) }
        configuration.fixedEphemeral = Devices.ephemerals[role]
        // Each device gets a set of pending dials of its own. All devices without keys in one
        // process count as one device, so with a shared set the dialer would end the channel as a
        // connection to itself.
        configuration.pendingDials = PendingDials()
        configuration.limits.maximumMessageLength = 100_000
        configuration.limits.readAhead = 8 << 10
        configuration.limits.sendAhead = 8 << 10
        configuration.limits.rekeyAfterRecords = 1_500
        return configuration
    }
}
