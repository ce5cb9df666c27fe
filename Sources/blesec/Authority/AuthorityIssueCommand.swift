internal import BLESec
internal import BLESecToolKit

/// `blesec ca issue DIR`
enum AuthorityIssueCommand {
    private static let standardDays = 365

    private static let uri = Option(
        name: "--uri", value: "URI",
        help: "The device's name: a URI of any scheme and of at most \(SubjectURI.maximumLength) "
            + "bytes, such as blesec://devices/lamp. Peers compare the URI byte by byte.")
    private static let days = Option(
        name: "--days", value: "N",
        help: "The number of days that the certificate is valid. The default is \(standardDays). "
            + "An authority cannot issue a certificate that lasts longer than the authority "
            + "itself.")
    private static let key = Option(
        name: "--key", value: "FILE",
        help: "Certify the key in FILE, a public key or a private one: Ed25519, Ed448, P-256, "
            + "P-384, P-521 or RSA. By default a new Ed25519 key is made.")
    private static let out = Option(
        name: "--out", value: "PREFIX",
        help: "Write the certificate to PREFIX.pem and, if a new key is made, the private key to "
            + "PREFIX.key. Existing files are never overwritten.")

    static let command = Command(
        name: "blesec ca issue", summary: "issue a certificate to a device", operands: ["DIR"],
        options: [uri, days, key, out] + AuthorityOptions.usingKey,
        description: [
            "Issues a certificate with the authority in DIR, for a device that dials and listens. "
                + "The certificate is valid from one hour before now, since the clock of a device "
                + "may be slow. On the device, pass --certificate PREFIX.pem, and the private key "
                + "with --key, to the command that connects or listens.",
            "Prints four lines: the serial number, by which the certificate can be revoked; the "
                + "URI; the fingerprint of the device's key; and when the certificate expires. The "
                + "authority keeps a copy of the certificate.",
            "A private key need not leave its device. Make the key on the device, with `openssl "
                + "genpkey -algorithm ed25519`. Then give the public half of the key, which "
                + "`openssl pkey -pubout` prints, to --key.",
        ],
        examples: [
            "blesec ca issue ~/ca --uri blesec://devices/lamp --out lamp":
                "Issue a certificate for a year, with a new key.",
            "blesec ca issue ~/ca --uri spiffe://home/door --key door.pub --out door":
                "Issue a certificate for a key that the device has made.",
        ],
        statuses: AuthorityOptions.statuses, run: run)

    private static func run(_ arguments: Arguments) throws(ChannelError) {
        for (option, meaning) in [(uri, "the device's name"), (out, "the output path")]
        where !arguments.has(option) {
            throw arguments.usage("\(meaning) is missing: \(option.usage)")
        }
        let subject = try SubjectURI(arguments.value(uri) ?? "")
        let days = try AuthorityOptions.days(days, arguments, standard: standardDays)
        let passphrase = try IdentityOptions.passphraseOfExistingKey(arguments)
        let authority = try CertificateAuthority(arguments.operands[0])
        let issued = try authority.issue(
            subject, days: days, key: arguments.value(key), to: arguments.value(out) ?? "",
            passphrase: passphrase, now: AuthorityOptions.now)
        try StandardOutput.print(
            [
                ("serial", issued.serial.description), ("uri", issued.uri),
                ("fingerprint", issued.fingerprint.description),
                ("expires", IssuedCertificate.timeText(issued.validity.upperBound)),
            ])
    }
}
