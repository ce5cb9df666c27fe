internal import BLESec
internal import BLESecToolKit

/// `blesec ca revoke DIR SERIAL`
enum AuthorityRevokeCommand {
    static let command = Command(
        name: "blesec ca revoke", summary: "revoke a device's certificate",
        operands: ["DIR", "SERIAL|FILE"],
        options: AuthorityOptions.key,
        description: [
            "Puts a certificate of the authority in DIR on its revocation list, DIR/ca.crl, by its "
                + "serial number or by its file. It takes effect where the new list gets to: copy "
                + "it, in one step, over the file that a device was given with --revoked.",
            "Hexadecimal digits alone are a serial number, as `blesec ca list` prints it, with or "
                + "without colons; a file of such a name is ./FILE. A certificate stays revoked, and "
                + "revoking it again changes nothing.",
            "Three lines are printed: the serial number, the URI, and when it was revoked.",
        ],
        examples: [
            "blesec ca revoke ~/ca 5F0A1B2C3D4E5F60": "By its number.",
            "blesec ca revoke ~/ca lamp.pem": "By its file.",
        ],
        statuses: [
            .success, .usage, .badData, .noInput, .software, .cannotCreate, .inputOutput, .timedOut,
            .protocolError, .untrusted,
        ], run: run)

    private static func run(_ arguments: Arguments) throws(ChannelError) {
        let passphrase = try IdentityOptions.requiredPassphrase(arguments)
        let now = AuthorityOptions.now
        let revoked = try CertificateAuthority(arguments.operands[0]).revoke(
            CertificateAuthority.Revoked(arguments.operands[1]), passphrase: passphrase, now: now)
        try StandardOutput.print(
            [
                ("serial", revoked.serial.description), ("uri", revoked.uri),
                ("revoked", IssuedCertificate.text(revoked.revocation ?? now)),
            ])
    }
}
