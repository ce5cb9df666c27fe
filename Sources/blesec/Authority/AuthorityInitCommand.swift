internal import BLESec
internal import BLESecToolKit

/// `blesec ca init DIR`
enum AuthorityInitCommand {
    /// Ten years, leap days included.
    private static let standardDays = 3_652

    private static let name = Option(
        name: "--name", value: "NAME",
        help: "The authority's name, which no other should have: devices find their authority by "
            + "it. Without it: blesec and eight random digits. Every handshake carries it twice.")
    private static let days = Option(
        name: "--days", value: "N",
        help: "How many days the authority lasts: \(standardDays), which is ten years, without it.")

    static let command = Command(
        name: "blesec ca init", summary: "make an authority", operands: ["DIR"],
        options: [name, days] + AuthorityOptions.key,
        description: [
            "Makes an authority with an Ed25519 key in DIR, which is new or empty and is closed to "
                + "everybody else. Nothing is ever overwritten.",
            "DIR/ca.pem is its certificate, and goes to every device, for --authority. DIR/ca.crl "
                + "is the list of what it has revoked, nothing so far, and goes to every device as "
                + "well, for --revoked. DIR/ca.key is its private key, which never leaves DIR: who "
                + "has it can pass for any device. With a passphrase it is encrypted with AES-256 "
                + "under scrypt.",
            "The fingerprint of the key and where the two files are is printed.",
        ],
        examples: [
            "blesec ca init --passphrase-prompt ~/ca": "With a passphrase on the key.",
            "blesec ca init --name 'Greenhouse' ~/ca": "With a name of your own.",
        ],
        statuses: AuthorityOptions.statuses, run: run)

    private static func run(_ arguments: Arguments) throws(ChannelError) {
        let authority = try CertificateAuthority.create(
            arguments.operands[0], name: arguments.value(name),
            days: try AuthorityOptions.days(days, arguments, standard: standardDays),
            passphrase: try IdentityOptions.passphrase(arguments), now: AuthorityOptions.now)
        try StandardOutput.print(
            [
                ("fingerprint", authority.fingerprint.description),
                ("authority", authority.certificatePath), ("revoked", authority.revokedPath),
                ("expires", IssuedCertificate.text(authority.expiry)),
            ])
    }
}
