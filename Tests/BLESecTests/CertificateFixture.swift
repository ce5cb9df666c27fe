import BLESecPrimitives
import BLESecTLSEngine
import TestSupport
import Testing

@testable import BLESec

/// Two devices with certificates of one authority, and Noise keys that pin each other.
struct CertificateFixture {
    static let tls = TLSContext.protocolName
    static let noise = ChannelConfiguration.defaultProtocol

    /// Made only once, because making it runs several processes.
    private static let first = Result { try CertificateFixture() }

    static func shared() throws -> CertificateFixture { try first.get() }

    let authority: TestAuthority
    let pinned: PinnedPeers
    let dialer: TLSContext
    let acceptor: TLSContext

    init() throws {
        authority = try TestAuthority()
        pinned = try PinnedPeers()
        dialer = try authority.device("dialer")
        acceptor = try authority.device("acceptor")
    }

    func configuration(_ role: ChannelRole, _ protocols: [String] = [tls]) throws
        -> ChannelConfiguration
    {
        var configuration = try pinned.configuration(role, protocols)
        configuration.tls = role == .dialer ? dialer : acceptor
        configuration.certificateTrust = .authority()
        return configuration
    }

    func configurations(
        dialer: [String] = [tls], acceptor: [String] = [tls]
    ) throws -> (dialer: ChannelConfiguration, acceptor: ChannelConfiguration) {
        try (configuration(.dialer, dialer), configuration(.acceptor, acceptor))
    }

    func pair(dialer: [String] = [tls], acceptor: [String] = [tls]) throws -> MachinePair {
        try MachinePair(
            dialer: configuration(.dialer, dialer), acceptor: configuration(.acceptor, acceptor))
    }
}

extension MachinePair {
    var isReady: Bool { dialer.isReady && acceptor.isReady }
}
