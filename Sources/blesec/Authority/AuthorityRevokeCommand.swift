internal import BLESec
internal import BLESecToolKit

/// `blesec ca revoke DIR SERIAL|FILE`
enum AuthorityRevokeCommand {
    static let command = Command(
        name: "blesec ca revoke", summary: "revoke a device's certificate",
        operands: ["DIR", "SERIAL|FILE"],
        options: AuthorityOptions.usingKey,
        description: [
            "Puts a certificate of the authority in DIR on its revocation list, DIR/ca.crl. SERIAL "
                + "is the serial number of the certificate, and FILE is the file of the "
                + "certificate. The revocation takes effect on a device that has the new list. "
                + "Copy the list, in one step, over the file that the device was given with "
                + "--revoked.",
            "An operand of hexadecimal digits alone, with or without colons, is a serial number, "
                + "as `blesec ca list` prints it. Write ./FILE for a file with such a name. A "
                + "certificate stays revoked, and revoking it again changes nothing.",
            "Prints three lines: the serial number, the URI, and when the certificate was "
                + "revoked.",
        ],
        examples: [
            "blesec ca revoke ~/ca 5F0A1B2C3D4E5F60":
                "Revoke a certificate by its serial number.",
            "blesec ca revoke ~/ca lamp.pem": "Revoke a certificate by its file.",
        ],
        statuses: [
            .success, .usage, .badData, .noInput, .software, .cannotCreate, .inputOutput, .timedOut,
            .protocolError, .untrusted,
        ], run: run)

    private static func run(_ arguments: Arguments) throws(ChannelError) {
        let passphrase = try IdentityOptions.passphraseOfExistingKey(arguments)
        let now = AuthorityOptions.now
        let revoked = try CertificateAuthority(arguments.operands[0]).revoke(
            CertificateAuthority.RevocationTarget(arguments.operands[1]), passphrase: passphrase,
            now: now)
        try StandardOutput.print(
            [
                ("serial", revoked.serial.description), ("uri", revoked.uri),
                ("revoked", IssuedCertificate.timeText(revoked.revocation ?? now)),
            ])
    }
}
