internal import BLESecPrimitives

/// SHA-256 of a file from its beginning, as far as it has come. Each byte is hashed once: those that
/// were there before in pieces, while others already move.
final class RunningHash {
    private var context = HashContext(.sha256)
    /// How many bytes have been hashed.
    private(set) var count: UInt64 = 0

    /// Adds bytes that are at hand, if all before them have been added.
    func add(_ bytes: [UInt8], at offset: UInt64) {
        guard offset == count else { return }
        context.update(bytes)
        count += UInt64(bytes.count)
    }

    /// Reads and adds bytes of the file, up to `end`, in one piece of limited size.
    func catchUp(with file: Descriptor, to end: UInt64) throws(FileFailure) {
        let most = min(end - count, UInt64(Self.piece))
        let bytes = try file.read(at: count, atMost: Int(most))
        guard bytes.count == Int(most) else {
            throw FileFailure(.changed, "the file became shorter")
        }
        add(bytes, at: count)
    }

    /// The hash of what was added so far.
    var current: [UInt8] { context.finishedSoFar() }

    func restart() {
        _ = context.finished()
        count = 0
    }

    private static let piece = 256 << 10
}
