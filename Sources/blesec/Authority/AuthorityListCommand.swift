internal import BLESec
internal import BLESecJSON
internal import BLESecToolKit

/// `blesec ca list DIR`
enum AuthorityListCommand {
    static let command = Command(
        name: "blesec ca list", summary: "show what an authority has issued", operands: ["DIR"],
        options: [.json],
        description: [
            "Prints a line for each certificate that the authority in DIR has issued, the oldest "
                + "first. The line has the certificate's serial number; its state, which is valid, "
                + "expired or revoked, or future if its validity has not begun; the time at which "
                + "it expires or was revoked; the fingerprint of its key; and its URI. The command "
                + "does not need the authority's key."
        ],
        examples: [
            "blesec ca list ~/ca": "List all certificates.",
            "blesec ca list ~/ca | grep ' valid '": "List only the valid certificates.",
        ],
        statuses: [.success, .usage, .badData, .noInput, .inputOutput, .protocolError, .untrusted],
        run: run)

    private static func run(_ arguments: Arguments) throws(ChannelError) {
        let authority = try CertificateAuthority(arguments.operands[0])
        let now = AuthorityOptions.now
        var text = ""
        for certificate in try authority.certificates() {
            text += arguments.has(.json) ? object(certificate, now) : line(certificate, now)
            text += "\n"
        }
        try StandardOutput.print(text)
    }

    private static func line(_ certificate: IssuedCertificate, _ now: Int64) -> String {
        let state = certificate.state(at: now).rawValue
        let stateWidth = 7
        let time = certificate.revocation ?? certificate.validity.upperBound
        return [
            certificate.serial.description,
            state + String(repeating: " ", count: stateWidth - state.count),
            IssuedCertificate.timeText(time), certificate.fingerprint.description, certificate.uri,
        ].joined(separator: " ")
    }

    private static func object(_ certificate: IssuedCertificate, _ now: Int64) -> String {
        JSONWriter.line(
            .object([
                ("serial", .string(certificate.serial.description)),
                ("state", .string(certificate.state(at: now).rawValue)),
                (
                    "not-before",
                    .string(IssuedCertificate.timeText(certificate.validity.lowerBound))
                ),
                ("not-after", .string(IssuedCertificate.timeText(certificate.validity.upperBound))),
                (
                    "revoked",
                    certificate.revocation.map { .string(IssuedCertificate.timeText($0)) } ?? .null
                ),
                ("fingerprint", .string(certificate.fingerprint.description)),
                ("uri", .string(certificate.uri)),
            ]))
    }
}
