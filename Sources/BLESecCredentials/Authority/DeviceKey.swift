internal import BLESecChannelCore
internal import BLESecPrimitives
internal import BLESecTLSEngine
internal import CBLESecOpenSSL
internal import Glibc

/// Reads a device's public key, from a file with either the public or the private key.
enum DeviceKey {
    private static let privateLabel = "PRIVATE KEY"

    /// The DER SubjectPublicKeyInfo of the key in a PEM file.
    ///
    /// - Throws: `noSuchFile`; `permission`; `badKey`, also for a key that cannot sign in TLS 1.3.
    ///   The reason names the file.
    static func subjectPublicKeyInfo(_ path: String) throws(ChannelError) -> [UInt8] {
        let pem = try pem(path)
        if pem.label == privateLabel {
            // The second read checks that nobody else can read the private key's file.
            _ = try SecretFile.read(path, limit: IdentityFile.maximumLength)
        }
        return try withPathInErrors(path) { () throws(ChannelError) in
            try subjectPublicKeyInfo(of: pem, in: path)
        }
    }

    private static func pem(_ path: String) throws(ChannelError) -> PEM {
        let text = try SecretFile.read(
            path, limit: IdentityFile.maximumLength, othersMayRead: true)
        do throws(PEM.Fault) {
            return try PEM(text.span)
        } catch {
            throw .badKey(
                "\(path) is not one key in PEM form: make one with `openssl genpkey -algorithm "
                    + "ed25519`")
        }
    }

    /// The SubjectPublicKeyInfo of the key in a PEM block of the file at `path`.
    private static func subjectPublicKeyInfo(
        of pem: borrowing PEM, in path: String
    ) throws(ChannelError) -> [UInt8] {
        let key: OpaquePointer?
        OpenSSLError.clear()
        switch pem.label {
        case "PUBLIC KEY":
            unsafe key = pem.content.withUnsafeBytes { bytes in
                var position = bytes.baseAddress
                return unsafe d2i_PUBKEY(nil, &position, bytes.count)
            }
        case privateLabel:
            unsafe key = DERForm.privateKey(pem.content)
        default:
            let command = publicKeyCommand(pem.label, path.shellWord)
            throw .badKey(
                "holds \(pem.label): give the public key alone, which `openssl \(command)` prints")
        }
        guard let key = unsafe key else { throw .openSSL(.badKey, "holds a damaged key") }
        defer { unsafe EVP_PKEY_free(key) }
        try unsafe requireSigning(key)
        let info = unsafe DERForm.bytes { unsafe i2d_PUBKEY(key, $0) }
        guard CanonicalKey.matches(info) else {
            throw .badKey("holds a key that is \(CanonicalKey.unusualEncodingReason)")
        }
        return info
    }

    /// The command of `openssl` that prints the public key in a file with this label. `path` is a
    /// word of the shell.
    private static func publicKeyCommand(_ label: String, _ path: String) -> String {
        switch label {
        case "CERTIFICATE", "TRUSTED CERTIFICATE": "x509 -in \(path) -noout -pubkey"
        case "CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST": "req -in \(path) -noout -pubkey"
        case "RSA PUBLIC KEY": "pkey -pubin -in \(path) -pubout"
        default: "pkey -in \(path) -pubout"
        }
    }

    /// Throws unless TLS 1.3 has a signature scheme for the key, and peers accept its strength.
    private static func requireSigning(_ key: OpaquePointer) throws(ChannelError) {
        let hasSignatureScheme =
            switch unsafe EVP_PKEY_get_id(key) {
            case EVP_PKEY_ED25519, EVP_PKEY_ED448, EVP_PKEY_RSA: true
            case EVP_PKEY_EC:
                ["prime256v1", "secp384r1", "secp521r1"].contains(unsafe group(of: key))
            default: false
            }
        guard hasSignatureScheme else {
            throw .badKey(
                "holds a key that TLS 1.3 cannot sign with: use Ed25519, Ed448, P-256, P-384, P-521 "
                    + "or RSA")
        }
        guard unsafe KeyStrength.isAccepted(key) else {
            throw .badKey("holds a key that is \(KeyStrength.reason)")
        }
    }

    private static func group(of key: OpaquePointer) -> String {
        var name = [CChar](repeating: 0, count: 64)
        guard unsafe EVP_PKEY_get_group_name(key, &name, name.count, nil) == 1 else { return "" }
        let bytes = name.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }
        return String(decoding: bytes, as: UTF8.self)
    }
}
