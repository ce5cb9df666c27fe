internal import BLESecPrimitives

/// The SHA-256 of a file's first bytes; their number grows while the file is transferred. Each byte
/// is hashed once. Bytes that the receiver held before the transfer are hashed in pieces, while
/// later bytes are already sent.
final class RunningHash {
    private var context = HashContext(.sha256)
    /// How many bytes have been hashed.
    private(set) var count: UInt64 = 0

    /// Adds the file's bytes at `offset`, if exactly the bytes before `offset` have been added.
    /// Otherwise does nothing.
    func add(_ bytes: [UInt8], at offset: UInt64) {
        guard offset == count else { return }
        context.update(bytes)
        count += UInt64(bytes.count)
    }

    /// Reads the next bytes of the file and adds them: at most 256 KiB, up to the offset `end`.
    func catchUp(with file: Descriptor, to end: UInt64) throws(FileFailure) {
        let length = Int(min(end - count, UInt64(Self.longestPiece)))
        let bytes = try file.read(at: count, atMost: length)
        guard bytes.count == length else {
            throw FileFailure(.changed, "the file became shorter")
        }
        add(bytes, at: count)
    }

    /// The hash of the bytes that were added so far.
    var current: [UInt8] { context.finishedSoFar() }

    /// Begins anew, with the file's first byte.
    func restart() {
        // This also begins a new digest in the context.
        _ = context.finished()
        count = 0
    }

    private static let longestPiece = 256 << 10
}
