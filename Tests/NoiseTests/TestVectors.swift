import BLESecNoiseVectors
import FoundationEssentials
import Testing

/// The files in `TestVectors/`.
enum TestVectors {
    /// The names of the files in `TestVectors/noise/`, without `.json`.
    static let all = ["one-way", "interactive", "deferred", "psk", "psks", "fallback"]

    /// The vectors of a file in `TestVectors/noise/`.
    static func load(_ name: String) throws -> [NoiseVector] {
        try VectorFile(path: path("noise/\(name).json")).vectors
    }

    /// The path of a file in `TestVectors/`.
    static func path(_ name: String) -> String {
        #filePath.replacing("Tests/NoiseTests/TestVectors.swift", with: "TestVectors/\(name)")
    }

    /// The content of a file in `TestVectors/`.
    static func data(_ name: String) throws -> Data {
        try Data(contentsOf: URL(filePath: path(name)))
    }
}

/// Decodes `text`, which has only hexadecimal digits.
func hex(_ text: String) -> [UInt8] {
    guard let bytes = [UInt8](hex: text) else { preconditionFailure("not hexadecimal digits") }
    return bytes
}
