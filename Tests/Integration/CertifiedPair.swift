import Glibc
import TestSupport
import Testing

/// Two devices with certificates of one authority, a device whose certificate is revoked, a device
/// of another authority, and a path for a socket.
struct CertifiedPair {
    let folder = ScratchFolder()
    private let fingerprints: [String: String]

    /// The names of the two devices. If both sides are tools, the lamp listens and the phone dials;
    /// if one side is `openssl`, the tool is the lamp, and `openssl` is the phone.
    static let lamp = "lamp"
    static let phone = "phone"

    /// Makes the authorities and the certificates with `blesec ca`. If `algorithm` is given,
    /// `openssl genpkey` makes the devices' keys with it; otherwise `blesec ca` makes them.
    init(algorithm: [String]? = nil) throws {
        var fingerprints: [String: String] = [:]
        for authority in ["ca", "elsewhere"] {
            try Self.run(["ca", "init", folder.file(authority)])
        }
        for (name, authority) in [
            (Self.lamp, "ca"), (Self.phone, "ca"), ("revoked", "ca"), ("stranger", "elsewhere"),
        ] {
            var keyOption: [String] = []
            if let algorithm {
                keyOption = ["--key", folder.write("\(name).key", "")]
                let made = try Subprocess.run(
                    "openssl", ["genpkey", "-out", keyOption[1], "-algorithm"] + algorithm)
                try #require(made.status == 0, "\(made.errors)")
            }
            let lines = try Self.run(
                [
                    "ca", "issue", folder.file(authority), "--uri", "blesec://devices/\(name)",
                    "--out", folder.file(name),
                ] + keyOption)
            let line = try #require(lines.first { $0.hasPrefix("fingerprint: ") })
            fingerprints[name] = String(line.dropFirst("fingerprint: ".count))
        }
        self.fingerprints = fingerprints
        try revoke("revoked")
    }

    @discardableResult
    private static func run(_ arguments: [String]) throws -> [Substring] {
        let outcome = try Tool.run(arguments: arguments)
        try #require(outcome.status == 0, "\(outcome.errors)")
        return outcome.text.split(separator: "\n")
    }

    /// Adds a device's certificate to the revocation list of the authority `ca`.
    func revoke(_ name: String) throws {
        try Self.run(["ca", "revoke", folder.file("ca"), folder.file("\(name).pem")])
    }

    /// The fingerprint of a device's key.
    func fingerprint(of name: String) -> String { fingerprints[name] ?? "nobody" }

    /// The endpoint of a socket in the folder.
    var endpoint: String { "unix:" + folder.file("socket") }

    /// The options with which a device proves its identity and accepts the certificates of the
    /// authority `ca`: `--certificate`, `--key`, `--authority` and `--revoked`, each with its file.
    func credentials(_ name: String) -> [String] {
        [
            "--certificate", folder.file("\(name).pem"), "--key", folder.file("\(name).key"),
            "--authority", folder.file("ca/ca.pem"), "--revoked", folder.file("ca/ca.crl"),
        ]
    }

    /// Starts `blesec listen` and waits until it can be dialed.
    func listen(
        _ options: [String], input: Subprocess.Input = .bytes([]), output: String? = nil
    ) throws -> Subprocess {
        let tool = try Tool.start(
            ["listen", endpoint] + credentials(Self.lamp) + options, input: input, output: output)
        _ = try tool.line("listening on ")
        return tool
    }

    /// Starts `blesec connect` as a device.
    func connect(
        _ options: [String] = [], as name: String = phone, input: Subprocess.Input = .bytes([]),
        output: String? = nil
    ) throws -> Subprocess {
        try Tool.start(
            ["connect", endpoint] + credentials(name) + options, input: input, output: output)
    }

    /// Starts `blesec listen` or `blesec connect` with TLS alone; standard input stays open until
    /// the test ends it.
    func startTool(
        _ command: String, _ options: String..., as name: String = lamp, within seconds: Double = 20
    ) throws -> Subprocess {
        try Tool.start(
            [command, endpoint, "--protocol", "TLS1.3"] + credentials(name) + options,
            input: .keptOpen, within: seconds)
    }

    /// Starts `openssl s_client` or `openssl s_server` as a device; with the name `without` it
    /// sends no certificate.
    func startOpenSSL(
        _ command: String, _ options: String..., as name: String = phone,
        version: [String] = ["-tls1_3"]
    ) throws -> Subprocess {
        var arguments = [
            command, "-unix", folder.file("socket"), "-CAfile", folder.file("ca/ca.pem"),
            "-verify_return_error", "-quiet",
        ]
        if name != "without" {
            arguments += ["-cert", folder.file("\(name).pem"), "-key", folder.file("\(name).key")]
        }
        return try Subprocess(
            "openssl", arguments + version + options, input: .keptOpen, within: 60)
    }

    /// Waits until a process listens on the socket, according to the kernel's table.
    func waitForSocket() throws {
        let path = folder.file("socket")
        for _ in 0..<500 {
            // The fourth field is 00010000, the flag __SO_ACCEPTCON, if the socket listens.
            let rows = try Subprocess.run("grep", ["-F", " \(path)", "/proc/net/unix"]).text
            if rows.split(separator: "\n").contains(where: {
                let words = $0.split(separator: " ")
                return words.count == 8 && words[3] == "00010000" && words[7] == path
            }) {
                return
            }
            usleep(10_000)
        }
        Issue.record("nobody listens on \(path)")
    }
}
