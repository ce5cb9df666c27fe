/// Binds the application's names for peers to keys. `BLESecCredentials` has a store in a file.
///
/// All methods may be called from any thread, also concurrently; their effect is complete when they
/// return. A channel calls them on separate threads, so they may block. A peer is refused when a
/// method throws, or does not return within ``ChannelTimeouts/trustDecision``; the peer may give up
/// earlier (see there).
public protocol TrustStore: Sendable {
    /// The key bound to `name`, or `nil` when the name is free.
    func key(named name: String) throws(ChannelError) -> Fingerprint?

    /// Binds `name` to `key`. Does nothing if `name` is bound to `key` already. Throws `untrusted` if
    /// `name` is bound to another key. To change a binding, a person has to remove it first.
    func bind(_ name: String, to key: Fingerprint) throws(ChannelError)

    /// Whether any name is bound to `key`.
    func contains(_ key: Fingerprint) throws(ChannelError) -> Bool

    /// The incomplete pairing with `key`; nil if there is none, or if it is older than
    /// ``TrustPolicy/PendingPeer/lifetime``. In the library, only
    /// ``TrustPolicy/pairing(_:store:name:)`` calls this method and the next two; by default all
    /// three throw `configuration`.
    func pendingPeer(_ key: Fingerprint) throws(ChannelError) -> TrustPolicy.PendingPeer?

    /// Keeps a pairing that is not complete, in place of an earlier pairing with the same key. The
    /// entry is on stable storage when the call returns.
    func keepPending(_ peer: TrustPolicy.PendingPeer) throws(ChannelError)

    /// Removes the incomplete pairing with `key`, if there is one.
    func forgetPending(_ key: Fingerprint) throws(ChannelError)
}
