/// A certificate authority whose files the `openssl` command makes, in a scratch folder.
public final class TestAuthority: Sendable {
    /// The folder of all the authority's files.
    public let folder: ScratchFolder
    /// The name of the authority's own files, `NAME.pem` and `NAME.key`.
    public let name: String

    /// Makes an authority with a self-signed certificate; several authorities can share a folder
    /// under different names.
    public init(
        _ name: String = "ca", in folder: ScratchFolder = ScratchFolder(),
        constraints: String = "CA:TRUE"
    ) throws {
        self.folder = folder
        self.name = name
        try selfSign(name, Self.authorityExtensions(constraints))
    }

    /// Makes an authority whose certificate another authority has issued, in the same folder.
    public init(_ name: String, under issuer: TestAuthority, extensions: String? = nil) throws {
        folder = issuer.folder
        self.name = name
        try issuer.issue(name, extensions ?? Self.authorityExtensions("CA:TRUE"))
    }

    /// An authority that exists already: `issuer` has issued its certificate, and its files are in
    /// the folder of `issuer`.
    public init(_ name: String, in issuer: TestAuthority) {
        folder = issuer.folder
        self.name = name
    }

    /// The lines of extensions for an authority's certificate; `constraints` are its basic
    /// constraints.
    public static func authorityExtensions(_ constraints: String) -> String {
        "basicConstraints=critical,\(constraints)\nkeyUsage=keyCertSign,cRLSign\n"
    }

    /// The path of the authority's certificate.
    public var certificatePath: String { folder.file("\(name).pem") }

    /// Makes a key in `SUBJECT.key`, and in `SUBJECT.pem` a certificate signed with this key.
    public func selfSign(_ subject: String, _ extensions: String) throws {
        let config = folder.write(
            "\(subject).cnf",
            "[req]\ndistinguished_name=dn\nx509_extensions=own\nprompt=no\n[dn]\nCN=\(subject)\n"
                + "[own]\n\(extensions)")
        try run(
            "req", "-x509", "-newkey", "ed25519", "-nodes", "-config", config, "-days", "30",
            "-keyout", folder.file("\(subject).key"), "-out", folder.file("\(subject).pem"))
    }

    /// Issues `SUBJECT.pem`, with these lines of extensions, for a new key in `SUBJECT.key`.
    public func issue(_ subject: String, _ extensions: String, newKey: [String] = ["ed25519"])
        throws
    {
        try request(
            subject,
            ["-newkey"] + newKey + ["-nodes", "-keyout", folder.file("\(subject).key")], extensions)
    }

    /// Issues `SUBJECT.pem` for the P-256 key in `SUBJECT.key`, which is made if it is missing. The
    /// public key's point is encoded in `pointForm`, a value of `openssl ec -conv_form`, and its
    /// curve in `curveForm`, a value of `openssl ec -param_enc`.
    public func issue(
        _ subject: String, _ extensions: String, pointForm: String,
        curveForm: String = "named_curve"
    ) throws {
        let key = folder.file("\(subject).key")
        if folder.read("\(subject).key") == nil {
            try run("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
        }
        let encodedKey = folder.file("\(subject).form")
        try run(
            "ec", "-in", key, "-conv_form", pointForm, "-param_enc", curveForm, "-out", encodedKey)
        try run("pkcs8", "-topk8", "-nocrypt", "-in", encodedKey, "-out", key)
        try run("pkey", "-in", key, "-noout", "-check")
        try request(subject, ["-key", key], extensions)
    }

    /// Issues `SUBJECT.pem`, with these lines of extensions, for a public key in DER form. The private
    /// key in `SUBJECT.key` does not belong to this public key.
    public func issue(_ subject: String, _ extensions: String, publicKey: [UInt8]) throws {
        try request(
            subject,
            ["-newkey", "ed25519", "-nodes", "-keyout", folder.file("\(subject).key")], extensions,
            ["-force_pubkey", folder.write("\(subject).spki", publicKey)])
    }

    /// `issuing` has further options of `openssl x509`.
    private func request(
        _ subject: String, _ key: [String], _ extensions: String, _ issuing: [String] = []
    ) throws {
        let request = folder.file("\(subject).csr")
        // This serial number always has 8 bytes: a test depends on the length of a certificate, and
        // OpenSSL's own serial numbers are sometimes a byte shorter.
        let serial = UInt64.random(in: 1 << 62..<1 << 63)
        try run(["req", "-new", "-subj", "/CN=\(subject)", "-out", request] + key)
        try run(
            [
                "x509", "-req", "-in", request, "-CA", certificatePath, "-CAkey",
                folder.file("\(name).key"), "-set_serial", "\(serial)", "-days", "30",
                "-out", folder.file("\(subject).pem"),
                "-extfile", folder.write("\(subject).ext", extensions),
            ] + issuing)
    }

    /// Issues a device's certificate with the device's URI, and with the usages of both roles.
    public func issueDevice(_ subject: String, newKey: [String] = ["ed25519"]) throws {
        try issue(subject, Self.deviceExtensions(subject), newKey: newKey)
    }

    /// The lines of extensions for a device's certificate, without the key identifiers, which a
    /// handshake does not need.
    public static func deviceExtensions(
        _ subject: String, usage: String = "clientAuth,serverAuth"
    ) -> String {
        "subjectAltName=URI:blesec://devices/\(subject)\nextendedKeyUsage=\(usage)\n"
            + "subjectKeyIdentifier=none\nauthorityKeyIdentifier=none\n"
    }

    /// A revocation list of this authority, in DER form, that revokes the certificates of these
    /// subjects.
    public func revocationList(_ subjects: [String]) throws -> [UInt8] {
        var database = ""
        for subject in subjects {
            let serial = try Subprocess.run(
                "openssl", ["x509", "-noout", "-serial", "-in", folder.file("\(subject).pem")],
                within: 60
            ).text.dropFirst("serial=".count).filter(\.isHexDigit)
            database += "R\t491231235959Z\t250101000000Z\t\(serial)\tunknown\t/CN=\(subject)\n"
        }
        let config = folder.write(
            "crl.cnf",
            "[ca]\ndefault_ca=it\n[it]\ndatabase=\(folder.write("index.txt", database))\n"
                + "certificate=\(certificatePath)\nprivate_key=\(folder.file("\(name).key"))\n"
                + "default_md=default\ndefault_crl_days=30\n")
        let (pemPath, derPath) = (folder.file("crl.pem"), folder.file("crl.der"))
        try run("ca", "-config", config, "-gencrl", "-out", pemPath)
        try run("crl", "-in", pemPath, "-outform", "DER", "-out", derPath)
        return folder.read("crl.der") ?? []
    }

    private func run(_ arguments: String...) throws { try run(arguments) }

    /// Runs `openssl`, and throws if it fails.
    public func run(_ arguments: [String]) throws {
        let outcome = try Subprocess.run("openssl", arguments, within: 60)
        guard outcome.status == 0 else { throw Subprocess.Failure.ended(outcome.errors) }
    }
}
