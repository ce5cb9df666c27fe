/// A certificate authority that the real `openssl` runs in a scratch folder.
public final class TestAuthority: Sendable {
    /// Where all its files are.
    public let folder: ScratchFolder
    /// The name of its own files: `NAME.pem` and `NAME.key`.
    public let name: String

    /// Makes an authority; several can share a folder under different names.
    public init(_ name: String = "ca", in folder: ScratchFolder = ScratchFolder()) throws {
        self.folder = folder
        self.name = name
        try selfSign(name, "basicConstraints=critical,CA:TRUE\nkeyUsage=keyCertSign,cRLSign\n")
    }

    /// The authority's certificate.
    public var certificate: String { folder.file("\(name).pem") }

    /// Makes `NAME.pem` and `NAME.key`, signed with the key itself.
    public func selfSign(_ subject: String, _ extensions: String) throws {
        let config = folder.write(
            "\(subject).cnf",
            "[req]\ndistinguished_name=dn\nx509_extensions=own\nprompt=no\n[dn]\nCN=\(subject)\n"
                + "[own]\n\(extensions)")
        try run(
            "req", "-x509", "-newkey", "ed25519", "-nodes", "-config", config, "-days", "30",
            "-keyout", folder.file("\(subject).key"), "-out", folder.file("\(subject).pem"))
    }

    /// Issues `NAME.pem` for a new key in `NAME.key`, with these lines of extensions.
    public func issue(_ subject: String, _ extensions: String, newKey: [String] = ["ed25519"])
        throws
    {
        let request = folder.file("\(subject).csr")
        try run(
            ["req", "-new", "-newkey"] + newKey + [
                "-nodes", "-subj", "/CN=\(subject)", "-keyout", folder.file("\(subject).key"),
                "-out", request,
            ])
        try run(
            "x509", "-req", "-in", request, "-CA", certificate, "-CAkey",
            folder.file("\(name).key"), "-days", "30", "-out", folder.file("\(subject).pem"),
            "-extfile", folder.write("\(subject).ext", extensions))
    }

    /// Issues a device's certificate with one URI, for both roles.
    public func issueDevice(_ subject: String, newKey: [String] = ["ed25519"]) throws {
        try issue(subject, Self.device(subject), newKey: newKey)
    }

    /// The extensions of a device's certificate, without any that a handshake would carry for nothing.
    public static func device(_ subject: String, usage: String = "clientAuth,serverAuth") -> String
    {
        "subjectAltName=URI:blesec://devices/\(subject)\nextendedKeyUsage=\(usage)\n"
            + "subjectKeyIdentifier=none\nauthorityKeyIdentifier=none\n"
    }

    private func run(_ arguments: String...) throws { try run(arguments) }

    /// Runs `openssl`, which has to succeed.
    public func run(_ arguments: [String]) throws {
        let outcome = try Subprocess.run("openssl", arguments, within: 60)
        guard outcome.status == 0 else { throw Subprocess.Failure.ended(outcome.errors) }
    }
}
