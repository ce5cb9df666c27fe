internal import CBLESecLinux
internal import Glibc

/// An incomplete file on the receiver's disk, while its data arrives.
///
/// What was held of the file before is hashed in pieces while later data already arrives, and
/// compared with what the sender has. If the two differ, the file begins anew. Used on one thread.
final class PartialFile {
    let entry: FileEntry
    let descriptor: Descriptor
    /// How many bytes are in the file now.
    private(set) var position: UInt64
    /// How many bytes of the file were held when this object was made.
    private let start: UInt64
    private var prefix: Prefix
    /// The hash of the first `hash.count` bytes of the file.
    private let hash = RunningHash()

    /// What is known about the bytes before `start`.
    private enum Prefix {
        /// The hashes of both sides; nil until known. They are compared when both are known.
        case comparing(own: [UInt8]?, peer: [UInt8]?)
        /// These bytes are the same as the peer's, or there are none.
        case agreed
        /// These bytes differ from the peer's. Data is dropped until the peer begins anew.
        case different
    }

    init(_ descriptor: Descriptor, _ entry: FileEntry, from start: UInt64) {
        self.descriptor = descriptor
        self.entry = entry
        self.start = start
        position = start
        prefix = start == 0 ? .agreed : .comparing(own: nil, peer: nil)
    }

    /// How many bytes have not arrived.
    var missing: UInt64 { entry.size - position }

    /// Whether all bytes have arrived, and those that were held are the same as the peer's.
    var isComplete: Bool { if case .agreed = prefix { missing == 0 } else { false } }

    // MARK: - Data

    /// Adds bytes: at most ``missing``.
    func write(_ bytes: [UInt8]) throws(FileFailure) {
        try descriptor.write(bytes, at: position)
        hash.add(bytes, at: position)
        position += UInt64(bytes.count)
    }

    /// Hashes the rest, and returns the hash of the whole file.
    func finishedHash() throws(FileFailure) -> [UInt8] {
        while hash.count < position { try hash.catchUp(with: descriptor, to: position) }
        return hash.current
    }

    /// Gives the file the announced time.
    func setTime() throws(FileFailure) {
        var times = [timespec(), timespec()]
        times[0].tv_nsec = Int(UTIME_OMIT_VALUE)
        times[1] = timespec(tv_sec: Int(entry.seconds), tv_nsec: Int(entry.nanoseconds))
        guard unsafe futimens(descriptor.number, &times) == 0 else {
            throw FileFailure(entry.path, errno)
        }
    }

    // MARK: - What was held

    /// Whether bytes in the file are still to be hashed.
    var hasBacklog: Bool { !awaitsAgain && hash.count < position }

    /// Hashes a piece of what was held or, after that, of what has arrived since.
    func catchUp() throws(FileFailure) {
        guard hasBacklog else { return }
        guard case .comparing(own: nil, let peer) = prefix else {
            return try hash.catchUp(with: descriptor, to: position)
        }
        try hash.catchUp(with: descriptor, to: start)
        if hash.count == start { prefix = .comparing(own: hash.current, peer: peer) }
    }

    /// Takes the peer's hash of what was held. Returns false if there is nothing to compare, or if
    /// the hash is known already.
    func setPeerPrefixHash(_ hash: [UInt8]) -> Bool {
        guard case .comparing(let own, peer: nil) = prefix else { return false }
        prefix = .comparing(own: own, peer: hash)
        return true
    }

    /// Compares the two hashes of what was held, and returns whether they are the same; nil if one
    /// of the hashes is not known yet, if they were compared before, or if nothing was held. If the
    /// hashes differ, removes all bytes of the file.
    func comparePrefixes() throws(FileFailure) -> Bool? {
        guard case .comparing(let own?, let peer?) = prefix else { return nil }
        guard own == peer else {
            try descriptor.setLength(0)
            hash.restart()
            position = 0
            prefix = .different
            return false
        }
        prefix = .agreed
        return true
    }

    /// Whether data is dropped until the peer begins anew.
    var awaitsAgain: Bool { if case .different = prefix { true } else { false } }

    /// Begins anew, with the first byte. Returns false if that was not requested.
    func beginAgain() -> Bool {
        guard awaitsAgain else { return false }
        prefix = .agreed
        return true
    }
}

/// `UTIME_OMIT` of `sys/stat.h`, which Swift cannot import.
private let UTIME_OMIT_VALUE = (1 << 30) - 2
