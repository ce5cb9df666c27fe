internal import BLESecPrimitives

// The names of the algorithms in Noise §12.

extension Curve {
    var noiseName: String {
        switch self {
        case .x25519: "25519"
        case .x448: "448"
        }
    }

    init?(noiseName: Substring) {
        guard let match = Self.allCases.first(where: { $0.noiseName == noiseName }) else {
            return nil
        }
        self = match
    }
}

extension AEADAlgorithm {
    var noiseName: String {
        switch self {
        case .chaChaPoly: "ChaChaPoly"
        case .aesGCM: "AESGCM"
        }
    }

    init?(noiseName: Substring) {
        guard let match = Self.allCases.first(where: { $0.noiseName == noiseName }) else {
            return nil
        }
        self = match
    }
}

extension HashAlgorithm {
    var noiseName: String {
        switch self {
        case .sha256: "SHA256"
        case .sha512: "SHA512"
        case .blake2s: "BLAKE2s"
        case .blake2b: "BLAKE2b"
        }
    }

    init?(noiseName: Substring) {
        guard let match = Self.allCases.first(where: { $0.noiseName == noiseName }) else {
            return nil
        }
        self = match
    }
}
