import BLESecChannelCore
import BLESecCredentials
import BLESecTLSEngine
import Glibc
import TestSupport
import Testing

/// Revocation files of a device, which change while the device uses them.
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

    private func load(_ name: String, _ bytes: [UInt8]) throws -> RevocationFile {
        try RevocationFile(folder.write(name, bytes), authorities: authorities)
    }

    private func expect(
        _ code: ChannelError.Code, _ part: String, at location: SourceLocation = #_sourceLocation,
        _ body: () throws -> Void
    ) {
        do {
            try body()
            Issue.record("nothing was refused", sourceLocation: location)
        } catch let error as ChannelError {
            #expect(error.code == code, "\(error.reason)", sourceLocation: location)
            #expect(error.reason.contains(part), "\(error.reason)", sourceLocation: location)
        } catch {
            Issue.record(error, sourceLocation: location)
        }
    }

    @Test("a list in PEM or DER form revokes by serial number, for its own issuer alone")
    func forms() throws {
        try revoke(lamp)
        _ = try openssl(
            "crl", "-in", authority.revokedPath, "-outform", "DER", "-out", folder.file("der"))
        for path in [authority.revokedPath, folder.file("der")] {
            let list = try RevocationFile(path, authorities: authorities).current(at: now)
            #expect(contains(list, lamp))
            #expect(!contains(list, door))
            #expect(
                !list.contains(
                    serial: lamp.serial, issuer: door.fingerprint, key: lamp.fingerprint))
        }
    }

    @Test("a line with a fingerprint revokes the key, alone or beside a list")
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

    @Test("lists of several authorities may be in one file")
    func several() throws {
        _ = try CertificateAuthority.create(
            folder.file("other"), name: nil, days: 400, passphrase: nil, now: now)
        try revoke(lamp)
        let lists = try #require(folder.read("ca/ca.crl")) + #require(folder.read("other/ca.crl"))
        expect(.badKey, "none of the authorities has signed") { _ = try load("both", lists) }
        let certificates = try ["ca/ca.pem", "other/ca.pem"].flatMap {
            try #require(folder.read($0))
        }
        let both = try CertificateFile.authorities(folder.write("authorities", certificates))
        let file = try RevocationFile(folder.file("both"), authorities: both)
        #expect(contains(try file.current(at: now), lamp))
    }

    @Test("a changed list takes effect at the next check")
    func reloads() throws {
        let file = try RevocationFile(authority.revokedPath, authorities: authorities)
        #expect(!contains(try file.current(at: now), lamp))
        try revoke(lamp)
        #expect(contains(try file.current(at: now), lamp))
        try revoke(door)
        #expect(contains(try file.current(at: now), door))
    }

    @Test("a file that becomes invalid admits no certificate until it is valid again")
    func failsClosed() throws {
        try revoke(lamp)
        let good = try #require(folder.read("ca/ca.crl"))
        let path = folder.write("list", good)
        let file = try RevocationFile(path, authorities: authorities)
        let bad: [(ChannelError.Code, String, () throws -> Void)] = [
            (.noSuchFile, "no such file", { unsafe unlink(path) }),
            (.badKey, "revokes nothing", { folder.write("list", "") }),
            (.badKey, "cut off", { folder.write("list", Array(good.dropLast(30))) }),
            (.badKey, "can be changed by others", { folder.write("list", good, mode: 0o666) }),
            (.badKey, "a directory", { _ = unsafe (unlink(path), mkdir(path, 0o700)) }),
        ]
        for (code, part, spoil) in bad {
            _ = try file.current(at: now)
            try spoil()
            for _ in 0..<2 { expect(code, part) { _ = try file.current(at: now) } }
            unsafe rmdir(path)
            folder.write("list", good)
        }
        #expect(contains(try file.current(at: now), lamp))
        #expect(file.path == path)
    }

    @Test("a list is valid until its next-update time, and no longer")
    func outOfDate() throws {
        let file = try RevocationFile(authority.revokedPath, authorities: authorities)
        _ = try file.current(at: authority.expiry)
        expect(.badKey, "out of date") { _ = try file.current(at: authority.expiry + 1) }
    }

    @Test("a list with a changed or missing byte is refused")
    func tampering() throws {
        try revoke(lamp)
        _ = try openssl(
            "crl", "-in", authority.revokedPath, "-outform", "DER", "-out", folder.file("der"))
        let der = try #require(folder.read("der"))
        for index in der.indices {
            var wrong = der
            wrong[index] ^= 1
            #expect(throws: ChannelError.self) { try load("wrong", wrong) }
        }
        for count in der.indices {
            #expect(throws: ChannelError.self) { try load("short", Array(der[..<count])) }
        }
        #expect(throws: ChannelError.self) { try load("long", der + [0]) }
        // Only the last line feed of the text is not needed.
        let pem = try #require(folder.read("ca/ca.crl"))
        for count in 0..<pem.count - 1 {
            #expect(throws: ChannelError.self) { try load("short", Array(pem[..<count])) }
        }
        #expect(contains(try load("whole", pem.dropLast()).current(at: now), lamp))
    }

    @Test("a file that is not a list, revokes nothing or is too long is refused with the reason")
    func malformed() throws {
        let pem = try #require(folder.read("ca/ca.crl"))
        expect(.badKey, "line 1: neither") { _ = try load("a", Array("hello\n".utf8) + pem) }
        expect(.badKey, "line 1: neither") {
            _ = try load("b", try #require(folder.read("lamp.pem")))
        }
        expect(.badKey, "revokes nothing") { _ = try load("c", Array("# nothing\n".utf8)) }
        expect(.badKey, "line 1: the revocation list is damaged") {
            let text = String(decoding: pem, as: UTF8.self).replacing("M", with: "!")
            _ = try load("d", Array(text.utf8))
        }
        expect(.limitExceeded, "longer than") {
            _ = try load("e", [UInt8](repeating: 0x30, count: RevocationFile.maximumLength + 1))
        }
        expect(.noSuchFile, "no such file") {
            _ = try RevocationFile(folder.file("none"), authorities: authorities)
        }
    }

    @Test("a list that covers only some certificates is refused")
    func partial() throws {
        let config = folder.write(
            "ca.cnf",
            """
            [ca]
            default_ca=own
            [own]
            database=\(folder.write("index.txt", ""))
            crlnumber=\(folder.write("crlnumber", "01\n"))
            certificate=\(authority.certificatePath)
            private_key=\(folder.file("ca/ca.key"))
            default_md=default
            default_crl_days=30
            crl_extensions=list
            [list]
            issuingDistributionPoint=critical,@point
            [point]
            onlyuser=TRUE
            """)
        _ = try openssl("ca", "-config", config, "-gencrl", "-out", folder.file("part"))
        expect(.badKey, "critical extension") {
            _ = try RevocationFile(folder.file("part"), authorities: authorities)
        }
        let whole = String(decoding: try #require(folder.read("ca.cnf")), as: UTF8.self)
        folder.write("ca.cnf", whole.replacing("crl_extensions=list\n", with: ""))
        _ = try openssl("ca", "-config", config, "-gencrl", "-out", folder.file("whole"))
        _ = try RevocationFile(folder.file("whole"), authorities: authorities).current(at: now)
    }
}
