internal import BLESec
internal import BLESecNoise
internal import BLESecPrimitives
internal import BLESecTLSEngine

/// The configurations of two ends that can authenticate each other.
struct PeerConfigurations: Sendable {
    let dialer: ChannelConfiguration
    let acceptor: ChannelConfiguration

    /// Two ends that offer one protocol: a Noise protocol, with each other's keys, or TLS with a
    /// common authority.
    init(_ name: String) throws {
        if name == TLSContext.protocolName {
            let contexts = try TLSDevices.shared().contexts
            dialer = Self.tls(contexts.dialer)
            acceptor = Self.tls(contexts.acceptor)
        } else {
            let protocolName = try ProtocolName(name)
            func makeKey() throws -> IdentityKey {
                try .generate(curve: protocolName.curve, hash: protocolName.hash)
            }
            let (first, second) = try (makeKey(), makeKey())
            dialer = try Self.noise(name, first, peer: second)
            acceptor = try Self.noise(name, second, peer: first)
        }
    }

    private static func noise(
        _ name: String, _ key: IdentityKey, peer: IdentityKey
    ) throws -> ChannelConfiguration {
        var configuration = ChannelConfiguration(
            identity: key,
            trust: .pinned([try PeerKey(publicKey: peer.publicKey, curve: peer.keyPair.curve)]))
        configuration.protocols = [name]
        configuration.allowsExposedIdentity = true
        return configuration
    }

    private static func tls(_ context: TLSContext) -> ChannelConfiguration {
        var configuration = ChannelConfiguration(identity: nil, trust: .authority())
        configuration.protocols = [TLSContext.protocolName]
        configuration.tls = context
        return configuration
    }
}
