internal import BLESecChannelCore
internal import Glibc

/// A text file with the pairings that are not complete. Each line has the peer's name, escaped as
/// in ``KnownPeersFile``, the peer's fingerprint, a hash over the pairing in base64, `verified` or
/// `unverified`, and the time, in seconds since 1970, at which the line expires.
///
/// The file has mode 0600 and is replaced in one step and under a lock. A file that other users can
/// write is refused. Expired lines are removed with the next change.
final class PendingPeersFile: Sendable {
    private static let maximumPeers = 1_000

    private struct Line {
        let peer: TrustPolicy.PendingPeer
        let expiry: Int
    }

    /// The path of the file. The file need not exist before the first pairing is stored.
    let path: String

    init(_ path: String) { self.path = path }

    /// The peers whose pairing is not complete, oldest first.
    ///
    /// - Throws: `badKey`, whose reason names the line, when a line cannot be parsed; `badKey` when
    ///   other users may change the file; `permission`; `limitExceeded`.
    func peers() throws(ChannelError) -> [TrustPolicy.PendingPeer] {
        guard let listing = try ListFile(path) else { return [] }
        return unexpired(try parse(listing)).map(\.peer)
    }

    /// Adds a line for a peer, which expires after ``TrustPolicy/PendingPeer/lifetime``. An earlier
    /// line with the same key is removed, and so is the oldest line if there are more than
    /// ``maximumPeers``.
    func keep(_ peer: TrustPolicy.PendingPeer) throws(ChannelError) {
        try ListFile.change(path) { listing throws(ChannelError) in
            var lines = unexpired(try parse(listing)).filter { $0.peer.key != peer.key }
            let lifetime = Int(TrustPolicy.PendingPeer.lifetime.components.seconds)
            lines.append(Line(peer: peer, expiry: time(nil) + lifetime))
            return text(of: lines.suffix(Self.maximumPeers))
        }
    }

    /// Removes the lines of the peers for which `shouldForget` returns true. Returns true if at least
    /// one of these lines had not expired.
    @discardableResult
    func forget(
        where shouldForget: (TrustPolicy.PendingPeer) -> Bool
    ) throws(ChannelError) -> Bool {
        // Checked without the lock, because taking the lock would create a missing file.
        guard let listing = try ListFile(path),
            try parse(listing).contains(where: { shouldForget($0.peer) })
        else { return false }
        var hasForgotten = false
        try ListFile.change(path) { listing throws(ChannelError) in
            let lines = unexpired(try parse(listing))
            let rest = lines.filter { !shouldForget($0.peer) }
            hasForgotten = rest.count < lines.count
            return text(of: rest)
        }
        return hasForgotten
    }

    /// The lines that have not expired. A line that expires more than a lifetime from now was
    /// written before the clock was set back: its age is unknown, so it counts as expired.
    private func unexpired(_ lines: [Line]) -> [Line] {
        let now = time(nil)
        let latest = now + Int(TrustPolicy.PendingPeer.lifetime.components.seconds)
        return lines.filter { $0.expiry > now && $0.expiry <= latest }
    }

    private func text(of lines: some Sequence<Line>) -> [UInt8] {
        Array(
            lines.map { line in
                let peer = line.peer
                let transcript = Base64.encode(peer.transcript, padded: false)
                return "\(PeerName.escape(peer.name)) \(peer.key) \(transcript) "
                    + "\(peer.isVerified ? "verified" : "unverified") \(line.expiry)\n"
            }.joined().utf8)
    }

    private func parse(_ listing: ListFile) throws(ChannelError) -> [Line] {
        try ListFile.lines(of: listing.text, in: path).map { (number, words) throws(ChannelError) in
            guard words.count == 5, let name = PeerName.unescape(words[0]),
                let key = Fingerprint(String(words[1])),
                let transcript = Base64.decode(words[2], padded: false),
                transcript.count == TrustPolicy.PendingPeer.transcriptLength,
                ["verified", "unverified"].contains(words[3]), let expiry = Int(words[4]),
                expiry >= 0
            else {
                throw ListFile.malformed(
                    path, number,
                    "this line is not a name, a fingerprint, a hash, a state and a time: remove it"
                )
            }
            let peer = TrustPolicy.PendingPeer(
                name: name, key: key, transcript: transcript, isVerified: words[3] == "verified")
            return Line(peer: peer, expiry: expiry)
        }
    }
}
