import BLESecChannelCore
import BLESecPrimitives
import Foundation
import Testing

@Suite("Text forms of keys in Swift and JSON")
struct TextFormTests {
    private static let digest = String(repeating: "A", count: 43)
    private static let key = Data([UInt8](repeating: 9, count: 32)).base64EncodedString()

    @Test("a fingerprint is parsed from text, and encoded as JSON")
    func fingerprint() throws {
        let fingerprint = try Fingerprint(parsing: "SHA256:\(Self.digest)")
        #expect(Fingerprint(fingerprint.description) == fingerprint)
        let json = try JSONEncoder().encode([fingerprint])
        #expect(try JSONDecoder().decode([String].self, from: json) == [fingerprint.description])
        #expect(try JSONDecoder().decode([Fingerprint].self, from: json) == [fingerprint])
    }

    @Test("a peer's key is parsed from base64 or a fingerprint, and printed in the same form")
    func peerKey() throws {
        for text in ["SHA256:\(Self.digest)", Self.key] {
            let key = try PeerKey(parsing: text)
            #expect(key.description == text && PeerKey(text) == key)
            let json = try JSONEncoder().encode([key])
            #expect(try JSONDecoder().decode([PeerKey].self, from: json) == [key])
        }
    }

    @Test(
        "a text that is no key is refused by parsing, by conversion and by JSON decoding",
        arguments: ["", "SHA256:", "SHA256:" + digest.dropLast(), "sha256:" + digest, key + "="])
    func refused(text: String) throws {
        #expect(throws: ChannelError(.badKey, "")) { try Fingerprint(parsing: text) }
        #expect(throws: ChannelError(.badKey, "")) { try PeerKey(parsing: text) }
        #expect(Fingerprint(text) == nil && PeerKey(text) == nil)
        let json = try JSONEncoder().encode([text])
        #expect(throws: DecodingError.self) {
            try JSONDecoder().decode([Fingerprint].self, from: json)
        }
        #expect(throws: DecodingError.self) { try JSONDecoder().decode([PeerKey].self, from: json) }
    }

    @Test("a policy of pinned keys, made from fingerprints or peer keys, admits exactly these keys")
    func pinned() throws {
        let keys = try (0..<3).map { _ in try IdentityKey.generate() }
        let fingerprints = keys.map(\.fingerprint)
        let policies: [TrustPolicy] = [
            .pinned(fingerprints[0], fingerprints[1]),
            .pinned(PeerKey(fingerprint: fingerprints[0]), PeerKey(fingerprint: fingerprints[1])),
        ]
        for policy in policies {
            let admits = keys.map { key in
                let identity = PeerIdentity.publicKey(key.publicKey, curve: .x25519)
                if case .admit = policy.decide(ClaimedIdentity(identity)) { return true }
                return false
            }
            #expect(admits == [true, true, false])
        }
    }
}
