import BLESecNoiseVectors
import FoundationEssentials
import Testing

/// The files in `TestVectors/`.
enum TestVectors {
    /// The names in `TestVectors/noise/`, without their ending.
    static let all = ["one-way", "interactive", "deferred", "psk", "psks", "fallback"]

    /// The vectors of a file in `TestVectors/noise/`.
    static func load(_ name: String) throws -> [NoiseVector] {
        try VectorFile(path: path("noise/\(name).json")).vectors
    }

    /// Where a file in `TestVectors/` is.
    static func path(_ name: String) -> String {
        #filePath.replacing("Tests/NoiseTests/TestVectors.swift", with: "TestVectors/\(name)")
    }

    /// What a file in `TestVectors/` holds.
    static func data(_ name: String) throws -> Data {
        try Data(contentsOf: URL(filePath: path(name)))
    }
}

/// The bytes of a text of hexadecimal digits.
func hex(_ text: String) -> [UInt8] {
    guard let bytes = [UInt8](hex: text) else { preconditionFailure("not hexadecimal digits") }
    return bytes
}
