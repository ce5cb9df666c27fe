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

    /// The defaults above.
    public init() {}
}
