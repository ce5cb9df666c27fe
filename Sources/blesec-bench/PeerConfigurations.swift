internal import BLESec
internal import BLESecNoise
internal import BLESecPrimitives
internal import BLESecTLSEngine

/// The configurations of two ends that have each other's keys, so that any engine can run between
/// them.
struct PeerConfigurations: Sendable {
    let dialer: ChannelConfiguration
    let acceptor: ChannelConfiguration

    /// Two ends that offer one protocol: a Noise protocol, with each other's keys, or TLS with a
    /// common authority.
    init(_ name: String) throws {
        guard name == TLSContext.protocolName else {
            let known = try ProtocolName(name)
            let keys = try (0..<2).map { _ in
                try IdentityKey.generate(curve: known.curve, hash: known.hash)
            }
            dialer = try Self.noise(name, keys[0], peer: keys[1])
            acceptor = try Self.noise(name, keys[1], peer: keys[0])
            return
        }
        let company = try BenchCompany.shared()
        dialer = Self.tls(company.context(.dialer))
        acceptor = Self.tls(company.context(.acceptor))
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
