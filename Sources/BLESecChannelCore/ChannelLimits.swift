/// Limits on what a peer can make this side store, send or wait for.
public struct ChannelLimits: Sendable {
    /// The longest message in either direction, in bytes; 16 MiB by default.
    public var maximumMessageLength = 16 << 20
    /// How many bytes of complete messages may wait for the program before reading stops; 256 KiB.
    public var readAhead = 256 << 10
    /// How many bytes in addition to ``readAhead`` may wait for the program while this side waits
    /// for an acknowledgement; 1 MiB. The peer's messages may arrive before the acknowledgement.
    /// Once the link is lost, twice as many additional bytes may wait, whether or not this side
    /// waits for an acknowledgement.
    public static let extraReadAhead = 1 << 20
    /// How many bytes of messages may wait to be sent before `send` suspends; 64 KiB.
    public var sendAhead = 64 << 10
    /// How many bytes are read from a peer before it is authenticated, including its `ready` record
    /// and the records of a pairing; 32 KiB (blesec/1, "Limits"). In direct mode, if the peer's
    /// first transport message is the proof of its key, that message is read in addition. If the
    /// peer is still not authenticated, the channel ends with `limitExceeded`.
    public var unauthenticatedBytes = 32 << 10
    /// The number of records after which this side changes its sending key; 2^20 by default. A
    /// value below 1,024 counts as 1,024. In direct mode, only TLS changes its key.
    public var rekeyAfterRecords: UInt64 = 1 << 20
    /// The number of plaintext bytes after which this side changes its sending key; 1 GiB by
    /// default. The key is never changed before 1,024 records. In direct mode, only TLS changes
    /// its key.
    public var rekeyAfterBytes: UInt64 = 1 << 30

    /// The defaults above.
    public init() {}
}

/// The time limits of a channel: of its phases, and of waits during them.
public struct ChannelTimeouts: Sendable {
    /// Opening the link; 10 seconds.
    public var connect: Duration = .seconds(10)
    /// From the open link to the peer's complete answer, or to its complete hello and the handshake
    /// message behind the hello; 5 seconds (blesec/1, "Limits").
    public var negotiate: Duration = .seconds(5)
    /// From the end of the negotiation (in direct mode, from the open link) to the end of the
    /// handshake; begins anew after a trust decision; 10 seconds.
    public var handshake: Duration = .seconds(10)
    /// For a trust policy to decide, if it asks a person or a store, and for a store to remember
    /// the peer; 60 seconds each.
    ///
    /// While the policy decides, a peer in negotiated mode waits only as long as its own limits
    /// allow, by default 10 seconds: its ``ready`` if its handshake is complete, and otherwise its
    /// ``handshake``. With the default protocol and with TLS, a dialer waits for an acceptor's
    /// decision within `ready`, and an acceptor for a dialer's within `handshake`. An application
    /// that asks a person sets these limits higher on the peer.
    public var trustDecision: Duration = .seconds(60)
    /// From the end of this side's handshake to the peer's verified `ready`, and from one record of
    /// a pairing to the next; 10 seconds.
    public var ready: Duration = .seconds(10)
    /// In direct mode, from the end of the handshake to the peer's first transport message, if that
    /// message proves the peer's key; 60 seconds.
    public var proof: Duration = .seconds(60)
    /// After this time without a sign of life, the peer counts as dead; 60 seconds. A sign of life
    /// is a byte that arrives, or a full link that takes bytes again. A ping is sent when nothing
    /// has arrived for half of this time. Negotiated mode only: in direct mode silence is no error.
    public var idle: Duration = .seconds(60)
    /// From a record's first byte to its last; 30 seconds.
    public var record: Duration = .seconds(30)
    /// From one part of a message to the next, while this side reads; 60 seconds. Negotiated mode
    /// only: in direct mode silence between the parts of a message is no error.
    public var message: Duration = .seconds(60)
    /// For the peer to acknowledge a message for which `SecureChannel.deliver` waits; 60 seconds.
    public var delivery: Duration = .seconds(60)
    /// From `close()`, or from the last progress after it (such as an acknowledgement), until both
    /// sides have acknowledged everything; 10 seconds. In direct mode, when both sides have ended,
    /// with or without `close()`, the link also has this time to pass on what it has taken.
    public var close: Duration = .seconds(10)
    /// The age at which a session ends, so that a new session must be made; 24 hours. Time in which
    /// the machine is suspended does not count, as in all these times. In negotiated mode this side
    /// then sends its end with the reason `expired`. In direct mode, which has no reasons, the
    /// channel fails with `timedOut`, and no end is sent.
    public var session: Duration = .seconds(24 * 60 * 60)

    /// The defaults above.
    public init() {}
}
