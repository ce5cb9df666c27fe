internal import BLESecPrimitives

/// The names in `.blesec-partial`, the folder with what is held of offers. They are hashes, so they
/// contain nothing of a peer's names, and are allowed on every file system.
enum HeldName {
    /// The name of the folder with all that is held of a peer's offers.
    static func ofPeer(_ key: [UInt8]) -> String { hash(key) }
    /// The name of an offer's folder, in its peer's folder.
    static func ofOffer(_ offer: FileFrame.Offer) -> String { offerPrefix + hash(offer.id) }
    /// The name of the note about the stored offer with this id, in its peer's folder.
    static func ofNote(_ id: [UInt8]) -> String { notePrefix + hash(id) }
    /// The name of such a note while it is written.
    static func ofNewNote(_ id: [UInt8]) -> String { ofNote(id) + newSuffix }
    /// The name of an incomplete file, in its offer's folder.
    static func ofFile(_ entry: FileEntry) -> String {
        let mode = entry.isExecutable ? "x" : "-"
        let text = "\(mode) \(entry.size) \(entry.seconds) \(entry.nanoseconds) \(entry.path)"
        return "f-" + hash(Array(text.utf8))
    }
    /// The name of the folder in which a tree is assembled, in its offer's folder.
    static let tree = "tree"

    static let offerPrefix = "o-"
    private static let notePrefix = "s-"
    private static let newSuffix = ".new"

    /// Whether this is the name of a peer's folder.
    static func isOfPeer(_ name: String) -> Bool { isHash(name) }

    /// Whether this is the name of an offer's folder, or of a note.
    static func isOfOfferOrNote(_ name: String) -> Bool {
        guard name.hasPrefix(offerPrefix) || name.hasPrefix(notePrefix) else { return false }
        // Both prefixes have the same length.
        let hash = name.dropFirst(offerPrefix.count)
        return isHash(hash.hasSuffix(newSuffix) ? hash.dropLast(newSuffix.count) : hash)
    }

    /// The first 16 bytes of a SHA-256 in hexadecimal digits.
    private static func hash(_ bytes: [UInt8]) -> String { hex(sha256(bytes)) }

    /// The first 16 bytes in hexadecimal digits.
    static func hex(_ bytes: [UInt8]) -> String {
        String(
            decoding: bytes.prefix(16).flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] },
            as: UTF8.self)
    }
    private static let digits = Array("0123456789abcdef".utf8)

    private static func isHash(_ name: some StringProtocol) -> Bool {
        name.utf8.count == 32 && name.utf8.allSatisfy { digits.contains($0) }
    }
}
