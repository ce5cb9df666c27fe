internal import BLESec
internal import BLESecPrimitives
internal import BLESecToolKit

/// `blesec keygen FILE`
enum KeygenCommand {
    private static let curve = Option(
        name: "--curve", value: "CURVE",
        help: "What the key is for: x25519 (the default, what most peers have) or x448.")
    private static let hash = Option(
        name: "--hash", value: "HASH",
        help: "The hash whose protocols may use the key, and no others: "
            + "\(HashAlgorithm.noiseNames). SHA256 is the default.")

    static let command = Command(
        name: "blesec keygen", summary: "make an identity and print what others need to know of it",
        operands: ["FILE"],
        options: IdentityOptions.all + [curve, hash, .json],
        description: [
            "Makes a new private key in FILE and prints two lines: `public-key:` with the raw "
                + "public key in base64, and `fingerprint:` with SHA256: and the base64 of its "
                + "digest. Either is what `blesec connect --peer` takes.",
            "FILE is PKCS#8 in PEM form, which `openssl pkey` reads, with mode 0600. A file that "
                + "exists is never overwritten. With a passphrase the key is encrypted with AES-256 "
                + "under scrypt.",
            "A key belongs to one hash (Noise, section 14), which a comment in the file names.",
        ],
        examples: [
            "blesec keygen ~/.config/blesec/key": "An identity without a passphrase.",
            "blesec keygen --passphrase-prompt key": "One that is asked for before each use.",
        ],
        statuses: [
            .success, .usage, .badData, .noInput, .software, .cannotCreate, .inputOutput,
        ], run: run)

    private static func run(_ arguments: Arguments) throws(ChannelError) {
        let curve = try arguments.choice(curve, of: [("x25519", Curve.x25519), ("x448", .x448)])
        let hash = try arguments.choice(hash, of: HashAlgorithm.allCases.map { ($0.noiseName, $0) })
        let passphrase = try IdentityOptions.passphrase(arguments)
        let identity = try IdentityKey.generate(curve: curve ?? .x25519, hash: hash ?? .sha256)
        try IdentityFile.create(arguments.operands[0], holding: identity, passphrase: passphrase)
        try IdentityOptions.print(identity)
    }
}
