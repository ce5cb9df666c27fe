internal import BLESecJSON

/// Why a file's vectors cannot be read.
package struct VectorFileError: Error, Sendable, Hashable, CustomStringConvertible {
    /// What kind of trouble it is.
    package enum Kind: Sendable, Hashable {
        /// There is no such file.
        case missing
        /// The system refuses to open it.
        case denied
        /// The system fails to read it.
        case unreadable
        /// It is not of the shape, or too large.
        case malformed
    }

    /// What kind of trouble it is.
    package let kind: Kind
    /// The file.
    package let path: String
    /// Where in the file: `vectors[12].messages[1].ciphertext`; empty for the file as a whole.
    package let place: String
    /// What is wrong there.
    package let reason: String

    init(_ kind: Kind, _ path: String, at place: String = "", _ reason: String) {
        self.kind = kind
        self.path = path
        self.place = place
        self.reason = reason
    }

    /// File, place and reason on one line.
    package var description: String {
        place.isEmpty ? "\(path): \(reason)" : "\(path): \(place): \(reason)"
    }
}

extension VectorFileError {
    /// Where `bytes`, the file's, stop being JSON, as line and column from 1 on.
    init(_ path: String, _ failure: JSONReader.Failure, in bytes: [UInt8]) {
        let before = bytes[..<failure.position]
        let line = before.count { $0 == UInt8(ascii: "\n") } + 1
        let start = before.lastIndex(of: UInt8(ascii: "\n")).map { $0 + 1 } ?? 0
        self.init(
            .malformed, path, at: "line \(line), column \(failure.position - start + 1)",
            failure.reason)
    }

    /// What does not fit the shape of vectors.
    init(_ path: String, _ misfit: JSONMisfit) {
        self.init(.malformed, path, at: misfit.place, misfit.reason)
    }
}
