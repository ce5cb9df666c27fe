internal import BLESec
internal import BLESecToolKit

/// `blesec ca init DIR`
enum AuthorityInitCommand {
    /// Ten years, leap days included.
    private static let standardDays = 3_652

    private static let name = Option(
        name: "--name", value: "NAME",
        help: "The authority's name. Devices find their authority by this name, so no other "
            + "authority should have the same name. The default is `blesec`, a space and "
            + "eight random hexadecimal digits. Every full handshake carries the name twice, so a "
            + "short name is better.")
    private static let days = Option(
        name: "--days", value: "N",
        help: "The number of days that the authority lasts. The default is \(standardDays), which "
            + "is ten years.")

    static let command = Command(
        name: "blesec ca init", summary: "make an authority", operands: ["DIR"],
        options: [name, days] + AuthorityOptions.usingKey,
        description: [
            "Makes an authority with an Ed25519 key in DIR. DIR is a new directory, or an empty "
                + "one. From then on, only the user who made the authority may enter DIR. No file "
                + "is ever overwritten.",
            "DIR/ca.pem is the authority's certificate. Copy it to every device, for --authority. "
                + "DIR/ca.crl is the list of what the authority has revoked, which is empty at "
                + "first. Copy it to every device too, for --revoked. DIR/ca.key is the "
                + "authority's private key, which never leaves DIR: anyone who has this key can "
                + "pass for any device. With a passphrase, the key is encrypted with AES-256, "
                + "under a key that scrypt derives from the passphrase.",
            "Prints the fingerprint of the authority's key, the paths of ca.pem and ca.crl, and "
                + "when the authority expires.",
        ],
        examples: [
            "blesec ca init --passphrase-prompt ~/ca":
                "Make an authority with a passphrase on its key.",
            "blesec ca init --name 'Greenhouse' ~/ca":
                "Make an authority with a name of your own.",
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
                ("authority", authority.certificatePath), ("revoked", authority.revocationListPath),
                ("expires", IssuedCertificate.timeText(authority.expiry)),
            ])
    }
}
