@testable internal import BLESec

/// The protocols of two devices, and what each knows of the other.
struct Setting: Sendable {
    let mode: ChannelConfiguration.Mode
    let dialer: [String]
    let acceptor: [String]
    /// Whether the dialer expects a key that the acceptor has lost.
    var dialerExpectsLostKey = false
    /// In direct mode, the role that has no proof of its peer before the peer's first transport
    /// message (Noise §7.7).
    let lateProof: ChannelRole?
    /// The role that has no static key in this pattern.
    let keyless: ChannelRole?

    private static let xx = "Noise_XX_25519_ChaChaPoly_SHA256"
    private static let ik = "Noise_IK_25519_ChaChaPoly_SHA256"
    private static let aes = "Noise_XX_25519_AESGCM_SHA256"
    private static let tls = TLSContext.protocolName

    private init(
        _ dialer: [String], _ acceptor: [String]? = nil,
        mode: ChannelConfiguration.Mode = .negotiated, dialerExpectsLostKey: Bool = false,
        lateProof: ChannelRole? = nil, keyless: ChannelRole? = nil
    ) {
        self.dialer = dialer
        self.acceptor = acceptor ?? dialer
        self.mode = mode
        self.dialerExpectsLostKey = dialerExpectsLostKey
        self.lateProof = lateProof
        self.keyless = keyless
    }

    /// Every path through a negotiation, and both engines in both modes.
    static let all = [
        Setting([xx]), Setting([ik]), Setting(["Noise_KK_25519_AESGCM_SHA256"]),
        Setting(["Noise_NNpsk0_25519_ChaChaPoly_SHA256"]),
        Setting([ik, xx], dialerExpectsLostKey: true), Setting([xx, aes], [aes]), Setting([tls]),
        Setting([tls, xx], [xx]), Setting([xx, tls], [tls]), Setting([xx], [aes]),
        Setting([xx], mode: .direct), Setting([tls], mode: .direct),
        Setting([ik], mode: .direct, lateProof: .acceptor),
        Setting(["Noise_IX_25519_ChaChaPoly_SHA256"], mode: .direct, lateProof: .acceptor),
        Setting(
            ["Noise_KN_25519_ChaChaPoly_SHA256"], mode: .direct, lateProof: .acceptor,
            keyless: .acceptor),
        Setting(
            ["Noise_NX1_25519_ChaChaPoly_SHA256"], mode: .direct, lateProof: .dialer,
            keyless: .dialer),
        Setting(["Noise_NNpsk0_25519_ChaChaPoly_SHA256"], mode: .direct, lateProof: .acceptor),
    ]

    /// Whether the two devices have a protocol in common.
    var agrees: Bool { dialer.contains(where: acceptor.contains) }

    /// The configuration of a device with fixed keys. `asks` selects a policy that asks the program
    /// about the peer.
    func configuration(_ role: ChannelRole, asks: Bool = false) -> ChannelConfiguration {
        let offers = role == .dialer ? dialer : acceptor
        let isNN = offers[0].contains("_NN")
        let peerKey = must { try PeerKey(publicKey: Devices.identity(role.peer).publicKey) }
        var trust = TrustPolicy.pinned([peerKey])
        if dialerExpectsLostKey, role == .dialer {
            trust = .pinned([
                must { try PeerKey(publicKey: Devices.lost.publicKey) },
                PeerKey(fingerprint: peerKey.fingerprint),
            ])
        }
        if isNN || keyless == role.peer { trust = .anyone }
        // A policy that asks has no keys beforehand, so it cannot be used with the patterns that
        // need the peer's key.
        if asks, !offers.contains(where: { $0.contains("K") }) { trust = .asking { _ in .admit } }
        var configuration = ChannelConfiguration(
            identity: isNN ? nil : Devices.identity(role), trust: trust)
        configuration.certificateTrust = asks ? .asking { _ in .admit } : .authority()
        configuration.tls = Devices.tls(role)
        configuration.protocols = offers
        configuration.mode = mode
        configuration.allowsExposedIdentity = true
        if isNN { configuration.presharedKeys = Array(Devices.preSharedKeys.prefix(1)) }
        configuration.fixedEphemeral = Devices.ephemerals[role]
        // Both devices are in one process here, and must not recognize each other's dials.
        configuration.pendingDials = PendingDials()
        configuration.limits.maximumMessageLength = 100_000
        configuration.limits.readAhead = 8 << 10
        configuration.limits.sendAhead = 8 << 10
        configuration.limits.rekeyAfterRecords = 1_500
        return configuration
    }
}
