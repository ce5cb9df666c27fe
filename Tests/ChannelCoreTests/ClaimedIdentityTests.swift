import BLESecChannelCore
import BLESecPrimitives
import Testing

@Suite("Claimed identities")
struct ClaimedIdentityTests {
    @Test("a claimed identity is printed as a claim, with the whole fingerprint")
    func description() throws {
        let key = try IdentityKey.generate()
        let claimed = ClaimedIdentity(.publicKey(key.publicKey, curve: .x25519))
        #expect("\(claimed)" == "claimed \(key.fingerprint)")
        #expect("\(ClaimedIdentity(.group))" == "claimed group")
        #expect("\(ClaimedIdentity(.anonymous))" == "claimed anonymous")
    }

    @Test("a key has a fingerprint, a certificate may also have a URI, and a group has neither")
    func parts() throws {
        let info: [UInt8] = [0x30, 0x00]
        let withURI = ClaimedIdentity(
            .certificate(subjectPublicKeyInfo: info, uri: "blesec://devices/lamp"))
        #expect(withURI.fingerprint == Fingerprint(subjectPublicKeyInfo: info))
        #expect(withURI.uri == "blesec://devices/lamp")
        let withoutURI = ClaimedIdentity(.certificate(subjectPublicKeyInfo: info, uri: nil))
        #expect(withoutURI.fingerprint == withURI.fingerprint && withoutURI.uri == nil)
        let key = ClaimedIdentity(.publicKey([UInt8](repeating: 9, count: 32), curve: .x25519))
        #expect(key.fingerprint != nil && key.uri == nil)
        #expect(ClaimedIdentity(.group).fingerprint == nil && ClaimedIdentity(.group).uri == nil)
    }
}
