internal import BLESec
internal import BLESecToolKit
internal import Glibc

/// The options of a channel over TLS: this side's certificate, and the authorities and URIs of
/// accepted peers.
enum CertificateOptions {
    static let certificate = Option(
        name: "--certificate", value: "FILE",
        help: "With TLS, identify this side by the certificate in FILE. The certificate's one URI "
            + "is the name of this side. Intermediate certificates may follow in FILE. `blesec ca "
            + "issue` makes such a file.")
    static let key = Option(
        name: "--key", value: "FILE",
        help: "The private key of --certificate, in PKCS#8 form. Only the file's owner may have "
            + "permission to open FILE.")
    static let authority = Option(
        name: "--authority", value: "FILE",
        help: "With TLS, accept only certificates of the authorities in FILE, such as the ca.pem "
            + "of `blesec ca`. Any device of these authorities is accepted, unless --peer or "
            + "--peer-uri names the devices to accept. Nobody else may have write access to FILE, "
            + "or to a directory above it.")
    static let revoked = Option(
        name: "--revoked", value: "FILE",
        help: "Refuse what the authorities have revoked. FILE has their revocation lists: it is "
            + "the ca.crl of `blesec ca`, or another such file. FILE is checked again for each "
            + "peer. While FILE cannot be read, or others can write to it, no peer is accepted.")
    static let peerURI = Option(
        name: "--peer-uri", value: "URI", isRepeatable: true,
        help: "Accept a peer whose certificate has this URI, with any key. The option needs "
            + "--authority. If it is given several times, or together with --peer, a peer that "
            + "matches any of these options is accepted.")

    /// All options, in the order of the manual pages.
    static let all = [certificate, key, authority, revoked, peerURI]

    /// Refuses an option that is given without the option that it needs.
    static func check(_ arguments: Arguments) throws(ChannelError) {
        try check(certificate, needs: key, arguments)
        try check(key, needs: certificate, arguments)
        try check(authority, needs: certificate, arguments)
        try check(revoked, needs: authority, arguments)
        try check(peerURI, needs: authority, arguments)
    }

    private static func check(
        _ option: Option, needs needed: Option, _ arguments: Arguments
    ) throws(ChannelError) {
        guard arguments.has(option), !arguments.has(needed) else { return }
        throw arguments.usage("\(option.name) goes with \(needed.usage)")
    }

    static func context(_ arguments: Arguments) throws(ChannelError) -> TLSContext {
        guard let path = arguments.value(certificate), let keyPath = arguments.value(key) else {
            throw arguments.usage(
                "\(TLSContext.protocolName) needs \(certificate.usage) and \(key.usage)")
        }
        let identity = try CertificateFile.identity(
            certificate: path, key: keyPath,
            passphrase: try IdentityOptions.passphraseOfExistingKey(arguments),
            now: Int64(time(nil)))
        guard let authorityPath = arguments.value(authority) else {
            return try TLSContext(identity: identity)
        }
        let authorities = try CertificateFile.authorities(authorityPath)
        let revocations = try arguments.value(revoked).map { path throws(ChannelError) in
            try RevocationFile(path, authorities: authorities)
        }
        return try TLSContext(identity: identity, authorities: authorities, revoked: revocations)
    }

    /// The peers to accept over TLS: those that match `keys` or `--peer-uri`. If both are empty,
    /// all peers that `--authority` certifies, or nil without `--authority`.
    static func policy(
        _ arguments: Arguments, keys: [PeerKey]
    ) throws(ChannelError) -> TrustPolicy? {
        let uris = try peerURIs(arguments)
        if uris.isEmpty {
            if !keys.isEmpty { return .pinned(keys) }
            return arguments.has(authority) ? .authority() : nil
        }
        guard !keys.isEmpty else { return .authority(uris: uris) }
        let fingerprints = Set(keys.map(\.fingerprint))
        return .anyone.requiring { [uris] claimed throws(ChannelError) in
            guard let key = claimed.fingerprint else {
                return .refuse("the peer has shown no certificate")
            }
            if fingerprints.contains(key) || claimed.uri.map(uris.contains) == true {
                return .admit
            }
            guard let uri = claimed.uri else {
                return .refuse(
                    "no authority vouches for a URI of the peer, and \(key) is not expected")
            }
            return .refuse("the peer is \(uri), its key is \(key), and neither is expected")
        }
    }

    /// Accepts only the peer with the key `remembered`, and only if that key is one of `keys`, or
    /// the peer's URI is one of `--peer-uri`, or neither kind of option is given.
    ///
    /// - Throws: `untrusted` if the options exclude that key, whatever the peer's URI is.
    static func policy(
        _ arguments: Arguments, _ keys: [PeerKey], remembered: PeerKey
    ) throws(ChannelError) -> TrustPolicy {
        let uris = try peerURIs(arguments)
        if let key = keys.first(where: { $0.fingerprint == remembered.fingerprint }) {
            return .pinned([key])
        }
        if keys.isEmpty, uris.isEmpty { return .pinned([remembered]) }
        guard !uris.isEmpty else {
            throw ChannelError(
                .untrusted,
                "the key that --remember names, \(remembered.fingerprint), is not among those of "
                    + "--peer: give another name, or the right --peer")
        }
        return .anyone.requiring { [uris] claimed throws(ChannelError) in
            guard claimed.fingerprint == remembered.fingerprint else {
                return .refuse("the peer's key is not the one that --remember names")
            }
            guard let uri = claimed.uri, uris.contains(uri) else {
                return .refuse("the peer is \(claimed.uri ?? "without a URI"), and not expected")
            }
            return .admit
        }
    }

    private static func peerURIs(_ arguments: Arguments) throws(ChannelError) -> Set<String> {
        var uris: Set<String> = []
        for text in arguments.values(peerURI) { uris.insert(try SubjectURI(text).text) }
        return uris
    }
}
