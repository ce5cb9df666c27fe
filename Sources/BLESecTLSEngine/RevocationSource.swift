public import BLESecChannelCore

/// Supplies the revocation list each time that a peer's certificate is checked.
public protocol RevocationSource: Sendable {
    /// The list at the time `now`, in seconds since 1970. If this function throws, the peer is refused.
    /// Called on the thread that runs the channel.
    func current(at now: Int64) throws(ChannelError) -> RevocationList
}

extension RevocationList: RevocationSource {
    /// The list itself, until it is out of date.
    ///
    /// - Throws: `badKey` after ``expiry``.
    public func current(at now: Int64) throws(ChannelError) -> RevocationList {
        if let expiry, expiry < now {
            throw .badKey("the revocation list is out of date: get a newer one")
        }
        return self
    }
}
