package import BLESecPrimitives

/// An algorithm with a name in Noise §12. Protocol names and key files contain this name.
package protocol NoiseNamed: CaseIterable {
    var noiseName: String { get }
}

extension NoiseNamed {
    /// The algorithm whose name is exactly `noiseName`; nil if there is none.
    package init?(noiseName: some StringProtocol) {
        let found = Self.allCases.first { $0.noiseName == noiseName }
        guard let found else { return nil }
        self = found
    }
}

extension Curve: NoiseNamed {
    package var noiseName: String {
        switch self {
        case .x25519: "25519"
        case .x448: "448"
        }
    }
}

extension AEADAlgorithm: NoiseNamed {
    package var noiseName: String {
        switch self {
        case .chaChaPoly: "ChaChaPoly"
        case .aesGCM: "AESGCM"
        }
    }
}

extension HashAlgorithm: NoiseNamed {
    package var noiseName: String {
        switch self {
        case .sha256: "SHA256"
        case .sha512: "SHA512"
        case .blake2s: "BLAKE2s"
        case .blake2b: "BLAKE2b"
        }
    }

    /// The names of all hash functions, for help and error texts.
    package static let noiseNames = "SHA256, SHA512, BLAKE2s or BLAKE2b"
}
