internal import BLESecCredentials
public import BLESecTLSEngine
internal import Glibc

extension TestAuthority {
    /// The time in seconds since 1970.
    public static var now: Int64 { Int64(time(nil)) }

    /// The identity in `NAME.pem` and `NAME.key`, with the intermediates in `CHAIN.pem` if `chain`
    /// is given.
    public func identity(
        _ name: String, chain: String? = nil, at now: Int64 = now
    ) throws -> TLSIdentity {
        try CertificateFile.identity(
            certificate: folder.file("\(name).pem"), key: folder.file("\(name).key"),
            intermediates: chain.map { folder.file("\($0).pem") }, now: now)
    }

    /// The authority's certificate, loaded as devices load it to check their peers.
    public func authorities() throws -> CertificateAuthorities {
        try CertificateFile.authorities(certificatePath)
    }

    /// Issues a certificate for a device of this name, and returns the device's TLS context. The
    /// context accepts every peer that has a certificate of this authority and is not in `revoked`.
    public func context(
        _ name: String, revoked: (any RevocationSource)? = nil, options: TLSOptions = TLSOptions()
    ) throws -> TLSContext {
        try issueDevice(name)
        return try TLSContext(
            identity: identity(name), authorities: authorities(), revoked: revoked,
            options: options)
    }

    /// Makes a self-signed certificate for a device of this name, and returns the device's TLS
    /// context. The context accepts every peer.
    public func selfSignedContext(_ name: String) throws -> TLSContext {
        try selfSign(name, Self.deviceExtensions(name))
        return try TLSContext(identity: identity(name))
    }
}
