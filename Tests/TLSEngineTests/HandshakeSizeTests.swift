import BLESecCredentials
import BLESecTLSEngine
import TestSupport
import Testing

/// The size of a handshake with certificates from `blesec ca`.
@Suite("Size of a handshake with a private authority's certificates")
struct HandshakeSizeTests {
    @Test("a handshake with X25519 alone takes at most 1,450 bytes in both directions together")
    func bytes() throws {
        let folder = ScratchFolder()
        let authority = try CertificateAuthority.create(
            folder.file("ca"), name: nil, days: 365, passphrase: nil, now: TestAuthority.now)
        let authorities = try CertificateFile.authorities(authority.certificatePath)
        var options = TLSOptions()
        options.groups = ["X25519"]
        let contexts = try ["lamp-0001", "door-0001"].map { name in
            let uri = try SubjectURI("blesec://devices/\(name)")
            #expect(uri.text.utf8.count == 26)
            _ = try authority.issue(
                uri, days: 30, key: nil, to: folder.file(name), passphrase: nil,
                now: TestAuthority.now)
            let identity = try CertificateFile.identity(
                certificate: folder.file("\(name).pem"), key: folder.file("\(name).key"),
                now: TestAuthority.now)
            return try TLSContext(identity: identity, authorities: authorities, options: options)
        }
        var pair = try EnginePair(contexts[0], contexts[1])
        try pair.shakeHands()
        #expect(pair.dialer.established != nil && pair.acceptor.established != nil)
        let total = pair.sentCounts.values.reduce(0, +)
        #expect(total <= 1_450, "\(pair.sentCounts)")
    }
}
