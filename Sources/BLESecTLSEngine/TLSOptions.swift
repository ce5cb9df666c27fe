internal import Glibc

/// How TLS is spoken, where that may be chosen.
public struct TLSOptions: Sendable {
    /// Key exchange groups by OpenSSL's names, best first; the first is the one that a dialer sends a
    /// share for. X25519 and P-256 by default; whether the linked OpenSSL has others, such as
    /// `X25519MLKEM768`, ``TLSContext/supports(group:)`` says.
    public var groups = ["X25519", "P-256"]
    /// The time in seconds since 1970 at which certificates have to be valid; the system's clock by
    /// default.
    public var clock: @Sendable () -> Int64 = { Int64(time(nil)) }

    /// Whether a session may be resumed, which saves signatures and certificates; no by default.
    ///
    /// An acceptor then remembers up to 256 sessions for two hours, and a dialer the one that it had
    /// last, for the next dial with the same context: so it has a context for each peer that it dials.
    /// A session is resumed once at most. Who the peer is, is judged again each time, and a certificate
    /// that would not be accepted any more leads to a full handshake, and to its refusal there.
    public var resumes = false

    /// The defaults above.
    public init() {}
}
