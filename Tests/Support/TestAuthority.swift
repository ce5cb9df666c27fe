/// A certificate authority that the real `openssl` runs in a scratch folder.
public final class TestAuthority: Sendable {
    /// Where all its files are.
    public let folder: ScratchFolder
    /// The name of its own files: `NAME.pem` and `NAME.key`.
    public let name: String

    /// Makes an authority; several can share a folder under different names.
    public init(
        _ name: String = "ca", in folder: ScratchFolder = ScratchFolder(),
        constraints: String = "CA:TRUE"
    ) throws {
        self.folder = folder
        self.name = name
        try selfSign(name, Self.authority(constraints))
    }

    /// Makes an authority whose certificate another authority has issued, in the same folder.
    public init(_ name: String, under issuer: TestAuthority, extensions: String? = nil) throws {
        folder = issuer.folder
        self.name = name
        try issuer.issue(name, extensions ?? Self.authority("CA:TRUE"))
    }

    /// An authority whose certificate and key another authority has already issued in its folder.
    public init(_ name: String, in issuer: TestAuthority) {
        folder = issuer.folder
        self.name = name
    }

    /// The extensions of an authority's certificate.
    public static func authority(_ constraints: String) -> String {
        "basicConstraints=critical,\(constraints)\nkeyUsage=keyCertSign,cRLSign\n"
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
        try request(
            subject,
            ["-newkey"] + newKey + ["-nodes", "-keyout", folder.file("\(subject).key")], extensions)
    }

    /// Issues `NAME.pem` for the P-256 key in `NAME.key`, which is made if it is missing. The point
    /// is in one of the forms of `openssl ec`.
    public func issue(_ subject: String, _ extensions: String, pointForm: String) throws {
        let key = folder.file("\(subject).key")
        if folder.read("\(subject).key") == nil {
            try run("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
        }
        let form = folder.file("\(subject).form")
        try run("ec", "-in", key, "-conv_form", pointForm, "-out", form)
        try run("pkcs8", "-topk8", "-nocrypt", "-in", form, "-out", key)
        try run("pkey", "-in", key, "-noout", "-check")
        try request(subject, ["-key", key], extensions)
    }

    private func request(
        _ subject: String, _ key: [String], _ extensions: String
    ) throws {
        let request = folder.file("\(subject).csr")
        try run(["req", "-new", "-subj", "/CN=\(subject)", "-out", request] + key)
        try run(
            "x509", "-req", "-in", request, "-CA", certificate, "-CAkey",
            folder.file("\(name).key"), "-days", "30", "-out", folder.file("\(subject).pem"),
            "-extfile", folder.write("\(subject).ext", extensions))
    }

    /// Issues a device's certificate with one URI, for both roles.
    public func issueDevice(_ subject: String, newKey: [String] = ["ed25519"]) throws {
        try issue(subject, Self.device(subject), newKey: newKey)
    }

    /// The extensions of a device's certificate, without any that a handshake does not need.
    public static func device(_ subject: String, usage: String = "clientAuth,serverAuth") -> String
    {
        "subjectAltName=URI:blesec://devices/\(subject)\nextendedKeyUsage=\(usage)\n"
            + "subjectKeyIdentifier=none\nauthorityKeyIdentifier=none\n"
    }

    /// The revocation list of the authority for these names, in DER form.
    public func revocationList(_ subjects: [String]) throws -> [UInt8] {
        var index = ""
        for subject in subjects {
            let serial = try Subprocess.run(
                "openssl", ["x509", "-noout", "-serial", "-in", folder.file("\(subject).pem")],
                within: 60
            ).text.dropFirst("serial=".count).filter(\.isHexDigit)
            index += "R\t491231235959Z\t250101000000Z\t\(serial)\tunknown\t/CN=\(subject)\n"
        }
        let config = folder.write(
            "crl.cnf",
            "[ca]\ndefault_ca=it\n[it]\ndatabase=\(folder.write("index.txt", index))\n"
                + "certificate=\(certificate)\nprivate_key=\(folder.file("\(name).key"))\n"
                + "default_md=default\ndefault_crl_days=30\n")
        let (text, list) = (folder.file("crl.pem"), folder.file("crl.der"))
        try run("ca", "-config", config, "-gencrl", "-out", text)
        try run("crl", "-in", text, "-outform", "DER", "-out", list)
        return folder.read("crl.der") ?? []
    }

    private func run(_ arguments: String...) throws { try run(arguments) }

    /// Runs `openssl`, which must succeed.
    public func run(_ arguments: [String]) throws {
        let outcome = try Subprocess.run("openssl", arguments, within: 60)
        guard outcome.status == 0 else { throw Subprocess.Failure.ended(outcome.errors) }
    }
}
