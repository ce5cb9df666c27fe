internal import BLESec
internal import BLESecToolKit

/// `blesec pubkey FILE`
enum PubkeyCommand {
    static let command = Command(
        name: "blesec pubkey", summary: "print what others need to know of an identity",
        operands: ["FILE"],
        options: IdentityOptions.all + [.json],
        description: [
            "Reads the private key in FILE and prints the same two lines as `blesec keygen` did: "
                + "`public-key:` and `fingerprint:`.",
            "FILE is an X25519 or X448 key in PKCS#8 and PEM form, made by `blesec keygen` or by "
                + "`openssl genpkey`, that nobody but its owner can open.",
        ],
        examples: [
            "blesec pubkey key": "Both lines.",
            "blesec pubkey key | sed -n 's/^fingerprint: //p'":
                "The fingerprint alone, to be read out to the peer's owner.",
        ],
        statuses: [.success, .usage, .badData, .noInput, .inputOutput, .untrusted], run: run)

    private static func run(_ arguments: Arguments) throws(ChannelError) {
        try IdentityOptions.print(try IdentityOptions.load(arguments.operands[0], arguments))
    }
}
