import BLESecPrimitives
import FoundationEssentials

/// `TestVectors/primitives.json`: vectors of standards, and values from Python's libraries where a
/// standard has none. Bytes are in hexadecimal.
struct PrimitiveVectors: Decodable {
    struct Product: Decodable {
        var section, scalar, point, product: String
        var curve: CurveName
    }

    /// A start value, and the results after one and after 1,000 iterations.
    struct Iterated: Decodable {
        var start, once, thousand: String
        var curve: CurveName
    }

    struct Exchange: Decodable {
        var alice, alicePublic, bob, bobPublic, product: String
        var curve: CurveName
    }

    struct LowOrder: Decodable { var x25519, x448: [String] }

    struct Digest: Decodable {
        var section, data, digest: String
        var hash: HashName
    }

    struct MAC: Decodable {
        var section, key, data, mac: String
        var hash: HashName
    }

    struct Derivation: Decodable {
        var section, inputKeyMaterial, salt, info, output: String
        var hash: HashName
    }

    struct Sealing: Decodable {
        var section, key, counter, additionalData, plaintext, ciphertext: String
        var cipher: CipherName
    }

    var dh: [Product]
    var iterated: [Iterated]
    var exchange: [Exchange]
    var lowOrder: LowOrder
    var digest: [Digest]
    var hmac: [MAC]
    var hkdf: [Derivation]
    var aead: [Sealing]

    static func load() throws -> PrimitiveVectors {
        let url = URL(filePath: #filePath).deletingLastPathComponent()
            .deletingLastPathComponent().deletingLastPathComponent()
            .appending(path: "TestVectors/primitives.json")
        return try JSONDecoder().decode(PrimitiveVectors.self, from: Data(contentsOf: url))
    }
}

enum CurveName: String, Decodable {
    case x25519, x448

    var value: Curve {
        switch self {
        case .x25519: .x25519
        case .x448: .x448
        }
    }
}

enum HashName: String, Decodable {
    case sha256, sha512, blake2s, blake2b

    var algorithm: HashAlgorithm {
        switch self {
        case .sha256: .sha256
        case .sha512: .sha512
        case .blake2s: .blake2s
        case .blake2b: .blake2b
        }
    }
}

enum CipherName: String, Decodable {
    case chaChaPoly, aesGCM

    var algorithm: AEADAlgorithm {
        switch self {
        case .chaChaPoly: .chaChaPoly
        case .aesGCM: .aesGCM
        }
    }
}
