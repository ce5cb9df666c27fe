internal import BLESec
internal import BLESecToolKit

/// `blesec pubkey FILE`
enum PubkeyCommand {
    static let command = Command(
        name: "blesec pubkey", summary: "print the public key and the fingerprint of an identity",
        operands: ["FILE"],
        options: IdentityOptions.all + [.json],
        description: [
            "Reads the private key in FILE and prints the same three lines as `blesec keygen`: "
                + "`public-key:`, `noise-hash:` and `fingerprint:`.",
            "FILE is an X25519 or X448 key in PKCS#8 and PEM form, made by `blesec keygen` or by "
                + "`openssl genpkey`. Only the file's owner may have permission to open FILE.",
        ],
        examples: [
            "blesec pubkey key": "Print the three lines.",
            "blesec pubkey key | sed -n 's/^fingerprint: //p'":
                "Print the fingerprint alone, to read it out to the owner of the peer.",
        ],
        statuses: [.success, .usage, .badData, .noInput, .inputOutput, .untrusted], run: run)

    private static func run(_ arguments: Arguments) throws(ChannelError) {
        try IdentityOptions.print(try IdentityOptions.load(arguments.operands[0], arguments))
    }
}
