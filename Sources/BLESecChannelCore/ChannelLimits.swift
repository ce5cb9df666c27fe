/// Bounds on what a peer can make this side hold, send or wait for.
public struct ChannelLimits: Sendable {
    /// The longest message in either direction, in bytes; 16 MiB by default.
    public var maximumMessageLength = 16 << 20
    /// How many bytes of whole messages wait for the application before reading stops; 256 KiB.
    public var readAhead = 256 << 10
    /// What is read beyond ``readAhead`` while somebody waits for the peer's acknowledgement, which
    /// comes behind the peer's messages, and from a link that has gone; 1 MiB.
    public static let extraReadAhead = 1 << 20
    /// How many bytes of messages wait to be sent before `send` suspends; 64 KiB.
    public var sendAhead = 64 << 10
    /// How many bytes are read of a peer before it is authenticated, its `ready` included; 32 KiB
    /// (blesec/1, "Limits"). One transport message more in direct mode, where that is what proves the
    /// peer. A peer that is not authenticated by them is refused.
    public var unauthenticatedBytes = 32 << 10
    /// Records in one direction before its key is changed; 2^20.
    public var rekeyAfterRecords: UInt64 = 1 << 20
    /// Plaintext bytes in one direction before its key is changed; 1 GiB.
    public var rekeyAfterBytes: UInt64 = 1 << 30

    /// The defaults above.
    public init() {}
}

/// How long each phase of a channel may take.
public struct ChannelTimeouts: Sendable {
    /// Opening the link; 10 seconds.
    public var connect: Duration = .seconds(10)
    /// From the link to a complete hello or answer; 5 seconds (blesec/1, "Limits").
    public var negotiate: Duration = .seconds(5)
    /// From the hello to the end of the handshake; 10 seconds.
    public var handshake: Duration = .seconds(10)
    /// For a trust policy that asks someone or a store, and for a store to remember; 60 seconds each.
    public var trustDecision: Duration = .seconds(60)
    /// From the end of one's own handshake to the peer's verified `ready`; 10 seconds.
    public var ready: Duration = .seconds(10)
    /// In direct mode, from the end of the handshake to the first transport message of a peer that
    /// proves its key with that; 60 seconds.
    public var proof: Duration = .seconds(60)
    /// Silence with nothing making progress before a peer counts as dead; 60 seconds. A ping is
    /// sent after half of it.
    public var idle: Duration = .seconds(60)
    /// From a record's first byte to its last; 30 seconds.
    public var record: Duration = .seconds(30)
    /// From one piece of a message to the next, while this side reads; 60 seconds.
    public var message: Duration = .seconds(60)
    /// For the peer's program to take a message that `deliver` waits for; 60 seconds.
    public var delivery: Duration = .seconds(60)
    /// From `close()`, or from the last acknowledgement behind it, to both ends acknowledged; 10
    /// seconds.
    public var close: Duration = .seconds(10)
    /// A session's age before it has to be made anew; 24 hours.
    public var session: Duration = .seconds(24 * 60 * 60)

    /// The defaults above.
    public init() {}
}
