internal import BLESecChannelCore
@testable internal import BLESecCredentials
internal import BLESecPrimitives
@testable internal import BLESecTLSEngine
internal import CBLESecOpenSSL

extension FuzzTarget {
    /// Certificates and revocation lists: the fuzzer's bytes as they are, and the same bytes with a
    /// trusted authority's signature, as a faulty issuer could make them.
    static let certificate = FuzzTarget(name: "certificate") { input in
        var script = Script(input)
        let kind = script.number(below: 6)
        let bytes = script.takeRest()
        switch kind {
        case 0: read(bytes)
        case 1: evaluateTrust(bytes)
        case 2: evaluateTrust(Devices.signed(bytes))
        case 3: readList(bytes)
        case 4: readList(Devices.signed(bytes))
        default:
            if let authorities = try? CertificateAuthorities([Devices.signed(bytes)]) {
                let lists = [Devices.signedRevocations]
                _ = try? RevocationList(lists: lists, authorities: authorities)
            }
            _ = try? TLSIdentity(
                certificate: Devices.signed(bytes), privateKey: Devices.keyInfo(.dialer),
                now: Devices.now)
        }
    } seeds: {
        let unsigned = Devices.unsignedCertificate(.dialer)
        let signed = Devices.signed(unsigned)
        precondition(
            evaluateTrust(signed) == 2, "a valid certificate is not accepted for both roles")
        return [
            [0] + signed, [1] + signed, [2] + unsigned,
            [2] + Devices.unsignedCertificate(.acceptor), [0] + Devices.authority,
            [1] + Devices.authority, [2] + Devices.unsignedAuthority,
            [3] + Devices.signedRevocations, [4] + Devices.unsignedRevocations, [5] + unsigned,
            [5] + Devices.unsignedAuthority,
        ]
    }

    private static func read(_ der: [UInt8]) {
        guard let certificate = try? Certificate(der: der) else { return }
        query(certificate)
    }

    /// Reads every property that ``Certificate`` has, and checks the URIs.
    private static func query(_ certificate: Certificate) {
        let uris = certificate.uris ?? []
        precondition(uris.allSatisfy { $0.utf8.allSatisfy { (0x21...0x7E).contains($0) } })
        _ = certificate.subjectPublicKeyInfo
        _ = certificate.isAuthority
        _ = certificate.maySign
        _ = certificate.extendedUsage(allows: .dialer)
        _ = certificate.invalidity(at: Devices.now)
        _ = certificate.serial?.description
        _ = certificate.subjectName
        _ = certificate.validity
        _ = must { try Certificate(der: Devices.authority) }.isIssued(by: certificate)
        if let issued = try? IssuedCertificate(certificate) {
            _ = IssuedCertificate.timeText(issued.validity.upperBound)
        }
    }

    private static func readList(_ der: [UInt8]) {
        guard let list = try? RevocationList(lists: [der], authorities: Devices.authorities) else {
            return
        }
        _ = try? list.current(at: Devices.now)
    }

    /// Checks a certificate as a handshake does. Returns in how many of the two roles the holder of
    /// the certificate is accepted.
    @discardableResult
    private static func evaluateTrust(_ der: [UInt8]) -> Int {
        guard let certificate = try? Certificate(der: der) else { return 0 }
        query(certificate)
        var acceptedRoleCount = 0
        for role in [ChannelRole.dialer, .acceptor] {
            let store = unsafe X509_STORE_new()
            defer { unsafe X509_STORE_free(store) }
            let context = unsafe X509_STORE_CTX_new()
            defer { unsafe X509_STORE_CTX_free(context) }
            let authority = must { try Certificate(der: Devices.authority) }
            guard let store = unsafe store, let context = unsafe context,
                unsafe X509_STORE_add_cert(store, authority.pointer) == 1,
                unsafe X509_STORE_CTX_init(context, store, certificate.pointer, nil) == 1
            else { fatalError("OpenSSL cannot make a certificate store") }
            let purpose = role == .dialer ? "ssl_client" : "ssl_server"
            unsafe X509_STORE_CTX_set_default(context, purpose)
            unsafe X509_VERIFY_PARAM_set_auth_level(X509_STORE_CTX_get0_param(context), 2)
            let peer = PeerCertificate(context: Devices.tls(role.peer), role: role)
            guard let identity = unsafe try? peer.evaluateTrust(context) else { continue }
            guard case .certificate(let key, let uri?) = identity else {
                fatalError("an accepted certificate has no URI")
            }
            precondition(certificate.uris == [uri])
            precondition(key == certificate.subjectPublicKeyInfo)
            precondition(certificate.invalidity(at: Devices.now) == nil && !certificate.isAuthority)
            acceptedRoleCount += 1
        }
        return acceptedRoleCount
    }
}
