import BLESecChannelCore
import BLESecCredentials
import BLESecPrimitives
import BLESecTLSEngine
import Glibc
import TestSupport
import Testing

/// The tool's certificate authority, and whether the real `openssl` accepts its files.
@Suite("Certificate authority")
struct CertificateAuthorityTests {
    let folder = ScratchFolder()
    let now = Int64(time(nil))

    private var path: String { folder.file("ca") }

    private func make(
        days: Int = 3_652, passphrase: PassphraseSource? = nil
    ) throws -> CertificateAuthority {
        try CertificateAuthority.create(
            path, name: nil, days: days, passphrase: passphrase, now: now)
    }

    private func issue(
        _ authority: CertificateAuthority, _ name: String, uri: String? = nil, days: Int = 365,
        key: String? = nil, passphrase: PassphraseSource? = nil
    ) throws -> IssuedCertificate {
        try authority.issue(
            SubjectURI(uri ?? "blesec://devices/\(name)"), days: days, key: key,
            to: folder.file(name), passphrase: passphrase, now: now)
    }

    /// Expects an error with this code, and with `part` in its reason.
    private func expectError(
        _ code: ChannelError.Code, _ part: String, at location: SourceLocation = #_sourceLocation,
        _ body: () throws -> Void
    ) {
        do {
            try body()
            Issue.record("no error was thrown", sourceLocation: location)
        } catch let error as ChannelError {
            #expect(error.code == code, "\(error.reason)", sourceLocation: location)
            #expect(error.reason.contains(part), "\(error.reason)", sourceLocation: location)
        } catch {
            Issue.record(error, sourceLocation: location)
        }
    }

    @Test("if the certificate cannot be written, the new key is removed")
    func keyWithoutCertificate() throws {
        let passphrase = Array("secret".utf8)
        _ = try make(passphrase: PassphraseSource { _, _ in SecretBytes(copying: passphrase.span) })
        // Another process makes the certificate's file while a person types the passphrase.
        let source = PassphraseSource { [folder] _, _ in
            folder.write("lamp.pem", "other")
            return SecretBytes(copying: passphrase.span)
        }
        expectError(.cannotCreate, "lamp.pem exists") {
            _ = try issue(CertificateAuthority(path), "lamp", passphrase: source)
        }
        #expect(folder.names == ["ca", "lamp.pem"])
        #expect(folder.read("lamp.pem") == Array("other".utf8))
    }

    @Test("an issued certificate is verified by openssl and loads as an identity")
    func issues() throws {
        let authority = try make()
        let issued = try issue(authority, "lamp")
        let file = folder.file("lamp.pem")
        let verified = try openssl(
            "verify", "-x509_strict", "-crl_check", "-CRLfile", authority.revocationListPath,
            "-CAfile",
            authority.certificatePath, "-purpose", "sslclient", file)
        #expect(verified == "\(file): OK\n")
        #expect(
            try openssl("x509", "-in", file, "-noout", "-serial") == "serial=\(issued.serial)\n")
        let identity = try CertificateFile.identity(
            certificate: file, key: folder.file("lamp.key"), now: now)
        #expect(identity.uri == "blesec://devices/lamp")
        #expect(identity.fingerprint == issued.fingerprint)
        #expect(identity.allows(.dialer) && identity.allows(.acceptor))
        _ = try CertificateFile.authorities(authority.certificatePath)
        #expect(folder.mode("lamp.key") == 0o600)
        #expect(folder.mode("ca") == 0o700)
        #expect(folder.mode("ca/ca.key") == 0o600)
        #expect(folder.mode("ca/issued") == 0o700)
        #expect(folder.read("ca/issued/\(issued.serial).pem") == folder.read("lamp.pem"))
    }

    @Test("certificates for one URI have three extensions each, and the same size")
    func profile() throws {
        let authority = try make()
        let uri = "blesec://devices/lamp-0001"
        for name in ["one", "two", "three"] {
            _ = try issue(authority, name, uri: uri)
            let text = try openssl("x509", "-in", folder.file("\(name).pem"), "-noout", "-text")
            #expect(text.contains("Subject: \n"))
            #expect(text.contains("X509v3 Subject Alternative Name: critical"))
            #expect(text.contains("TLS Web Server Authentication, TLS Web Client Authentication"))
            #expect(text.occurrences(of: "X509v3 ") == 4)  // Three extensions, and the heading.
            let der = folder.file("\(name).der")
            _ = try openssl(
                "x509", "-in", folder.file("\(name).pem"), "-outform", "DER", "-out", der)
            #expect(folder.read("\(name).der")?.count == 307)
        }
    }

    @Test(
        "openssl and the listing report a certificate as revoked; revoking it again changes nothing"
    )
    func revokes() throws {
        let authority = try make()
        let lamp = try issue(authority, "lamp")
        let door = try issue(authority, "door")
        let first = try authority.revoke(.serial(lamp.serial), passphrase: nil, now: now)
        #expect(first.revocation == now)
        let second = try authority.revoke(
            .file(folder.file("lamp.pem")), passphrase: nil, now: now + 60)
        #expect(second.revocation == now)
        let outcome = try Subprocess.run(
            "openssl",
            [
                "verify", "-crl_check", "-CRLfile", authority.revocationListPath, "-CAfile",
                authority.certificatePath, folder.file("lamp.pem"),
            ])
        #expect(outcome.errors.contains("certificate revoked"))
        let list = try openssl(
            "crl", "-in", authority.revocationListPath, "-noout", "-text", "-CAfile",
            authority.certificatePath)
        #expect(list.contains("Serial Number: \(lamp.serial)"))
        #expect(!list.contains("\(door.serial)"))
        let states = try authority.certificates().map { ($0.uri, $0.state(at: now)) }
        #expect(states.count == 2)
        #expect(states.contains { $0 == ("blesec://devices/lamp", .revoked) })
        #expect(states.contains { $0 == ("blesec://devices/door", .valid) })
        let doors = try authority.certificates().filter { $0.uri == "blesec://devices/door" }
        #expect(doors.map { $0.state(at: now + 366 * 86_400) } == [.expired])
    }

    @Test("twelve simultaneous revocations are all recorded")
    func revokesTogether() async throws {
        let authority = try make()
        let serials = try (0..<12).map { try issue(authority, "device\($0)").serial }
        let now = now
        let path = path
        await withTaskGroup(of: Void.self) { group in
            for serial in serials {
                group.addTask {
                    do {
                        _ = try CertificateAuthority(path).revoke(
                            .serial(serial), passphrase: nil, now: now)
                    } catch {
                        Issue.record(error)
                    }
                }
            }
        }
        #expect(try authority.certificates().filter { $0.revocation != nil }.count == 12)
        let number = try openssl("crl", "-in", authority.revocationListPath, "-noout", "-crlnumber")
        // The list without revocations has the number 1.
        #expect(number == "crlNumber=0x0D\n")
    }

    @Test("a time before 2050 is written as UTCTime, a later one as GeneralizedTime (RFC 5280)")
    func times() throws {
        let authority = try make(days: 36_525)
        let daysLeft = Int((2_524_607_999 - now) / 86_400)  // Until the last second of 2049.
        for (name, days) in [("before", daysLeft), ("after", daysLeft + 2)] {
            let issued = try issue(authority, name, days: days)
            let end = try openssl(
                "x509", "-in", folder.file("\(name).pem"), "-noout", "-enddate", "-dateopt",
                "iso_8601")
            let text = IssuedCertificate.timeText(issued.validity.upperBound)
            #expect(end == "notAfter=\(text.replacing("T", with: " "))\n")
        }
        #expect(try structure("before").contains("UTCTIME           :49"))
        #expect(try structure("after").contains("GENERALIZEDTIME   :2050"))
    }

    /// The ASN.1 structure of a certificate.
    private func structure(_ name: String) throws -> String {
        try openssl("asn1parse", "-in", folder.file("\(name).pem"))
    }

    @Test("no existing file is overwritten, and a failed call leaves no output file behind")
    func overwritesNothing() throws {
        folder.write("file", "precious")
        expectError(.cannotCreate, "is not overwritten") {
            _ = try CertificateAuthority.create(
                folder.file("file"), name: nil, days: 1, passphrase: nil, now: now)
        }
        let authority = try make()
        let certificate = folder.read("ca/ca.pem")
        expectError(.cannotCreate, "is not overwritten") { _ = try make() }
        #expect(folder.read("ca/ca.pem") == certificate)
        folder.write("lamp.pem", "precious")
        expectError(.cannotCreate, "lamp.pem exists") { _ = try issue(authority, "lamp") }
        folder.write("door.key", "precious")
        expectError(.cannotCreate, "door.key exists") { _ = try issue(authority, "door") }
        expectError(.cannotCreate, "cannot be created") { _ = try issue(authority, "no/where") }
        #expect(folder.names == ["ca", "door.key", "file", "lamp.pem"])
        #expect(folder.read("door.key") == Array("precious".utf8))
    }

    @Test("an empty directory becomes an authority's directory, and gets mode 700")
    func emptyDirectory() throws {
        try #require(unsafe mkdir(path, 0o755) == 0)
        _ = try make()
        #expect(folder.mode("ca") == 0o700)
        #expect(folder.names == ["ca"])
    }

    @Test("a passphrase protects the authority's key, and listing needs none")
    func passphrase() throws {
        let authority = try make(passphrase: secret("open sesame"))
        let text = String(decoding: try #require(folder.read("ca/ca.key")), as: UTF8.self)
        #expect(text.contains("ENCRYPTED PRIVATE KEY"))
        _ = try issue(authority, "lamp", passphrase: secret("open sesame"))
        #expect(try authority.certificates().count == 1)
        expectError(.badKey, "passphrase is wrong") {
            _ = try issue(authority, "door", passphrase: secret("sesame"))
        }
        expectError(.badKey, "no passphrase was given") { _ = try issue(authority, "door") }
        #expect(folder.names == ["ca", "lamp.key", "lamp.pem"])
    }

    @Test("a certificate does not outlast the authority, nor begin before it")
    func limits() throws {
        let authority = try make(days: 10)
        expectError(.configuration, "for 10 days at the most") {
            _ = try issue(authority, "lamp", days: 11)
        }
        expectError(.configuration, "1 to 36525 days") { _ = try issue(authority, "lamp", days: 0) }
        for when in [now - 7_200, now + 11 * 86_400] {
            expectError(.badKey, "which is not now") {
                _ = try authority.issue(
                    SubjectURI("a:b"), days: 1, key: nil, to: folder.file("lamp"), passphrase: nil,
                    now: when)
            }
        }
        #expect(folder.names == ["ca"])
    }

    @Test("an authority in its last day asks for a new authority, and does not propose 0 days")
    func lastDay() throws {
        let authority = try make(days: 1)
        expectError(.configuration, "in less than a day, so make a new authority") {
            _ = try authority.issue(
                SubjectURI("a:b"), days: 1, key: nil, to: folder.file("lamp"), passphrase: nil,
                now: now + 1)
        }
        #expect(folder.names == ["ca"])
    }

    @Test(
        "a device's own key is certified, from a file with the private or the public key",
        arguments: [
            ["ed25519"], ["ed448"], ["EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
            ["EC", "-pkeyopt", "ec_paramgen_curve:P-521"], ["RSA"],
        ])
    func deviceKeys(_ algorithm: [String]) throws {
        let authority = try make()
        let key = folder.file("own.key")
        let outcome = try Subprocess.run(
            "openssl", ["genpkey", "-out", key, "-algorithm"] + algorithm)
        try #require(outcome.status == 0, "\(outcome.errors)")
        try #require(unsafe chmod(key, 0o600) == 0)
        _ = try issue(authority, "private", key: key)
        let text = try openssl("pkey", "-in", key, "-pubout")
        _ = try issue(authority, "public", key: folder.write("own.pub", text, mode: 0o644))
        for name in ["private", "public"] {
            #expect(
                try openssl("x509", "-in", folder.file("\(name).pem"), "-noout", "-pubkey") == text)
            _ = try CertificateFile.identity(
                certificate: folder.file("\(name).pem"), key: key, now: now)
            #expect(folder.read("\(name).key") == nil)
        }
    }

    @Test(
        "a key that TLS 1.3 cannot sign with is refused",
        arguments: [["X25519"], ["EC", "-pkeyopt", "ec_paramgen_curve:secp256k1"]])
    func unusableKeys(_ algorithm: [String]) throws {
        try expectRefusal(of: algorithm, "holds a key that TLS 1.3 cannot sign with: use")
    }

    @Test(
        "a key that is too weak or unusually large for peers is refused",
        arguments: [
            ["RSA", "-pkeyopt", "rsa_keygen_bits:1024"],
            ["RSA", "-pkeyopt", "rsa_keygen_bits:2040"],
            ["RSA", "-pkeyopt", "rsa_keygen_bits:4104"],
            [
                "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-pkeyopt",
                "rsa_keygen_pubexp:4294967311",
            ],
        ])
    func refusedStrength(_ algorithm: [String]) throws {
        try expectRefusal(
            of: algorithm,
            "holds a key that is too weak, or unusually large: RSA needs 2048 to 4096 bits, and an "
                + "odd exponent that is at least 3 and has at most 32 bits")
    }

    /// Expects that an authority refuses a new key of this algorithm.
    private func expectRefusal(of algorithm: [String], _ reason: String) throws {
        let authority = try make()
        let key = folder.file("own.key")
        let outcome = try Subprocess.run(
            "openssl", ["genpkey", "-out", key, "-algorithm"] + algorithm)
        try #require(outcome.status == 0, "\(outcome.errors)")
        try #require(unsafe chmod(key, 0o600) == 0)
        expectError(.badKey, "\(key) \(reason)") { _ = try issue(authority, "lamp", key: key) }
    }

    @Test("a file that cannot serve as a device's key is refused with the reason")
    func badDeviceKeys() throws {
        let authority = try make()
        let text = try openssl("genpkey", "-algorithm", "ed25519")
        let shared = folder.write("shared", text, mode: 0o644)
        expectError(.badKey, "chmod 600 \(shared)") { _ = try issue(authority, "a", key: shared) }
        let encrypted = try openssl(
            "genpkey", "-algorithm", "ed25519", "-aes256", "-pass", "pass:hunter2")
        let compressed = try openssl(
            "ec", "-conv_form", "compressed", "-pubout",
            input: Array(try openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout").utf8))
        expectError(.badKey, "unusual encoding") {
            _ = try issue(authority, "a", key: folder.write("compressed", compressed))
        }
        expectError(.badKey, "`openssl pkey -in '\(folder.file("a b"))' -pubout`") {
            _ = try issue(authority, "a", key: folder.write("a b", encrypted))
        }
        expectError(.badKey, "is not one key in PEM form") {
            _ = try issue(authority, "a", key: folder.write("text", "hello\n"))
        }
        expectError(.badKey, "holds CERTIFICATE") {
            _ = try issue(authority, "a", key: authority.certificatePath)
        }
        let damaged = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"
        expectError(.badKey, "damaged key") {
            _ = try issue(authority, "a", key: folder.write("damaged", damaged))
        }
        expectError(.noSuchFile, "no such file") {
            _ = try issue(authority, "a", key: folder.file("missing"))
        }
        #expect(folder.names == ["a b", "ca", "compressed", "damaged", "shared", "text"])
    }

    @Test(
        "a missing or damaged directory, a directory open to others, and a foreign certificate are refused"
    )
    func damagedAuthority() throws {
        expectError(.noSuchFile, "make one with `blesec ca init") {
            _ = try CertificateAuthority(path)
        }
        let authority = try make()
        let lamp = try issue(authority, "lamp")
        let other = try CertificateAuthority.create(
            folder.file("other"), name: nil, days: 1, passphrase: nil, now: now)
        /// Calls `body` while a file has other content, or is missing if `bytes` is nil.
        func replacing(
            _ name: String, with bytes: [UInt8]?, _ body: () throws -> Void
        ) throws {
            let old = try #require(folder.read("ca/\(name)"))
            if let bytes {
                folder.write("ca/\(name)", bytes)
            } else {
                unsafe unlink(folder.file("ca/\(name)"))
            }
            try body()
            folder.write("ca/\(name)", old)
        }
        let revoke = { _ = try authority.revoke(.serial(lamp.serial), passphrase: nil, now: now) }
        try replacing("ca.pem", with: folder.read("lamp.pem")) {
            expectError(.badKey, "not the certificate of one authority") {
                _ = try CertificateAuthority(path)
            }
        }
        try replacing("ca.key", with: folder.read("other/ca.key")) {
            expectError(.badKey, "is not the key of") { _ = try issue(authority, "door") }
        }
        try replacing("ca.key", with: Array(try openssl("genpkey", "-algorithm", "x25519").utf8)) {
            expectError(.badKey, "is not the Ed25519 key") { _ = try issue(authority, "door") }
        }
        try replacing("ca.crl", with: folder.read("other/ca.crl")) {
            expectError(.badKey, "none of the authorities has signed", revoke)
        }
        try replacing("ca.crl", with: nil) {
            expectError(.noSuchFile, "newest copy of the list", revoke)
        }
        try replacing("ca.crl", with: []) {
            expectError(.badKey, "is not the authority's revocation list alone", revoke)
        }
        try replacing("issued/\(lamp.serial).pem", with: Array("hello".utf8)) {
            expectError(.badKey, "holds no certificate") { _ = try authority.certificates() }
        }
        _ = try issue(other, "door", days: 1)
        expectError(.badKey, "of another authority") {
            _ = try authority.revoke(.file(folder.file("door.pem")), passphrase: nil, now: now)
        }
        expectError(.noSuchFile, "has issued no certificate 1234") {
            _ = try authority.revoke(.init("12:34"), passphrase: nil, now: now)
        }
        try #require(unsafe chmod(path, 0o750) == 0)
        expectError(.badKey, "run `chmod 700") { _ = try CertificateAuthority(path) }
        #expect(try other.certificates().count == 1)
    }

    @Test("a record that holds another certificate is refused, and revokes nothing")
    func exchangedRecord() throws {
        let authority = try make()
        let lamp = try issue(authority, "lamp")
        let door = try issue(authority, "door")
        let record = "ca/issued/\(lamp.serial).pem"
        let own = try #require(folder.read(record))
        folder.write(record, try #require(folder.read("ca/issued/\(door.serial).pem")))
        let list = try #require(folder.read("ca/ca.crl"))
        let reason = "\(folder.file(record)) holds the certificate \(door.serial)"
        expectError(.badKey, reason) { _ = try authority.certificates() }
        expectError(.badKey, reason) {
            _ = try authority.revoke(.serial(lamp.serial), passphrase: nil, now: now)
        }
        #expect(folder.read("ca/ca.crl") == list)
        // The certificate itself, in any file, can still be revoked.
        folder.write("copy.pem", own)
        let revoked = try authority.revoke(
            .file(folder.file("copy.pem")), passphrase: nil, now: now)
        #expect(revoked.serial == lamp.serial)
    }

    @Test("a list with other lines or lists is not replaced: their revocations would be lost")
    func foreignLines() throws {
        let authority = try make()
        let lamp = try issue(authority, "lamp")
        let door = try issue(authority, "door")
        let own = try #require(folder.read("ca/ca.crl"))
        for addition in [Array("\(door.fingerprint) stolen\n".utf8), own] {
            folder.write("ca/ca.crl", own + addition)
            expectError(.badKey, "is not the authority's revocation list alone") {
                _ = try authority.revoke(.serial(lamp.serial), passphrase: nil, now: now)
            }
            #expect(folder.read("ca/ca.crl") == own + addition)
        }
        folder.write("ca/ca.crl", Array("# the list of our lamps\n".utf8) + own)
        _ = try authority.revoke(.serial(lamp.serial), passphrase: nil, now: now)
        #expect(try authority.certificates().count { $0.state(at: now) == .revoked } == 1)
    }

    @Test("if the list's name is a symbolic link, the file to which it leads is replaced")
    func linkedList() throws {
        let authority = try make()
        let lamp = try issue(authority, "lamp")
        let target = folder.write("published.crl", try #require(folder.read("ca/ca.crl")))
        let link = authority.revocationListPath
        unsafe unlink(link)
        try #require(unsafe symlink(target, link) == 0)
        _ = try authority.revoke(.serial(lamp.serial), passphrase: nil, now: now)
        #expect(try openssl("crl", "-in", target, "-noout", "-text").contains("\(lamp.serial)"))
        var status = stat()
        try #require(unsafe lstat(link, &status) == 0)
        #expect(status.st_mode & S_IFMT == S_IFLNK)
    }

    @Test("a certificate that is not valid yet is `future`; an expired authority revokes nothing")
    func otherClocks() throws {
        let authority = try make(days: 400)
        let later = now + 30 * 86_400
        let lamp = try authority.issue(
            SubjectURI("a:b"), days: 1, key: nil, to: folder.file("lamp"), passphrase: nil,
            now: later)
        #expect(lamp.state(at: now) == .future)
        #expect(lamp.state(at: later) == .valid)
        let list = folder.read("ca/ca.crl")
        expectError(.badKey, "has expired on") {
            _ = try authority.revoke(
                .serial(lamp.serial), passphrase: nil, now: authority.expiry + 1)
        }
        #expect(folder.read("ca/ca.crl") == list)
    }

    @Test("if the folder for a certificate is missing, the certificate is not recorded")
    func missingFolder() throws {
        let authority = try make()
        expectError(.cannotCreate, "cannot be created: No such file or directory") {
            _ = try issue(authority, "none/lamp")
        }
        folder.write("ca/issued/beef.pem", "a file that another program has put there")
        #expect(try authority.certificates().isEmpty)
    }

    @Test("a revocation list is sorted by time of revocation, and within a second by serial number")
    func listOrder() throws {
        let authority = try make()
        let serials = try (0..<4).map { try issue(authority, "device\($0)").serial }
        let ordered = serials.sorted { $0.description < $1.description }
        let revocations: [(index: Int, delay: Int64)] = [(2, 60), (1, 0), (3, 60), (0, 0)]
        for (index, delay) in revocations {
            _ = try authority.revoke(.serial(ordered[index]), passphrase: nil, now: now + delay)
        }
        let text = try openssl("crl", "-in", authority.revocationListPath, "-noout", "-text")
        let lines = text.split(separator: "\n").filter { $0.contains("Serial Number: ") }
        #expect(lines.count == 4)
        for (line, serial) in zip(lines, ordered) { #expect(line.hasSuffix("\(serial)")) }
    }

    @Test(
        "a valid URI is accepted",
        arguments: [
            "blesec://devices/lamp", "spiffe://home/door?x=1#y", "urn:uuid:1", "a:b", "x+y-z.1:%20",
        ])
    func goodURI(_ text: String) throws {
        #expect(try SubjectURI(text).text == text)
    }

    @Test(
        "an invalid URI is refused with the reason",
        arguments: [
            ("", "no scheme"), ("lamp", "no scheme"), (":lamp", "no scheme"),
            ("1a:lamp", "no scheme"), ("a_b:lamp", "no scheme"),
            ("blesec:", "nothing after the scheme"),
            ("blesec://a b", "has to be written as %"), ("blesec://ä", "has to be written as %"),
            ("blesec://a\u{0}b", "has to be written as %"), ("a:b\n", "has to be written as %"),
            ("a:<b>", "has to be written as %"), ("a:%2", "two hexadecimal digits"),
            ("a:%zz", "two hexadecimal digits"),
            ("a:" + String(repeating: "b", count: 254), "256 bytes"),
        ])
    func badURI(_ text: String, _ reason: String) {
        expectError(.configuration, reason) { _ = try SubjectURI(text) }
    }

    @Test("the longest URI and name are accepted; an empty, longer or unprintable name is refused")
    func longest() throws {
        let name = String(repeating: "n", count: 64)
        let authority = try CertificateAuthority.create(
            path, name: name, days: 400, passphrase: nil, now: now)
        let uri = "a:" + String(repeating: "b", count: 253)
        #expect(try issue(authority, "lamp", uri: uri).uri == uri)
        _ = try openssl("verify", "-CAfile", authority.certificatePath, folder.file("lamp.pem"))
        for bad in ["", name + "n", "a\nb", "ä"] {
            expectError(.configuration, "1 to 64 printable ASCII") {
                _ = try CertificateAuthority.create(
                    folder.file("b"), name: bad, days: 1, passphrase: nil, now: now)
            }
        }
    }

    @Test("a serial number is read in the forms that openssl writes, and is written in one form")
    func serials() {
        #expect(SerialNumber("0A1B")?.description == "0A1B")
        #expect(SerialNumber("0a:1b") == SerialNumber("A1B"))
        #expect(SerialNumber("000A1B") == SerialNumber("A1B"))
        #expect(SerialNumber("FF")?.description == "FF")
        #expect(SerialNumber("FF")?.der == [0x02, 0x02, 0x00, 0xFF])
        for text in [
            "", ":", "0", "00", "xy", "1 2", "+1", "-1", String(repeating: "F", count: 41),
        ] {
            #expect(SerialNumber(text) == nil)
        }
    }
}

extension String {
    /// How many times `part` occurs in the text.
    fileprivate func occurrences(of part: String) -> Int { ranges(of: part).count }
}
