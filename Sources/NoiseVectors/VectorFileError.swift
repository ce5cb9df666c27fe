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
    /// What the decoder found, in the terms of the file.
    init(_ path: String, _ error: any Error) {
        guard let error = error as? DecodingError else {
            self.init(.malformed, path, "\(error)")
            return
        }
        switch error {
        case .keyNotFound(let member, let context):
            self.init(.malformed, path, at: Self.place(context.codingPath + [member]), "missing")
        case .valueNotFound(_, let context):
            self.init(.malformed, path, at: Self.place(context.codingPath), "null")
        case .typeMismatch(let type, let context):
            self.init(
                .malformed, path, at: Self.place(context.codingPath),
                "not \(Self.words(for: type))")
        case .dataCorrupted(let context):
            self.init(
                .malformed, path, at: Self.place(context.codingPath), context.debugDescription)
        @unknown default:
            self.init(.malformed, path, "\(error)")
        }
    }

    private static func place(_ path: [any CodingKey]) -> String {
        path.reduce(into: "") { text, member in
            if let index = member.intValue {
                text += "[\(index)]"
            } else {
                text += text.isEmpty ? member.stringValue : ".\(member.stringValue)"
            }
        }
    }

    private static func words(for type: any Any.Type) -> String {
        switch type {
        case is String.Type: "a text"
        case is Bool.Type: "true or false"
        case is any Dictionaries.Type: "an object"
        case is any Collection.Type: "an array"
        default: "an object"
        }
    }
}

/// What the decoder names for an object.
private protocol Dictionaries {}
extension Dictionary: Dictionaries {}
