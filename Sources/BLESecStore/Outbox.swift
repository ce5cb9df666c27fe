internal import BLESec
package import BLESecChannelCore
internal import BLESecCredentials
internal import BLESecDelivery
internal import Glibc

/// One store of a directory, and the messages in it that the peer has not confirmed yet. No other
/// process can use the store as long as this value exists.
package struct Outbox: Sendable {
    /// A message that the peer has not confirmed yet.
    package struct Message: Sendable {
        /// The message's number, as in ``PendingDelivery/number``.
        package let number: UInt64
        package let byteCount: Int
        /// Whether a part of the message may have been sent, so that the message may have arrived.
        package let mayHaveBeenSent: Bool
    }

    /// This side's key.
    package let own: Fingerprint
    /// The peer's key.
    package let peer: Fingerprint
    /// The messages that wait, in the order of their numbers.
    package let messages: [Message]
    private let store: SQLiteStore

    private init(at path: String) throws(StoreFailure) {
        store = try SQLiteStore(at: path)
        guard let own = Fingerprint(store.keys.own), let peer = Fingerprint(store.keys.peer),
            path.hasSuffix("/" + PeerConnection.Store.fileName(own: own, peer: peer))
        else {
            throw StoreFailure(
                "the store \(path) belongs to other keys; give it its original name again")
        }
        (self.own, self.peer) = (own, peer)
        guard let stored = store.claim() else {
            preconditionFailure("a store that was opened just now is not claimed yet")
        }
        let firstQueued = stored.queued.first?.id ?? .max
        messages = stored.messages.compactMap { message in
            message.bytes.map { bytes in
                Message(
                    number: message.id, byteCount: bytes.count,
                    mayHaveBeenSent: message.id < firstQueued)
            }
        }
    }

    /// Opens the stores of a directory, in the order of the peers' keys. Each stays locked until
    /// its outbox is released.
    ///
    /// - Returns: the stores that could be opened, and the errors of those that could not.
    /// - Throws: one of these errors:
    ///   - `noSuchFile` if the directory does not exist or has no store.
    ///   - `permission` if the directory cannot be opened.
    ///   - `badKey` if `directory` is not a directory, belongs to another user or is open to others,
    ///     or if other users may change a directory above it.
    package static func open(
        in directory: String
    ) throws(ChannelError) -> (outboxes: [Outbox], failures: [ChannelError]) {
        let folder = try StateFolder(directory)
        var outboxes: [Outbox] = []
        var failures: [ChannelError] = []
        for name in try names(in: folder.realPath).sorted() where isStore(name) {
            do throws(StoreFailure) {
                outboxes.append(try Outbox(at: "\(folder.realPath)/\(name)"))
            } catch {
                failures.append(ChannelError(.store, error.reason))
            }
        }
        if outboxes.isEmpty, failures.isEmpty {
            throw ChannelError(
                .noSuchFile,
                "there is no store in \(folder.path); give the directory that --store had")
        }
        outboxes.sort {
            ($0.peer.description, $0.own.description)
                < ($1.peer.description, $1.own.description)
        }
        return (outboxes, failures)
    }

    /// Removes messages from the store and from its log, so that their fate is `dropped`, and
    /// closes the store. If only the log cannot be emptied, this throws as well: the messages are
    /// dropped then, but their bytes are still in the log.
    ///
    /// - Parameter numbers: the numbers of the messages. Each message must be in ``messages``, with
    ///   ``Message/mayHaveBeenSent`` false.
    package func drop(_ numbers: Set<UInt64>) throws(ChannelError) {
        let droppable = messages.lazy.filter { !$0.mayHaveBeenSent }.map(\.number)
        precondition(
            numbers.isSubset(of: droppable), "a message that may have been sent cannot be dropped")
        do throws(StoreFailure) {
            defer { store.close() }
            try store.commit([.dropped(numbers)])
            try store.emptyLog()
        } catch {
            throw ChannelError(.store, error.reason)
        }
    }

    /// Whether a file has the name of a store, and not the name of a store's log or of a copy.
    private static func isStore(_ name: String) -> Bool {
        let digits = name.prefix { $0.isHexDigit }
        return digits.count == 64 && name.dropFirst(64) == ".sqlite"
    }

    static func names(in path: String) throws(ChannelError) -> [String] {
        guard let directory = unsafe opendir(path) else {
            throw .system(.noSuchFile, "\(path) cannot be read", errno)
        }
        defer { unsafe closedir(directory) }
        var names: [String] = []
        while true {
            errno = 0
            guard let entry = unsafe readdir(directory) else { break }
            names.append(
                unsafe withUnsafePointer(to: &entry.pointee.d_name) {
                    unsafe String(cString: UnsafeRawPointer($0).assumingMemoryBound(to: CChar.self))
                })
        }
        if errno != 0 { throw .system(.noSuchFile, "\(path) cannot be read", errno) }
        return names
    }
}
