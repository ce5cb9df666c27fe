internal import BLESecJSON

/// Why a file's vectors cannot be read.
package struct VectorFileError: Error, Sendable, Hashable, CustomStringConvertible {
    package enum Kind: Sendable, Hashable {
        /// The file does not exist; or the folder contains no vector file, or a vector file whose
        /// name is not UTF-8.
        case missing
        /// The system denies access to the file.
        case denied
        /// The file cannot be read for another reason.
        case unreadable
        /// The file does not have the vector format, or is too large.
        case malformed
    }

    package let kind: Kind
    package let path: String
    /// The position in the file, such as `vectors[12].messages[1].ciphertext` or
    /// `line 3, column 7`; empty for the file as a whole.
    package let place: String
    package let reason: String

    init(_ kind: Kind, _ path: String, at place: String = "", _ reason: String) {
        self.kind = kind
        self.path = path
        self.place = place
        self.reason = reason
    }

    /// File, position and reason on one line.
    package var description: String {
        place.isEmpty ? "\(path): \(reason)" : "\(path): \(place): \(reason)"
    }
}

extension VectorFileError {
    /// The error for a file whose `bytes` are not JSON, with the line and column, each from 1.
    init(_ path: String, _ failure: JSONReader.Failure, in bytes: [UInt8]) {
        let precedingBytes = bytes[..<failure.position]
        let line = precedingBytes.count { $0 == UInt8(ascii: "\n") } + 1
        let lineStart = precedingBytes.lastIndex(of: UInt8(ascii: "\n")).map { $0 + 1 } ?? 0
        self.init(
            .malformed, path, at: "line \(line), column \(failure.position - lineStart + 1)",
            failure.reason)
    }

    /// The error for JSON that does not have the vector format.
    init(_ path: String, _ misfit: JSONMisfit) {
        self.init(.malformed, path, at: misfit.place, misfit.reason)
    }
}
