internal import Glibc

/// The options of TLS.
public struct TLSOptions: Sendable {
    /// Key exchange groups by OpenSSL's names, best first; a dialer sends a key share for the
    /// first. X25519 and P-256 by default. ``TLSContext/supports(group:)`` returns whether the
    /// linked OpenSSL has another group, such as `X25519MLKEM768`.
    public var groups = ["X25519", "P-256"]
    /// The time in seconds since 1970 at which certificates have to be valid; the system's clock by
    /// default.
    public var clock: @Sendable () -> Int64 = { Int64(time(nil)) }

    /// Whether a session may be resumed, which saves signatures and certificates; false by default.
    ///
    /// If true, an acceptor keeps up to 256 sessions for two hours; older ones are removed at its
    /// next handshake. A dialer keeps its last session for the next dial with the same context, so
    /// it needs a separate context for each peer; it keeps no session whose ticket has more than
    /// 1,024 bytes. A session is resumed at most once. Trust in the peer is evaluated again each time: a
    /// certificate that is no longer accepted leads to a full handshake, which refuses the peer.
    public var resumes = false

    /// The defaults above.
    public init() {}
}
