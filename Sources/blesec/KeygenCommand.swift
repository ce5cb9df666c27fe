internal import BLESec
internal import BLESecPrimitives
internal import BLESecToolKit

/// `blesec keygen FILE`
enum KeygenCommand {
    private static let curve = Option(
        name: "--curve", value: "CURVE", completion: .words(["x25519", "x448"]),
        help: "The curve of the key: x25519 (the default, which most peers have) or x448.")
    private static let hash = Option(
        name: "--hash", value: "HASH", completion: .words(HashAlgorithm.allCases.map(\.noiseName)),
        help: "The hash of the key: \(HashAlgorithm.noiseNames). Only protocols with this hash may "
            + "use the key. The default is SHA256.")

    static let command = Command(
        name: "blesec keygen",
        summary: "make an identity, and print its public key and fingerprint",
        operands: ["FILE"],
        options: IdentityOptions.all + [curve, hash, .json],
        description: [
            "Makes a new private key in FILE and prints three lines: `public-key:` with the raw "
                + "public key in base64, `noise-hash:` with the hash that the key is used with, and "
                + "`fingerprint:` with SHA256: and the base64 of the public key's digest. `blesec "
                + "connect --peer` takes the public key or the fingerprint.",
            "FILE is in PKCS#8 and PEM form, which `openssl pkey` reads, and has mode 0600. An "
                + "existing file is never overwritten. With a passphrase, the key is encrypted "
                + "with AES-256, under a key that scrypt derives from the passphrase.",
            "The folder of FILE is made if it is missing, with mode 0700. A folder that others can "
                + "change is refused, since commands that use the key refuse it too.",
            "On standard error, the last lines say what to type on the other side. With --json they "
                + "are left out.",
            "A key is used with one hash only (Noise, section 14). A comment in the file names "
                + "the hash. Programs that convert or encrypt the key, such as `openssl pkcs8`, "
                + "leave the comment out: copy it to the new file, above the key. Without the "
                + "comment, the hash is SHA256.",
        ],
        examples: [
            "blesec keygen ~/.config/blesec/key": "Make an identity without a passphrase.",
            "blesec keygen --passphrase-prompt key":
                "Make an identity with a passphrase, which is asked for before each use.",
        ],
        statuses: [
            .success, .usage, .badData, .noInput, .software, .cannotCreate, .inputOutput,
            .untrusted,
        ], run: run)

    private static func run(_ arguments: Arguments) throws(ChannelError) {
        let curve = try arguments.choice(curve, of: [("x25519", Curve.x25519), ("x448", .x448)])
        let hash = try arguments.choice(hash, of: HashAlgorithm.allCases.map { ($0.noiseName, $0) })
        let passphrase = try IdentityOptions.passphrase(arguments)
        let path = arguments.operands[0]
        try IdentityFile.prepareDirectory(of: path)
        let identity = try IdentityKey.generate(curve: curve ?? .x25519, hash: hash ?? .sha256)
        try IdentityFile.create(path, holding: identity, passphrase: passphrase)
        try IdentityOptions.print(identity)
        if !Diagnostics.isJSON { printNextCommands(identity.fingerprint.description) }
    }

    /// Prints the commands to type on the other side.
    private static func printNextCommands(_ fingerprint: String) {
        for line in [
            "On the other side, with a key of its own, type one of:",
            "  blesec listen l2cap:any --identity KEY --peer \(fingerprint)",
            "  blesec connect ENDPOINT --identity KEY --peer \(fingerprint)",
            "Or pair without fingerprints: type `blesec pair --name NAME` here, and `blesec pair "
                + "--name NAME --code DIGITS` on the other side.",
        ] { Diagnostics.note(line, "next") }
    }
}
