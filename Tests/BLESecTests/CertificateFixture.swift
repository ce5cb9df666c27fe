import BLESecPrimitives
import BLESecTLSEngine
import TestSupport
import Testing

@testable import BLESec

/// Two devices with certificates of one authority. With Noise, each pins the other's key.
struct CertificateFixture {
    /// The protocol name of TLS.
    static let tls = TLSContext.protocolName
    /// The name of the default Noise protocol.
    static let noise = ChannelConfiguration.defaultProtocol

    /// The fixture that all tests share, because making one runs several processes.
    static func shared() throws -> CertificateFixture { try sharedResult.get() }

    private static let sharedResult = Result { try CertificateFixture() }

    let authority: TestAuthority
    let pinned: PinnedPeers
    /// The TLS contexts, each with its device's certificate.
    let dialer: TLSContext
    let acceptor: TLSContext

    init() throws {
        authority = try TestAuthority()
        pinned = try PinnedPeers()
        dialer = try authority.context("dialer")
        acceptor = try authority.context("acceptor")
    }

    /// One side's configuration. It has a certificate and a Noise key; `protocols` says which
    /// protocols may be used.
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
    /// Whether both sides are ready.
    var isReady: Bool { dialer.isReady && acceptor.isReady }
}
