import BLESecChannelCore
import BLESecPrimitives
import Testing

@Suite("Text forms of keys and fingerprints")
struct PeerKeyTests {
    @Test("a key's base64 and its fingerprint name the same peer", arguments: Curve.allCases)
    func sameFingerprint(curve: Curve) throws {
        let identity = try IdentityKey.generate(curve: curve)
        let text = Base64.encode(identity.publicKey, padded: true)
        let byKey = try PeerKey(parsing: text)
        let byFingerprint = try PeerKey(parsing: identity.fingerprint.description)
        #expect(byKey.fingerprint == byFingerprint.fingerprint)
        #expect(byKey.publicKey == identity.publicKey && byFingerprint.publicKey == nil)
        #expect(Fingerprint(identity.fingerprint.description) == identity.fingerprint)
    }

    @Test("a key or fingerprint with a wrong character, length or case is refused")
    func mutations() throws {
        let identity = try IdentityKey.generate()
        for text in [
            Base64.encode(identity.publicKey, padded: true), identity.fingerprint.description,
        ] {
            for index in text.indices {
                for change in ["", "=", " ", "\n", "-", "é", "\u{0}"] {
                    var changed = text
                    changed.replaceSubrange(index...index, with: change)
                    guard changed != text else { continue }
                    #expect(throws: ChannelError(.badKey, ""), "\(changed)") {
                        try PeerKey(parsing: changed)
                    }
                }
            }
            for changed in [
                text + "=", text + " ", " " + text, text + text, "sha256:" + text.dropFirst(7), "",
            ] {
                #expect(throws: ChannelError(.badKey, ""), "\(changed)") {
                    try PeerKey(parsing: changed)
                }
            }
        }
    }

    @Test("base64 with stray bits in its last character is refused")
    func strayBits() {
        // 32 bytes leave two unused bits in the last digit, for a key and for a digest.
        #expect(throws: ChannelError(.badKey, "")) {
            try PeerKey(parsing: String(repeating: "A", count: 42) + "B=")
        }
        #expect(Fingerprint("SHA256:" + String(repeating: "A", count: 42) + "B") == nil)
    }

    @Test("a public key of low order is refused, since no private key has it")
    func lowOrder() {
        func point(_ first: UInt8, _ curve: Curve) -> [UInt8] {
            [first] + [UInt8](repeating: 0, count: curve.keyLength - 1)
        }
        // The u-coordinates 0, 1 and -1, and the two of order 8 on Curve25519.
        var minusOne25519 = [UInt8](repeating: 0xFF, count: 32)
        (minusOne25519[0], minusOne25519[31]) = (0xEC, 0x7F)
        var minusOne448 = [UInt8](repeating: 0xFF, count: 56)
        (minusOne448[0], minusOne448[28]) = (0xFE, 0xFE)
        let points: [(curve: Curve, bytes: [UInt8])] = [
            (.x25519, point(0, .x25519)), (.x25519, point(1, .x25519)),
            (.x25519, minusOne25519),
            (
                .x25519,
                [
                    0xE0, 0xEB, 0x7A, 0x7C, 0x3B, 0x41, 0xB8, 0xAE, 0x16, 0x56, 0xE3, 0xFA, 0xF1,
                    0x9F, 0xC4, 0x6A, 0xDA, 0x09, 0x8D, 0xEB, 0x9C, 0x32, 0xB1, 0xFD, 0x86, 0x62,
                    0x05, 0x16, 0x5F, 0x49, 0xB8, 0x00,
                ]
            ),
            (
                .x25519,
                [
                    0x5F, 0x9C, 0x95, 0xBC, 0xA3, 0x50, 0x8C, 0x24, 0xB1, 0xD0, 0xB1, 0x55, 0x9C,
                    0x83, 0xEF, 0x5B, 0x04, 0x44, 0x5C, 0xC4, 0x58, 0x1C, 0x8E, 0x86, 0xD8, 0x22,
                    0x4E, 0xDD, 0xD0, 0x9F, 0x11, 0x57,
                ]
            ),
            (.x448, point(0, .x448)), (.x448, point(1, .x448)), (.x448, minusOne448),
        ]
        for (curve, bytes) in points {
            let isCanonical = curve.isCanonical(bytes.span)
            #expect(isCanonical)
            let error = #expect(throws: ChannelError(.badKey, "")) {
                try PeerKey(publicKey: bytes, curve: curve)
            }
            #expect(error?.reason.contains("no private key has this public key") == true)
            let text = Base64.encode(bytes, padded: true)
            #expect(throws: ChannelError(.badKey, "")) { try PeerKey(parsing: text) }
        }
    }

    @Test("a public key that is not canonical is refused")
    func notCanonical() {
        // 2^255 − 19, which RFC 7748 would decode as 0.
        let prime = [0xED] + [UInt8](repeating: 0xFF, count: 30) + [0x7F]
        #expect(throws: ChannelError(.badKey, "")) { try PeerKey(publicKey: prime) }
        #expect(throws: ChannelError(.badKey, "")) {
            try PeerKey(parsing: Base64.encode(prime, padded: true))
        }
    }

    @Test("parsing a random text never traps")
    func random() {
        var random = Random(seed: 5)
        let alphabet = Array("ABCDwxyz0189+/=:SHA256 ".utf8)
        for _ in 0..<5_000 {
            let count = [43, 44, 45, 50, 76, 80, random.number(0...90)].randomElement(
                using: &random)
            let bytes = (0..<(count ?? 0)).map { _ in
                alphabet[random.number(0...alphabet.count - 1)]
            }
            let text =
                (random.number(0...1) == 0 ? "SHA256:" : "")
                + String(decoding: bytes, as: UTF8.self)
            _ = Self.isAccepted(text)
        }
    }

    @Test("a randomly changed text is refused, or parsed into a key with the same text form")
    func randomChanges() {
        var random = Random(seed: 7)
        let alphabet = Array("ABCDwxyz0189+/=:SHA256 ".utf8)
        for form in 0..<3 {
            var accepted = 0
            for _ in 0..<2_000 {
                let text =
                    switch form {
                    case 0: Base64.encode(random.bytes(Curve.x25519.keyLength), padded: true)
                    case 1: Base64.encode(random.bytes(Curve.x448.keyLength), padded: true)
                    default: Fingerprint(subjectPublicKeyInfo: random.bytes(8)).description
                    }
                var bytes = Array(text.utf8)
                for _ in 0..<random.number(1...2) {
                    let position = random.number(0...bytes.count - 1)
                    let byte = alphabet[random.number(0...alphabet.count - 1)]
                    switch random.number(0...3) {
                    case 0: bytes.remove(at: position)
                    case 1: bytes.insert(byte, at: position)
                    default: bytes[position] = byte
                    }
                }
                if Self.isAccepted(String(decoding: bytes, as: UTF8.self)) { accepted += 1 }
            }
            #expect((100...1_900).contains(accepted), "form \(form): \(accepted) are accepted")
        }
    }

    /// Whether the text is accepted as a key. Expects that an accepted text is encoded to the same
    /// text.
    private static func isAccepted(_ text: String) -> Bool {
        guard let key = try? PeerKey(parsing: text) else { return false }
        let encoded =
            key.publicKey.map { Base64.encode($0, padded: true) } ?? key.fingerprint.description
        #expect(encoded == text)
        return true
    }
}

@Suite("Base64")
struct Base64Tests {
    @Test("the examples of RFC 4648 §10 are encoded and decoded")
    func examples() {
        let examples = [
            ("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="), ("foobar", "Zm9vYmFy"),
        ]
        for (text, encoded) in examples {
            let bytes = Array(text.utf8)
            #expect(Base64.encode(bytes, padded: true) == encoded)
            #expect(Base64.decode(encoded, padded: true) == bytes)
            let bare = String(encoded.prefix { $0 != "=" })
            #expect(Base64.encode(bytes, padded: false) == bare)
            #expect(Base64.decode(bare, padded: false) == bytes)
            if bare != encoded {
                #expect(Base64.decode(bare, padded: true) == nil)
                #expect(Base64.decode(encoded, padded: false) == nil)
            }
        }
    }

    @Test("a text of four characters that can be decoded is the encoding of the decoded bytes")
    func fourCharacters() {
        let characters = Array("Az09+/=- ".utf8) + [0, 0x80, 0xFF]
        for first in characters {
            for second in characters {
                for third in characters {
                    for fourth in characters {
                        let text = String(decoding: [first, second, third, fourth], as: UTF8.self)
                        for padded in [true, false] {
                            guard let bytes = Base64.decode(text, padded: padded) else { continue }
                            #expect(Base64.encode(bytes, padded: padded) == text)
                        }
                    }
                }
            }
        }
    }
}
