internal import BLESecJSON
internal import BLESecChannelCore
internal import BLESecCredentials
internal import BLESecToolKit
internal import Glibc

/// Options and functions that the commands of `blesec ca` share.
enum AuthorityOptions {
    /// The group of commands in the tool's list.
    static let group = Program(
        name: "blesec ca", summary: "run a small certificate authority, for TLS",
        description: [
            "An authority issues a certificate to each device that belongs to it, and devices "
                + "accept whoever has one: nobody has to know every other device's key. All of an "
                + "authority is in one directory, in files that `openssl` reads."
        ],
        commands: [
            AuthorityInitCommand.command, AuthorityIssueCommand.command,
            AuthorityRevokeCommand.command, AuthorityListCommand.command,
        ])

    /// The options of commands that use the authority's key.
    static let key = [
        IdentityOptions.passphraseFile, IdentityOptions.passphrasePrompt, Option.json,
    ]

    /// The number given with an option, or the default.
    static func days(
        _ option: Option, _ arguments: Arguments, standard: Int
    ) throws(ChannelError) -> Int {
        guard let text = arguments.value(option) else { return standard }
        let most = CertificateAuthority.maximumDays
        guard text.utf8.allSatisfy({ (0x30...0x39).contains($0) }), let days = Int(text),
            (1...most).contains(days)
        else {
            throw arguments.usage("\(option.name) is a number from 1 to \(most), and not `\(text)`")
        }
        return days
    }

    /// Seconds since 1970.
    static var now: Int64 { Int64(time(nil)) }

    /// Prints names and values, one pair on each line, or as a JSON object.
    static func print(
        _ fields: [(String, String)], _ arguments: Arguments
    ) throws(ChannelError) {
        guard arguments.has(.json) else {
            let lines = fields.map { name, value in "\(name): \(Diagnostics.oneLine(value))\n" }
            return try StandardOutput.print(lines.joined())
        }
        let members = fields.map { name, value in (name, JSONValue.string(value)) }
        try StandardOutput.print(JSONWriter.line(.object(members)) + "\n")
    }
}
