import BLESecChannelCore
import BLESecCredentials
import BLESecPrimitives
import BLESecTLSEngine
import Glibc
import TestSupport
import Testing

/// Certificate files that the real `openssl` makes: those that load, and those that are refused.
@Suite("Certificate files")
struct CertificateFileTests {
    let authority: TestAuthority

    init() throws { authority = try TestAuthority() }

    private var folder: ScratchFolder { authority.folder }
    private var now: Int64 { Int64(time(nil)) }

    private func load(
        _ name: String, key: String? = nil, passphrase: PassphraseSource? = nil,
        afterDays days: Int64 = 0
    ) throws -> TLSIdentity {
        try CertificateFile.identity(
            certificate: folder.file("\(name).pem"), key: folder.file("\(key ?? name).key"),
            passphrase: passphrase, now: now + days * 86_400)
    }

    /// Expects `badKey`, with a reason that begins with a path in the folder and contains `part`.
    private func expectRefused(_ part: String, _ body: () throws -> Void) {
        do {
            try body()
            Issue.record("no error was thrown")
        } catch let error as ChannelError {
            #expect(error == ChannelError(.badKey, ""))
            #expect(error.reason.contains(part), "\(error.reason)")
            #expect(error.reason.hasPrefix(folder.path))
        } catch {
            Issue.record(error)
        }
    }

    @Test("an Ed25519 and a P-256 identity load with their URI")
    func loads() throws {
        try authority.issueDevice("one")
        #expect(try load("one").uri == "blesec://devices/one")
        try authority.issueDevice("two", newKey: ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
        #expect(try load("two").uri == "blesec://devices/two")
    }

    @Test("the fingerprint is that of the public key that openssl prints")
    func fingerprint() throws {
        try authority.issueDevice("one")
        try authority.run([
            "pkey", "-in", folder.file("one.key"), "-pubout", "-outform", "DER", "-out",
            folder.file("one.spki"),
        ])
        let info = try #require(folder.read("one.spki"))
        #expect(try load("one").fingerprint == Fingerprint(subjectPublicKeyInfo: info))
    }

    @Test(
        "intermediates may follow the leaf or be in a separate file; a second leaf is refused")
    func intermediates() throws {
        try authority.issueDevice("one")
        let leaf = try #require(folder.read("one.pem"))
        let issuer = try #require(folder.read("ca.pem"))
        folder.write("chain.pem", leaf + issuer)
        #expect(try load("chain", key: "one").uri == "blesec://devices/one")
        let identity = try CertificateFile.identity(
            certificate: folder.file("one.pem"), key: folder.file("one.key"),
            intermediates: authority.certificatePath, now: now)
        #expect(identity.uri == "blesec://devices/one")
        expectRefused("may not issue") {
            folder.write("wrong.pem", leaf + leaf)
            _ = try load("wrong", key: "one")
        }
    }

    @Test(
        "a device's or authority's key in an unusual encoding is refused",
        arguments: ["compressed", "hybrid"])
    func unusualKeys(form: String) throws {
        try authority.issue("one", TestAuthority.deviceExtensions("one"), pointForm: form)
        expectRefused("unusual encoding") { _ = try load("one") }
        // The same key is accepted in the usual encoding.
        try authority.issue("one", TestAuthority.deviceExtensions("one"), pointForm: "uncompressed")
        #expect(try load("one").uri == "blesec://devices/one")
        try authority.issue("middle", TestAuthority.authorityExtensions("CA:TRUE"), pointForm: form)
        expectRefused("unusual encoding") {
            _ = try CertificateFile.authorities(folder.file("middle.pem"))
        }
        expectRefused("unusual encoding") {
            _ = try CertificateFile.identity(
                certificate: folder.file("one.pem"), key: folder.file("one.key"),
                intermediates: folder.file("middle.pem"), now: now)
        }
    }

    @Test("a device's key with explicit curve parameters is refused")
    func explicitParameters() throws {
        try authority.issueDevice(
            "one",
            newKey: [
                "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-pkeyopt", "ec_param_enc:explicit",
            ])
        expectRefused("unusual encoding") { _ = try load("one") }
    }

    @Test(
        "a device's, an intermediate's or an authority's key that is too short or too large is refused",
        arguments: [
            ["rsa:1024"], ["rsa:2040"], ["rsa:4104"],
            ["rsa:2048", "-pkeyopt", "rsa_keygen_pubexp:4294967311"],
        ])
    func keyStrength(newKey: [String]) throws {
        try authority.issueDevice("one", newKey: newKey)
        expectRefused("a key or a signature that is too weak") { _ = try load("one") }
        try authority.issueDevice("two", newKey: ["rsa:2048"])
        #expect(try load("two").uri == "blesec://devices/two")
        try authority.issue(
            "middle", TestAuthority.authorityExtensions("CA:TRUE"), newKey: newKey)
        expectRefused("a key or a signature that is too weak") {
            _ = try CertificateFile.identity(
                certificate: folder.file("two.pem"), key: folder.file("two.key"),
                intermediates: folder.file("middle.pem"), now: now)
        }
        expectRefused("an authority whose key is too weak") {
            _ = try CertificateFile.authorities(folder.file("middle.pem"))
        }
    }

    @Test("a certificate whose signature uses SHA-1 is refused")
    func weakSignature() throws {
        try authority.issue(
            "middle", TestAuthority.authorityExtensions("CA:TRUE"),
            newKey: ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
        try authority.issueDevice("one")
        for (digest, isRefused) in [("-sha256", false), ("-sha1", true)] {
            try authority.run([
                "x509", "-req", digest, "-in", folder.file("one.csr"), "-CA",
                folder.file("middle.pem"), "-CAkey", folder.file("middle.key"), "-set_serial", "5",
                "-days", "30", "-extfile", folder.file("one.ext"), "-out", folder.file("one.pem"),
            ])
            if isRefused {
                expectRefused("a key or a signature that is too weak") { _ = try load("one") }
            } else {
                #expect(try load("one").uri == "blesec://devices/one")
            }
        }
    }

    @Test("a key that belongs to another certificate is refused")
    func otherKey() throws {
        try authority.issueDevice("one")
        try authority.issueDevice("two")
        expectRefused("does not belong") { _ = try load("one", key: "two") }
    }

    @Test("an expired leaf and one that is not valid yet are refused")
    func validity() throws {
        try authority.issueDevice("one")
        expectRefused("has expired") { _ = try load("one", afterDays: 31) }
        expectRefused("not valid yet") { _ = try load("one", afterDays: -1) }
    }

    @Test("a leaf whose key usage forbids TLS is refused")
    func usage() throws {
        try authority.issue("one", "keyUsage=keyAgreement\n")
        expectRefused("digital signature") { _ = try load("one") }
        try authority.issue("two", "extendedKeyUsage=codeSigning\n")
        expectRefused("extended key usage") { _ = try load("two") }
    }

    @Test("an extended key usage decides which roles are allowed")
    func roles() throws {
        try authority.issue("one", TestAuthority.deviceExtensions("one", usage: "clientAuth"))
        let identity = try load("one")
        #expect(identity.allows(.dialer))
        #expect(!identity.allows(.acceptor))
    }

    @Test("an encrypted key opens with its passphrase, but not with a wrong one or without one")
    func encrypted() throws {
        try authority.issueDevice("one")
        try authority.run([
            "pkcs8", "-topk8", "-v2", "aes-256-cbc", "-in", folder.file("one.key"), "-out",
            folder.file("locked.key"), "-passout", "pass:open sesame",
        ])
        _ = unsafe chmod(folder.file("locked.key"), 0o600)
        let identity = try load("one", key: "locked", passphrase: secret("open sesame"))
        #expect(identity.uri == "blesec://devices/one")
        expectRefused("passphrase is wrong") {
            _ = try load("one", key: "locked", passphrase: secret("sesame"))
        }
        expectRefused("no passphrase was given") { _ = try load("one", key: "locked") }
    }

    @Test("a byte after an encrypted key makes the file invalid, even with the right passphrase")
    func longer() throws {
        try authority.issueDevice("one")
        try authority.run([
            "pkcs8", "-topk8", "-v2", "aes-256-cbc", "-in", folder.file("one.key"), "-out",
            folder.file("locked.der"), "-outform", "DER", "-passout", "pass:open sesame",
        ])
        let content = Base64.encode(try #require(folder.read("locked.der")) + [0], padded: true)
        let label = "ENCRYPTED PRIVATE KEY-----"
        folder.write("longer.key", "-----BEGIN \(label)\n\(content)\n-----END \(label)\n")
        _ = unsafe chmod(folder.file("longer.key"), 0o600)
        expectRefused("is not an encrypted PKCS#8 private key") {
            _ = try load("one", key: "longer", passphrase: secret("open sesame"))
        }
    }

    @Test("a key file that others can open is refused")
    func sharedKey() throws {
        try authority.issueDevice("one")
        _ = unsafe chmod(folder.file("one.key"), 0o644)
        expectRefused("can be opened by others") { _ = try load("one") }
    }

    @Test(
        "a certificate file without a certificate, or with a damaged block or a private key, is refused"
    )
    func malformed() throws {
        try authority.issueDevice("one")
        folder.write("empty.pem", "nothing\n")
        expectRefused("holds no certificate") { _ = try load("empty", key: "one") }
        folder.write("bad.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
        let damaged = #expect(throws: ChannelError.self) { _ = try load("bad", key: "one") }
        #expect(damaged?.code == .badKey)
        // Refused although the leaf is complete: skipping the block would lose an intermediate.
        folder.write(
            "cut.pem", try #require(folder.read("one.pem")) + "-----BEGIN CERTIFICATE-----\nA".utf8)
        expectRefused("holds a damaged PEM block") { _ = try load("cut", key: "one") }
        let both = try #require(folder.read("one.pem")) + #require(folder.read("one.key"))
        folder.write("both.pem", both)
        expectRefused("holds PRIVATE KEY") { _ = try load("both", key: "one") }
    }

    @Test("an authority's certificate is accepted as an authority, and a device's is not")
    func authorities() throws {
        try authority.issueDevice("one")
        _ = try CertificateFile.authorities(authority.certificatePath)
        expectRefused("no authority's") {
            _ = try CertificateFile.authorities(folder.file("one.pem"))
        }
        let missing = #expect(throws: ChannelError.self) {
            try CertificateFile.authorities(folder.file("none.pem"))
        }
        #expect(missing?.code == .noSuchFile)
    }
}
