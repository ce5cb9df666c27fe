/// Which names a receiver lets a peer give to files.
package enum FileName {
    /// The name of the folder for incomplete files. No peer may give a file this name.
    static let partialFolder = ".blesec-partial"
    /// The longest path in a tree, in bytes of UTF-8.
    static let longestPath = 4_096
    /// The most parts of a path in a tree.
    static let mostParts = 64

    /// Whether a file or folder may have this name. An allowed name has 1 to 255 bytes, is not
    /// ``partialFolder``, and cannot lead to another folder or be shown as another name. It is not
    /// hidden, unless `allowsHidden` is true.
    package static func isAllowed(_ name: String, allowsHidden: Bool) -> Bool {
        guard (1...255).contains(name.utf8.count), name != ".", name != "..",
            allowsHidden || !isHidden(name), name != partialFolder
        else { return false }
        // Most names are ASCII.
        if name.utf8.allSatisfy({ (0x20...0x7E).contains($0) && $0 != UInt8(ascii: "/") }) {
            return true
        }
        return name.unicodeScalars.allSatisfy { !isForbidden($0) }
    }

    /// The beginning of a text: as many whole code points as fit into `limit` bytes.
    static func shortened(_ text: String, toBytes limit: Int) -> String {
        guard text.utf8.count > limit else { return text }
        var count = 0
        return String(
            String.UnicodeScalarView(
                text.unicodeScalars.prefix { scalar in
                    count += UTF8.width(scalar)
                    return count <= limit
                }))
    }

    /// The parts of a path in a tree; nil if one of them is not allowed.
    static func parts(of path: String, allowsHidden: Bool) -> [String]? {
        guard (1...longestPath).contains(path.utf8.count) else { return nil }
        // Split as bytes, because a `String` takes a `/` and a combining character after it as one
        // character.
        let parts = path.utf8.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
            .map { String(Substring($0)) }
        guard parts.count <= mostParts,
            parts.allSatisfy({ isAllowed($0, allowsHidden: allowsHidden) })
        else { return nil }
        return parts
    }

    /// Whether the first byte is a dot.
    static func isHidden(_ name: String) -> Bool { name.utf8.first == UInt8(ascii: ".") }

    /// Whether both texts have the same bytes. For `==`, different Unicode forms of a character are
    /// equal.
    static func areSame(_ one: some StringProtocol, _ other: some StringProtocol) -> Bool {
        one.utf8.elementsEqual(other.utf8)
    }

    private static func isForbidden(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.value {
        case 0x2F: true
        // Line and paragraph separators, and characters that change the direction of text.
        case 0x2028, 0x2029, 0x061C, 0x200E, 0x200F, 0x202A...0x202E, 0x2066...0x2069: true
        default: scalar.properties.generalCategory == .control
        }
    }

    /// The name with a number before its extension, as in `photo (2).jpg`. The result has at most
    /// 255 bytes.
    static func numbered(_ name: String, _ number: Int) -> String {
        let addition = " (\(number))"
        var stem = name
        var ending = ""
        if let dot = name.lastIndex(of: "."), dot != name.startIndex {
            stem = String(name[..<dot])
            ending = String(name[dot...])
        }
        // An ending of more than 32 bytes is no extension.
        if ending.utf8.count > 32 { (stem, ending) = (name, "") }
        while stem.utf8.count + addition.utf8.count + ending.utf8.count > 255 {
            stem.removeLast()
        }
        return stem + addition + ending
    }
}
