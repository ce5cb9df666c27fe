internal import BLESec
internal import BLESecToolKit
internal import Glibc

/// Options and functions that the commands of `blesec ca` share.
enum AuthorityOptions {
    /// `blesec ca`, the group of these commands.
    static let group = Program(
        name: "blesec ca", summary: "run a small certificate authority, for TLS",
        description: [
            "An authority issues a certificate to each of its devices. The devices accept every "
                + "device with such a certificate, so no device has to know the keys of all "
                + "others. All files of an authority are in one directory, and `openssl` reads "
                + "them."
        ],
        commands: [
            "init": { AuthorityInitCommand.command }, "issue": { AuthorityIssueCommand.command },
            "revoke": { AuthorityRevokeCommand.command },
            "list": { AuthorityListCommand.command },
        ])

    /// The options of commands that use the authority's key.
    static let usingKey = IdentityOptions.all + [.json]

    /// The exit statuses of `init` and `issue`.
    static let statuses: [ExitStatus] = [
        .success, .usage, .badData, .noInput, .software, .cannotCreate, .inputOutput, .untrusted,
    ]

    static func days(
        _ option: Option, _ arguments: Arguments, standard: Int
    ) throws(ChannelError) -> Int {
        let range = 1...CertificateAuthority.maximumDays
        return try arguments.number(option, in: range, takesSign: false) ?? standard
    }

    /// Seconds since 1970.
    static var now: Int64 { Int64(time(nil)) }
}
