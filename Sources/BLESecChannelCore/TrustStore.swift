/// Where names that the application gives are bound to keys. `BLESecCredentials` keeps one in a file.
///
/// All methods may be called from any thread, at the same time as others; what they promise holds when
/// they return. A channel calls them on threads of their own, so they may block. A peer is refused when one
/// throws, or has not returned within the deadline for judging.
public protocol TrustStore: Sendable {
    /// The key bound to `name`, or `nil` when the name is free.
    func key(named name: String) throws(ChannelError) -> Fingerprint?

    /// Binds `name` to `key`; binding it again to the same key does nothing, and another key throws
    /// `untrusted`: a binding is changed by removing it first, which only a person does.
    func bind(_ name: String, to key: Fingerprint) throws(ChannelError)

    /// Whether some name is bound to `key`.
    func contains(_ key: Fingerprint) throws(ChannelError) -> Bool
}
