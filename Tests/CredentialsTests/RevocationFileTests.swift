import BLESecChannelCore
import BLESecTLSEngine
import Glibc
import TestSupport
import Testing

@testable import BLESecCredentials

/// The revocation file of a device: what it revokes, and what happens when it changes.
@Suite("Revocation files")
struct RevocationFileTests {
    let folder = ScratchFolder()
    let now = Int64(time(nil))
    let authority: CertificateAuthority
    let authorities: CertificateAuthorities
    let lamp: IssuedCertificate
    let door: IssuedCertificate

    init() throws {
        authority = try CertificateAuthority.create(
            folder.file("ca"), name: nil, days: 400, passphrase: nil, now: now)
        authorities = try CertificateFile.authorities(authority.certificatePath)
        lamp = try Self.issue(authority, folder, "lamp", now)
        door = try Self.issue(authority, folder, "door", now)
    }

    private static func issue(
        _ authority: CertificateAuthority, _ folder: ScratchFolder, _ name: String, _ now: Int64
    ) throws -> IssuedCertificate {
        try authority.issue(
            SubjectURI("blesec://devices/\(name)"), days: 365, key: nil, to: folder.file(name),
            passphrase: nil, now: now)
    }

    private func revoke(_ certificate: IssuedCertificate) throws {
        _ = try authority.revoke(.serial(certificate.serial), passphrase: nil, now: now)
    }

    private func contains(_ list: RevocationList, _ certificate: IssuedCertificate) -> Bool {
        list.contains(
            serial: certificate.serial, issuer: authority.fingerprint, key: certificate.fingerprint)
    }

    /// Writes the bytes to a file and loads the file.
    private func load(_ name: String, _ bytes: [UInt8]) throws -> RevocationFile {
        try RevocationFile(folder.write(name, bytes), authorities: authorities)
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

    @Test("a list in PEM or DER form revokes serial numbers of its own issuer only")
    func forms() throws {
        try revoke(lamp)
        _ = try openssl(
            "crl", "-in", authority.revocationListPath, "-outform", "DER", "-out",
            folder.file("der"))
        for path in [authority.revocationListPath, folder.file("der")] {
            let list = try RevocationFile(path, authorities: authorities).current(at: now)
            #expect(contains(list, lamp))
            #expect(!contains(list, door))
            #expect(
                !list.contains(
                    serial: lamp.serial, issuer: door.fingerprint, key: lamp.fingerprint))
        }
    }

    @Test("a line with a fingerprint revokes that key, in a file with or without a list")
    func keys() throws {
        try revoke(lamp)
        let line = Array("# stolen\n\(door.fingerprint) the back door\n".utf8)
        let pem = try #require(folder.read("ca/ca.crl"))
        let alone = try load("alone", line).current(at: now)
        #expect(contains(alone, door) && !contains(alone, lamp))
        for text in [line + pem, pem + line] {
            let both = try load("both", text).current(at: now)
            #expect(contains(both, door) && contains(both, lamp))
        }
    }

    @Test("a file may contain lists of several authorities, if all of them are trusted")
    func several() throws {
        _ = try CertificateAuthority.create(
            folder.file("other"), name: nil, days: 400, passphrase: nil, now: now)
        try revoke(lamp)
        let lists = try #require(folder.read("ca/ca.crl")) + #require(folder.read("other/ca.crl"))
        expectError(.badKey, "none of the authorities has signed") { _ = try load("both", lists) }
        let certificates = try ["ca/ca.pem", "other/ca.pem"].flatMap {
            try #require(folder.read($0))
        }
        let bothAuthorities = try CertificateFile.authorities(
            folder.write("authorities", certificates))
        let file = try RevocationFile(folder.file("both"), authorities: bothAuthorities)
        #expect(contains(try file.current(at: now), lamp))
    }

    @Test("if an accepted authority's list disappears from the file, checks fail until it is back")
    func lostList() throws {
        _ = try CertificateAuthority.create(
            folder.file("other"), name: nil, days: 400, passphrase: nil, now: now)
        try revoke(lamp)
        let own = try #require(folder.read("ca/ca.crl"))
        let other = try #require(folder.read("other/ca.crl"))
        let certificates = try ["ca/ca.pem", "other/ca.pem"].flatMap {
            try #require(folder.read($0))
        }
        let path = folder.write("lists", own + other)
        let file = try RevocationFile(
            path,
            authorities: CertificateFile.authorities(folder.write("authorities", certificates)))
        _ = try file.current(at: now)
        // A file of keys alone fails too, although it is valid as a first content.
        for rest in [other, own, Array("\(door.fingerprint)\n".utf8)] {
            folder.write("lists", rest)
            for _ in 0..<2 {
                expectError(.badKey, "has lost the revocation list of an authority") {
                    _ = try file.current(at: now)
                }
            }
        }
        folder.write("lists", other + own)
        #expect(contains(try file.current(at: now), lamp))
    }

    @Test("if a CRL number cannot be increased, the revocation fails, and the list stays unchanged")
    func lastNumber() throws {
        let config = configuration(
            certificate: authority.certificatePath, key: folder.file("ca/ca.key"))
        for number in ["FFFFFFFFFFFFFFFF", "010000000000000005"] {
            folder.write("crlnumber", "\(number)\n")
            _ = try openssl("ca", "-config", config, "-gencrl", "-out", folder.file("list"))
            let list = try #require(folder.read("list"))
            folder.write("ca/ca.crl", list)
            expectError(.badKey, "CRL number") { try revoke(lamp) }
            #expect(folder.read("ca/ca.crl") == list)
        }
        folder.write("crlnumber", "FFFFFFFFFFFFFFFE\n")
        _ = try openssl("ca", "-config", config, "-gencrl", "-out", folder.file("ca/ca.crl"))
        try revoke(lamp)
        #expect(
            try openssl("crl", "-in", authority.revocationListPath, "-noout", "-crlnumber")
                .hasSuffix("FFFFFFFFFFFFFFFF\n"))
    }

    @Test("a changed list takes effect at the next check")
    func reloads() throws {
        let file = try RevocationFile(authority.revocationListPath, authorities: authorities)
        #expect(!contains(try file.current(at: now), lamp))
        try revoke(lamp)
        #expect(contains(try file.current(at: now), lamp))
        try revoke(door)
        #expect(contains(try file.current(at: now), door))
    }

    @Test("while the file is invalid or missing, every check fails, until the file is valid again")
    func failsClosed() throws {
        try revoke(lamp)
        let good = try #require(folder.read("ca/ca.crl"))
        let path = folder.write("list", good)
        let file = try RevocationFile(path, authorities: authorities)
        let bad: [(code: ChannelError.Code, part: String, spoil: () throws -> Void)] = [
            (.noSuchFile, "no such file", { unsafe unlink(path) }),
            (.badKey, "revokes nothing", { folder.write("list", "") }),
            (.badKey, "cut off", { folder.write("list", Array(good.dropLast(30))) }),
            (.badKey, "can be changed by others", { folder.write("list", good, mode: 0o666) }),
            (.badKey, "a directory", { _ = unsafe (unlink(path), mkdir(path, 0o700)) }),
        ]
        for (code, part, spoil) in bad {
            _ = try file.current(at: now)
            try spoil()
            // Twice: the failed check must not make the next one succeed from a cache.
            for _ in 0..<2 { expectError(code, part) { _ = try file.current(at: now) } }
            unsafe rmdir(path)
            folder.write("list", good)
        }
        #expect(contains(try file.current(at: now), lamp))
        #expect(file.path == path)
    }

    @Test("a list is valid until its next-update time, and no longer")
    func outOfDate() throws {
        // `blesec ca` makes a list valid until the authority expires.
        let file = try RevocationFile(authority.revocationListPath, authorities: authorities)
        _ = try file.current(at: authority.expiry)
        expectError(.badKey, "out of date") { _ = try file.current(at: authority.expiry + 1) }
    }

    @Test("a file with several lists is valid until the earliest of their next-update times")
    func outOfDateList() throws {
        let other = try CertificateAuthority.create(
            folder.file("other"), name: nil, days: 100, passphrase: nil, now: now)
        let certificates = try ["ca/ca.pem", "other/ca.pem"].flatMap {
            try #require(folder.read($0))
        }
        let bothAuthorities = try CertificateFile.authorities(
            folder.write("authorities", certificates))
        let (long, short) = try (
            #require(folder.read("ca/ca.crl")), #require(folder.read("other/ca.crl"))
        )
        for lists in [long + short, short + long] {
            let file = try RevocationFile(
                folder.write("both", lists), authorities: bothAuthorities)
            _ = try file.current(at: other.expiry)
            expectError(.badKey, "out of date") { _ = try file.current(at: other.expiry + 1) }
        }
    }

    @Test("a list with a changed, missing or added byte is refused")
    func tampering() throws {
        try revoke(lamp)
        _ = try openssl(
            "crl", "-in", authority.revocationListPath, "-outform", "DER", "-out",
            folder.file("der"))
        let der = try #require(folder.read("der"))
        for index in der.indices {
            var wrong = der
            wrong[index] ^= 1
            #expect(throws: ChannelError.self) { try load("wrong", wrong) }
        }
        for length in der.indices {
            #expect(throws: ChannelError.self) { try load("short", Array(der[..<length])) }
        }
        #expect(throws: ChannelError.self) { try load("long", der + [0]) }
        // The PEM form needs every byte except the last line feed.
        let pem = try #require(folder.read("ca/ca.crl"))
        for length in 0..<pem.count - 1 {
            #expect(throws: ChannelError.self) { try load("short", Array(pem[..<length])) }
        }
        #expect(contains(try load("whole", pem.dropLast()).current(at: now), lamp))
    }

    @Test(
        "a file that is invalid, revokes nothing, is too long or is missing is refused with the reason"
    )
    func malformed() throws {
        let pem = try #require(folder.read("ca/ca.crl"))
        expectError(.badKey, "line 1: neither") { _ = try load("a", Array("hello\n".utf8) + pem) }
        expectError(.badKey, "line 1: neither") {
            _ = try load("b", try #require(folder.read("lamp.pem")))
        }
        expectError(.badKey, "revokes nothing") { _ = try load("c", Array("# nothing\n".utf8)) }
        expectError(.badKey, "line 1: the revocation list is damaged") {
            let text = String(decoding: pem, as: UTF8.self).replacing("M", with: "!")
            _ = try load("d", Array(text.utf8))
        }
        expectError(.limitExceeded, "longer than") {
            _ = try load("e", [UInt8](repeating: 0x30, count: RevocationFile.maximumLength + 1))
        }
        expectError(.noSuchFile, "no such file") {
            _ = try RevocationFile(folder.file("none"), authorities: authorities)
        }
    }

    /// Writes the configuration in `ca.cnf` for lists that the `openssl` command makes, with further
    /// `lines`, and returns its path.
    private func configuration(certificate: String, key: String, _ lines: String = "") -> String {
        folder.write(
            "ca.cnf",
            """
            [ca]
            default_ca=own
            [own]
            database=\(folder.write("index.txt", ""))
            crlnumber=\(folder.write("crlnumber", "01\n"))
            certificate=\(certificate)
            private_key=\(key)
            default_md=default
            default_crl_days=30
            \(lines)
            """)
    }

    @Test(
        "a list of only some certificates, or only of changes, is refused, even if the extension that says so is not critical",
        arguments: [
            "issuingDistributionPoint=critical,@point", "issuingDistributionPoint=@point",
            "2.5.29.27=critical,DER:020101", "2.5.29.27=DER:020101",
        ])
    func partial(_ extension: String) throws {
        let config = configuration(
            certificate: authority.certificatePath, key: folder.file("ca/ca.key"),
            "crl_extensions=list\n[list]\n\(`extension`)\n[point]\nonlyuser=TRUE\n")
        _ = try openssl("ca", "-config", config, "-gencrl", "-out", folder.file("part"))
        expectError(.badKey, "only whole lists are understood") {
            _ = try RevocationFile(folder.file("part"), authorities: authorities)
        }
        // Without the extension, the list covers all certificates and is accepted.
        let whole = String(decoding: try #require(folder.read("ca.cnf")), as: UTF8.self)
        folder.write("ca.cnf", whole.replacing("crl_extensions=list\n", with: ""))
        _ = try openssl("ca", "-config", config, "-gencrl", "-out", folder.file("whole"))
        _ = try RevocationFile(folder.file("whole"), authorities: authorities).current(at: now)
    }

    @Test(
        "a list with an unknown critical extension is refused; an unknown extension that is not critical is ignored"
    )
    func unknownExtension() throws {
        let config = configuration(
            certificate: authority.certificatePath, key: folder.file("ca/ca.key"),
            "crl_extensions=list\n[list]\n1.3.6.1.4.1.99999.1=critical,DER:0500\n")
        _ = try openssl("ca", "-config", config, "-gencrl", "-out", folder.file("critical"))
        expectError(.badKey, "has a critical extension") {
            _ = try RevocationFile(folder.file("critical"), authorities: authorities)
        }
        let text = String(decoding: try #require(folder.read("ca.cnf")), as: UTF8.self)
        folder.write("ca.cnf", text.replacing("critical,", with: ""))
        _ = try openssl("ca", "-config", config, "-gencrl", "-out", folder.file("other"))
        _ = try RevocationFile(folder.file("other"), authorities: authorities).current(at: now)
    }

    /// A list in DER form that revokes `lamp`. The entry has an extension with this identifier and
    /// this value.
    private func list(
        withEntryExtension oid: [UInt8], isCritical: Bool, _ value: [UInt8]
    ) throws -> [UInt8] {
        let flag: [UInt8] = isCritical ? [0x01, 0x01, 0xFF] : []
        let field = DER.sequence(
            DER.element(0x06, oid), flag, DER.element(DER.octetString, value))
        let entry = DER.sequence(lamp.serial.der, DER.time(now), DER.sequence(field))
        let key = try SigningKey(
            IdentityFile.privateKeyInfo(folder.file("ca/ca.key"), passphrase: nil))
        return try key.signed(
            DER.sequence(
                DER.number(1), SigningKey.algorithm, CertificateProfile.name("ca"), DER.time(now),
                DER.time(now + 86_400), DER.sequence(entry)))
    }

    @Test(
        "a list whose entries name other issuers, or have unknown critical extensions, is refused")
    func entryExtensions() throws {
        // The identifiers of reasonCode, of certificateIssuer and of an unknown extension, in DER.
        let reason: [UInt8] = [0x55, 0x1D, 0x15]
        let issuer: [UInt8] = [0x55, 0x1D, 0x1D]
        let unknown: [UInt8] = [0x2B, 6, 1, 4, 1, 0x86, 0x8D, 0x1F, 1]
        // The value of a certificateIssuer: a URI, as a general name.
        let names = DER.sequence(DER.element(0x86, Array("a:b".utf8)))
        for (oid, isCritical, value) in [
            (issuer, false, names), (issuer, true, names), (unknown, true, [0x05, 0x00]),
        ] {
            let der = try list(withEntryExtension: oid, isCritical: isCritical, value)
            expectError(.badKey, "only whole lists are understood") { _ = try load("list", der) }
        }
        // The reason "keyCompromise" changes nothing, and neither does an unknown extension.
        for (oid, value) in [(reason, [0x0A, 0x01, 0x01]), (unknown, [0x05, 0x00] as [UInt8])] {
            let der = try list(withEntryExtension: oid, isCritical: false, value)
            #expect(contains(try load("list", der).current(at: now), lamp))
        }
    }

    @Test("a list is refused if its signer's certificate does not permit it to sign lists")
    func keyUsage() throws {
        let key = folder.file("signer.key")
        _ = try openssl("genpkey", "-algorithm", "ed25519", "-out", key)
        for (usage, permitsLists) in [("keyCertSign", false), ("keyCertSign,cRLSign", true)] {
            let request = folder.write(
                "signer.cnf",
                "[req]\ndistinguished_name=dn\nx509_extensions=own\nprompt=no\n[dn]\n"
                    + "CN=signer\n[own]\nbasicConstraints=critical,CA:TRUE\nkeyUsage=\(usage)\n")
            let certificate = folder.file("signer.pem")
            _ = try openssl(
                "req", "-x509", "-key", key, "-config", request, "-days", "30", "-out", certificate)
            let signer = try CertificateFile.authorities(certificate)
            let config = configuration(certificate: certificate, key: key)
            let list = folder.file("signer.crl")
            _ = try openssl("ca", "-config", config, "-gencrl", "-out", list)
            if permitsLists {
                _ = try RevocationFile(list, authorities: signer).current(at: now)
            } else {
                expectError(.badKey, "none of the authorities has signed") {
                    _ = try RevocationFile(list, authorities: signer)
                }
            }
        }
    }

    @Test("a list that is signed with a weak hash is refused")
    func weakHash() throws {
        let key = folder.file("rsa.key")
        _ = try openssl("genpkey", "-algorithm", "rsa", "-out", key)
        let certificate = folder.file("rsa.pem")
        let request = folder.write(
            "rsa.cnf",
            "[req]\ndistinguished_name=dn\nx509_extensions=own\nprompt=no\n[dn]\nCN=rsa\n"
                + "[own]\n\(TestAuthority.authorityExtensions("CA:TRUE"))")
        _ = try openssl(
            "req", "-x509", "-key", key, "-config", request, "-days", "30", "-out", certificate)
        let authorities = try CertificateFile.authorities(certificate)
        let config = configuration(certificate: certificate, key: key)
        for padding in ["pkcs1", "pss"] {
            for (hash, isStrong) in [("sha1", false), ("sha256", true), ("md5", false)] {
                // OpenSSL signs no PSS with MD5.
                if padding == "pss", hash == "md5" { continue }
                let list = folder.file("\(padding)-\(hash)")
                _ = try openssl(
                    "ca", "-config", config, "-gencrl", "-md", hash,
                    "-sigopt", "rsa_padding_mode:\(padding)", "-out", list)
                if isStrong {
                    _ = try RevocationFile(list, authorities: authorities).current(at: now)
                } else {
                    expectError(.badKey, "weak hash") {
                        _ = try RevocationFile(list, authorities: authorities)
                    }
                }
            }
        }
    }

    @Test("a file that hides a second fingerprint in a line is refused")
    func hiddenKeys() throws {
        let (first, second) = (lamp.fingerprint, door.fingerprint)
        expectError(.badKey, "line 1: a second fingerprint") {
            _ = try load("a", Array("\(first) \(second)\n".utf8))
        }
        for text in ["\(first) stolen\r\(second) stolen\r", "# revoked\r\(first)\r"] {
            expectError(.badKey, "line 1: a carriage return inside a line") {
                _ = try load("b", Array(text.utf8))
            }
        }
        let file = try load("c", Array("\(first) stolen\r\n\(second)\r\n".utf8))
        let list = try file.current(at: now)
        #expect(contains(list, lamp) && contains(list, door))
    }
}
