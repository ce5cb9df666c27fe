public import BLESecChannelCore
internal import BLESecNoise
internal import BLESecPrimitives
internal import Glibc

/// A Noise identity in a file: a PKCS#8 PEM block that `openssl pkey` reads, mode 0600.
///
/// A comment before the block names the key's hash function (Noise §14), as in
/// `# noise-hash: SHA256`. Without the comment the hash function is SHA256. Programs that convert or
/// encrypt the key leave the comment out: for a hash other than SHA256, copy the comment.
public enum IdentityFile {
    /// The longest file that is read, in bytes.
    public static let maximumLength = 64 << 10
    /// The command that converts or encrypts a key, for error messages.
    static let conversion =
        "`openssl pkcs8 -topk8`, and copy the comment `# noise-hash: NAME`, if there is one, to the "
        + "new file"
    private static let plainLabel = "PRIVATE KEY"
    private static let encryptedLabel = "ENCRYPTED PRIVATE KEY"

    /// Reads an identity; `passphrase` is asked only when the key is encrypted.
    ///
    /// - Throws: `noSuchFile`; `permission` when the system denies access; `badKey` when other
    ///   users may open the file, or it is not a single X25519 or X448 private key, or the
    ///   passphrase is missing or wrong. The reason names the file.
    public static func load(
        _ path: String, passphrase: PassphraseSource? = nil
    ) throws(ChannelError) -> IdentityKey {
        let pem = try pem(path)
        // Not inside `withPathInErrors`: an error about the file that holds the passphrase must not
        // begin with `path`.
        var secret: SecretBytes?
        if pem.label == encryptedLabel, let passphrase {
            secret = try passphrase.passphrase(for: path, .opening)
        }
        return try withPathInErrors(path) { () throws(ChannelError) in
            let hash = try hash(in: pem)
            let key = try privateKey(pem, secret)
            do throws(CryptoError) {
                let pair = try DHKeyPair(curve: key.curve, privateKey: key.bytes)
                return IdentityKey(pair, hash: hash)
            } catch {
                throw .badKey("holds a key that cannot be used: \(error)")
            }
        }
    }

    /// Reads the identity in a file; if there is no file, makes an X25519 identity and writes it.
    ///
    /// If two programs do this at the same time, one writes the file, and both get the identity in it.
    ///
    /// - Throws: what ``load(_:passphrase:)`` and ``create(_:holding:passphrase:)`` throw.
    public static func loadOrCreate(
        _ path: String, passphrase: PassphraseSource? = nil
    ) throws(ChannelError) -> IdentityKey {
        do throws(ChannelError) {
            return try load(path, passphrase: passphrase)
        } catch {
            guard error.code == .noSuchFile else { throw error }
        }
        do throws(ChannelError) {
            let identity = try IdentityKey.generate()
            try create(path, holding: identity, passphrase: passphrase)
            return identity
        } catch {
            // The file exists by now. If another program has made it since the first `load`, this
            // `load` returns its identity. If the first `load` could not read an existing file, this
            // `load` throws again.
            guard error.code == .cannotCreate, error.underlying == .errno(EEXIST) else {
                throw error
            }
            return try load(path, passphrase: passphrase)
        }
    }

    /// Writes an identity to a new file; `passphrase` encrypts it (PBES2, scrypt, AES-256).
    ///
    /// On a file system with hard links, the file appears only when it is complete and on the disk.
    /// - Throws: `cannotCreate`, mainly when the file exists; what `passphrase` throws.
    public static func create(
        _ path: String, holding identity: IdentityKey, passphrase: PassphraseSource? = nil
    ) throws(ChannelError) {
        // `NewFile.create` checks this too, but only after a user has typed a passphrase.
        try NewFile.refuseIfPresent(path)
        let curve = identity.keyPair.curve
        let plain = identity.keyPair.withPrivateKey { PrivateKeyInfo.encode($0, curve: curve) }
        let preamble = "# noise-hash: \(identity.hash.noiseName)\n"
        let text = try pemText(plain, for: path, passphrase: passphrase, preamble: preamble)
        try NewFile.create(path, text.span)
    }

    /// Makes the missing directories above a new identity's file, with mode 0700, if the nearest
    /// existing directory belongs to this user. Refuses a directory in which ``load(_:passphrase:)``
    /// would refuse the file, and a path that can only name a directory.
    ///
    /// - Throws: `cannotCreate`; `badKey` as ``load(_:passphrase:)`` does.
    package static func prepareDirectory(of path: String) throws(ChannelError) {
        guard !["", ".", ".."].contains(NewFile.name(of: path)) else {
            throw ChannelError(
                .cannotCreate,
                "\(path) is the path of a folder, and not of a file: add a name for the file")
        }
        try NewFile.makeDirectories(above: path)
        try TrustedFile.requireTrustedDirectory(of: path)
    }

    /// The PEM form of a PrivateKeyInfo for the file at `path`, encrypted if there is a passphrase.
    static func pemText(
        _ info: borrowing SecretBytes, for path: String, passphrase: PassphraseSource?,
        preamble: String = ""
    ) throws(ChannelError) -> SecretBytes {
        guard let passphrase else {
            return PEM.encode(info.span, label: plainLabel, preamble: preamble)
        }
        let secret = try passphrase.passphrase(for: path, .protecting)
        let encrypted = try PrivateKeyInfo.encrypt(info.span, passphrase: secret)
        return PEM.encode(encrypted.span, label: encryptedLabel, preamble: preamble)
    }

    /// The PKCS#8 form of the private key that is the only block of a PEM file. The key may be of
    /// any algorithm.
    static func privateKeyInfo(
        _ path: String, passphrase source: PassphraseSource?
    ) throws(ChannelError) -> SecretBytes {
        let pem = try pem(path)
        switch pem.label {
        case plainLabel: return SecretBytes(copying: pem.content.span)
        case encryptedLabel:
            guard let source else {
                throw .badKey("\(path) is encrypted, and no passphrase was given")
            }
            let passphrase = try source.passphrase(for: path, .opening)
            return try withPathInErrors(path) { () throws(ChannelError) in
                try PrivateKeyInfo.decryptedDER(pem.content.span, passphrase: passphrase)
            }
        default:
            throw .badKey(
                "\(path) holds \(pem.label), not a PKCS#8 private key: convert a key with "
                    + conversion)
        }
    }

    private static func pem(_ path: String) throws(ChannelError) -> PEM {
        let text = try SecretFile.read(path, limit: maximumLength)
        do throws(PEM.Fault) {
            return try PEM(text.span)
        } catch {
            throw .badKey("\(path) \(reason(error))")
        }
    }

    private static func privateKey(
        _ pem: borrowing PEM, _ passphrase: borrowing SecretBytes?
    ) throws(ChannelError) -> PrivateKeyInfo.Key {
        switch pem.label {
        case plainLabel: return try PrivateKeyInfo.decode(pem.content.span)
        case encryptedLabel:
            switch passphrase {
            case .some(let passphrase):
                return try PrivateKeyInfo.decrypt(pem.content.span, passphrase: passphrase)
            case nil: throw .badKey("is encrypted, and no passphrase was given")
            }
        case "PUBLIC KEY":
            throw .badKey("holds a public key: the private key of an identity is wanted here")
        case "CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE":
            throw .badKey("holds a certificate: the private key of an identity is wanted here")
        case let label where label.hasSuffix("PRIVATE KEY"):
            throw .badKey(
                "holds \(label), not PKCS#8: an identity is an X25519 or X448 key, made with "
                    + "`blesec keygen`")
        case let label:
            throw .badKey("holds \(label): the private key of an identity is wanted here")
        }
    }

    private static func hash(in pem: borrowing PEM) throws(ChannelError) -> HashAlgorithm {
        var found: HashAlgorithm?
        for line in pem.preamble {
            guard let name = hashName(in: line) else {
                try refuseHash(in: line)
                continue
            }
            guard let hash = HashAlgorithm(noiseName: name) else {
                throw .badKey(
                    "names an unknown hash, `\(name)`: noise-hash is \(HashAlgorithm.noiseNames)")
            }
            guard found == nil else { throw .badKey("names its noise-hash twice") }
            found = hash
        }
        for line in pem.epilogue { try refuseHash(in: line) }
        return found ?? .sha256
    }

    /// The name in a comment that names the hash; nil for any other line.
    private static func hashName(in line: String) -> String? {
        guard line.first == "#" else { return nil }
        let parts = line.dropFirst().split(separator: ":", maxSplits: 1)
        guard let field = parts.first, field.trimmed == "noise-hash" else { return nil }
        return parts.count > 1 ? parts[1].trimmed : ""
    }

    /// Refuses a line that mentions noise-hash but is not read as the comment that names the hash. If
    /// the line were ignored, the key could be used with a wrong hash, and peers could not be reached.
    private static func refuseHash(in line: String) throws(ChannelError) {
        guard line.lowercased().contains("noise-hash") else { return }
        throw .badKey(
            "has a line about noise-hash that is not read: write `# noise-hash: NAME` in a line "
                + "before the key, with nothing before the #")
    }

    private static func reason(_ fault: PEM.Fault) -> String {
        switch fault {
        case .noBlock:
            "is not a PEM file: a key begins with -----BEGIN PRIVATE KEY-----, as `blesec keygen` "
                + "writes it"
        case .severalBlocks: "holds more than one PEM block: an identity is one private key alone"
        case .noEnd: "is cut off: its PEM block has no end"
        case .headers:
            "holds a PEM block with headers, which is not PKCS#8: convert it with \(conversion)"
        case .notBase64: "is damaged: its PEM block is not base64"
        }
    }
}

extension Substring {
    /// The text without blanks at both ends.
    fileprivate var trimmed: String {
        let end = lastIndex { !$0.isWhitespace }
        return end.map { String(self[...$0].drop(while: \.isWhitespace)) } ?? ""
    }
}
