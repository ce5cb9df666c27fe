public import BLESecChannelCore
internal import BLESecLocking
internal import Glibc

/// A trust store in a text file similar to `known_hosts`.
///
/// Each line has a peer's name, its fingerprint, and an optional comment. In a name, each byte
/// except ASCII letters, digits and `-_.:@/+=,` is written as `%` and two hexadecimal digits. A
/// line that begins with `#` is a comment, which stays in the file.
///
/// The file has mode 0600. It is replaced in one step and under a lock, so that several processes
/// can share it. It is read again when it has changed. A file that other users can write or replace
/// is refused. A call waits for a lock for at most two seconds. Removing and renaming take two
/// locks: the second is for the file of the pairings that are not complete.
public final class KnownPeersFile: TrustStore {
    /// One line of the file.
    public struct Peer: Sendable, Hashable {
        /// The application's name for the peer.
        public let name: String
        /// The key bound to the name.
        public let key: Fingerprint
        /// The rest of the line.
        public let comment: String
        /// The line's number, from 1.
        public let line: Int
    }

    /// The longest name in bytes of UTF-8.
    public static let maximumNameLength = PeerName.maximumLength

    /// What the file contains. `version` is nil if there is no file, or if the file has to be
    /// read again.
    private struct Content: Sendable {
        var version: ListFile.FileVersion?
        var peers: [Peer] = []
        var keys: [String: Fingerprint] = [:]
        var knownKeys: Set<Fingerprint> = []
    }

    /// The path of the file. The file need not exist before the first name is bound.
    public let path: String
    private let cache = Locked(Content())
    private let pending: PendingPeersFile

    /// Makes a store for the file at `path`, which is read when first needed. Pairings that are not
    /// complete are in another file, whose path is `path` with `.pending` appended.
    public init(_ path: String) {
        self.path = path
        pending = PendingPeersFile(path + ".pending")
    }

    /// All peers in the file, in the order of its lines.
    public func peers() throws(ChannelError) -> [Peer] { try current().peers }

    /// The key bound to the name.
    ///
    /// - Throws: `badKey`, whose reason names the line, when a line cannot be parsed; `badKey` when
    ///   other users may change the file; `permission`; `limitExceeded`.
    public func key(named name: String) throws(ChannelError) -> Fingerprint? {
        try current().keys[name]
    }

    /// Whether any line has the key; throws as ``key(named:)`` does.
    public func contains(_ key: Fingerprint) throws(ChannelError) -> Bool {
        try current().knownKeys.contains(key)
    }

    /// Adds a line; see ``TrustStore/bind(_:to:)``.
    ///
    /// - Throws: `configuration` for a name that is empty or longer than ``maximumNameLength``;
    ///   `limitExceeded` when the file would grow beyond 1 MiB; `cannotCreate`; `timedOut` when
    ///   the file stays locked; the errors of reading the file.
    public func bind(_ name: String, to key: Fingerprint) throws(ChannelError) {
        try Self.check(name)
        _ = try change { text, content throws(ChannelError) in
            if let bound = content.keys[name] {
                guard bound == key else {
                    throw ChannelError(
                        .untrusted,
                        "\(name) is known with \(bound) in \(path), and is not bound to \(key)")
                }
                return false
            }
            if let last = text.last, last != UInt8(ascii: "\n") { text.append(UInt8(ascii: "\n")) }
            text.append(contentsOf: Array("\(PeerName.escape(name)) \(key)\n".utf8))
            try requireRoom(for: text)
            return true
        }
    }

    /// Removes all lines of a name from the file, and all pairings under this name that are not
    /// complete; false when there is neither.
    public func remove(_ name: String) throws(ChannelError) -> Bool {
        try remove(name, boundTo: nil)
    }

    /// Removes a name as ``remove(_:)`` does; false when nothing was removed. If `key` is not nil,
    /// and the name is bound to another key, nothing is removed.
    package func remove(_ name: String, boundTo key: Fingerprint?) throws(ChannelError) -> Bool {
        // Checked without the lock first, because taking the lock would create a missing file.
        if try current().keys[name] == nil {
            let pendingPeers = try pending.peers()
            guard pendingPeers.contains(where: { $0.name == name }) else { return false }
        }
        var isPending = false
        let isBound = try change { text, content throws(ChannelError) in
            let bound = content.keys[name]
            if let key, let bound, key != bound { return false }
            // A pairing that is not complete could bind the name again when the peers next connect.
            // Such a pairing may be with another key, if it was begun before the name was bound.
            isPending = try pending.forget { $0.name == name }
            guard bound != nil else { return false }
            let numbers = content.peers.filter { $0.name == name }.map(\.line)
            var lines = ListFile.rawLines(of: text)
            for number in numbers.reversed() { lines.remove(at: number - 1) }
            text = ListFile.text(of: lines)
            return true
        }
        return isBound || isPending
    }

    /// Gives all lines of a name another name, in one step; false when there is no such line. The
    /// rest of each line, with its comment, stays as it is. If the new name is bound to the same key
    /// already, the lines of the new name stay too. Pairings under the old name that are not
    /// complete are removed.
    ///
    /// - Throws: `configuration` for a new name that is empty or longer than
    ///   ``maximumNameLength``; `untrusted` when the new name is bound to another key;
    ///   `limitExceeded` when the file would grow beyond 1 MiB; `cannotCreate`; `timedOut` when the
    ///   file stays locked; the errors of reading the file.
    public func rename(_ name: String, to newName: String) throws(ChannelError) -> Bool {
        try Self.check(newName)
        // Checked without the lock first, because taking the lock would create a missing file.
        guard try current().keys[name] != nil else { return false }
        let isRenamed = try change { text, content throws(ChannelError) in
            guard let key = content.keys[name] else { return false }
            if let bound = content.keys[newName], bound != key {
                throw ChannelError(
                    .untrusted,
                    "\(newName) is known with \(bound) in \(path), and \(name) with \(key): remove "
                        + "one of them first")
            }
            var lines = ListFile.rawLines(of: text)
            for peer in content.peers where peer.name == name {
                let line = lines[peer.line - 1]
                let start = line.firstIndex { !ListFile.isBlank($0) } ?? line.endIndex
                let end = line[start...].firstIndex(where: ListFile.isBlank) ?? line.endIndex
                lines[peer.line - 1] =
                    line[..<start] + PeerName.escape(newName).utf8 + line[end...]
            }
            text = ListFile.text(of: lines)
            try requireRoom(for: text)
            // If the file of pairings cannot be read, this throws before the name changes.
            if newName != name { _ = try pending.peers() }
            return true
        }
        // Otherwise a pairing that is not complete would stay under the old name, and removing the
        // new name would not remove the pairing. The pairing is removed only after the file has
        // been replaced: if a full disk prevents the replacement, the pairing is not lost.
        if isRenamed, newName != name { try pending.forget { $0.name == name } }
        return isRenamed
    }

    /// The peers with which a pairing is not complete; throws as ``key(named:)`` does.
    public func pendingPeers() throws(ChannelError) -> [TrustPolicy.PendingPeer] {
        try pending.peers()
    }

    /// The pairing with this key that is not complete; throws as ``key(named:)`` does.
    public func pendingPeer(
        _ key: Fingerprint
    ) throws(ChannelError) -> TrustPolicy.PendingPeer? {
        try pending.peers().last { $0.key == key }
    }

    /// Keeps a pairing that is not complete; throws as ``bind(_:to:)`` does.
    public func keepPending(_ peer: TrustPolicy.PendingPeer) throws(ChannelError) {
        try Self.check(peer.name)
        try pending.keep(peer)
    }

    /// Removes the pairing with this key that is not complete; throws as ``bind(_:to:)`` does.
    public func forgetPending(_ key: Fingerprint) throws(ChannelError) {
        try pending.forget { $0.key == key }
    }

    private static func check(_ name: String) throws(ChannelError) {
        guard (1...maximumNameLength).contains(name.utf8.count) else {
            throw ChannelError(
                .configuration, "a peer's name has 1 to \(maximumNameLength) bytes")
        }
    }

    /// The file's content, read again when the file has changed.
    private func current() throws(ChannelError) -> Content {
        let cached = cache.withLock { $0 }
        if ListFile.isUnchanged(path, since: cached.version) { return cached }
        guard let listing = try ListFile(path) else { return Content() }
        let fresh = try parse(listing)
        cache.withLock { $0 = fresh }
        return fresh
    }

    private func parse(_ listing: ListFile) throws(ChannelError) -> Content {
        var fresh = Content(version: listing.version)
        for (number, words) in try ListFile.lines(of: listing.text, in: path) {
            guard let name = PeerName.unescape(words[0]) else {
                throw ListFile.malformed(
                    path, number,
                    "a name has 1 to \(PeerName.maximumLength) bytes of UTF-8, and each % in it is "
                        + "followed by two hexadecimal digits")
            }
            guard words.count > 1, let key = Fingerprint(String(words[1])) else {
                throw ListFile.malformed(
                    path, number, "a fingerprint, SHA256: and 43 characters, goes after the name")
            }
            if let other = fresh.keys[name], other != key {
                throw ListFile.malformed(
                    path, number,
                    "\(words[0]) has another key in a line above: remove one of the lines")
            }
            fresh.keys[name] = key
            fresh.knownKeys.insert(key)
            let comment = words[2...].joined(separator: " ")
            fresh.peers.append(Peer(name: name, key: key, comment: comment, line: number))
        }
        return fresh
    }

    /// Changes the file under its lock. `edit` returns whether it has changed anything.
    private func change(
        _ edit: (_ text: inout [UInt8], _ content: Content) throws(ChannelError) -> Bool
    ) throws(ChannelError) -> Bool {
        var isChanged = false
        try ListFile.change(path) { listing throws(ChannelError) in
            var text = listing.text
            isChanged = try edit(&text, try parse(listing))
            return isChanged ? text : nil
        }
        return isChanged
    }

    /// Throws if the text is longer than the file may be.
    private func requireRoom(for text: [UInt8]) throws(ChannelError) {
        guard text.count <= ListFile.maximumLength else {
            throw ChannelError(
                .limitExceeded,
                "\(path) is full: \(ListFile.maximumLength) bytes, remove peers first")
        }
    }
}
