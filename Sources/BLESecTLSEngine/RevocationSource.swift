public import BLESecChannelCore

/// Where the list of revoked certificates comes from, each time that a peer is judged.
public protocol RevocationSource: Sendable {
    /// What is revoked at a time in seconds since 1970; a throw refuses the peer. Called on the
    /// thread that drives the channel.
    func current(at now: Int64) throws(ChannelError) -> RevocationList
}

extension RevocationList: RevocationSource {
    /// The list itself, until it is out of date.
    ///
    /// - Throws: `badKey` after ``expiry``.
    public func current(at now: Int64) throws(ChannelError) -> RevocationList {
        if let expiry, expiry < now {
            throw ChannelError(
                .badKey, "the revocation list is out of date: get a newer one")
        }
        return self
    }
}
