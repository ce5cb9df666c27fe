public import BLESecChannelCore
public import BLESecNoise
package import BLESecPrimitives
public import BLESecTLSEngine

/// What a channel is made with: this side's identity, the trust policy, the protocols, the limits.
public struct ChannelConfiguration: Sendable {
    /// The two modes of blesec/1; a link uses one of them throughout.
    public enum Mode: Sendable, Hashable {
        /// Hello, answer, handshake, then records with acknowledgements and an explicit end.
        case negotiated
        /// Length-prefixed Noise messages or TLS, and nothing else, to interoperate with other
        /// implementations. In this mode a side cannot detect that a Noise stream was truncated.
        ///
        /// A direct channel carries a stream of bytes, without the boundaries of messages:
        /// ``SecureChannel/byteStream`` is the interface for it. A long message leaves in pieces,
        /// and ``SecureChannel/receive()`` returns the next piece of the stream.
        ///
        /// With some patterns, a peer is proven only by its first message after the handshake, and
        /// there is no channel before that message (`docs/noise.md`, "Who speaks first in direct
        /// mode").
        case direct
    }

    /// Which of the peer's messages this side acknowledges.
    public enum Acknowledgement: Sendable, Hashable {
        /// The messages that the application has taken: ``SecureChannel/receive()`` has returned
        /// the message, or ``SecureChannel/ByteStream/read(atMost:)`` has returned its last byte.
        /// With a peer that lacks the feature *taken* (`docs/wire-format.md`, "Features"): the
        /// messages that have arrived.
        case automatic
        /// The messages that ``SecureChannel/confirm(through:)`` names. Negotiated mode only.
        case manual
    }

    /// The default protocol, which a phone can implement with its platform's own primitives.
    public static let defaultProtocol = "Noise_XX_25519_ChaChaPoly_SHA256"

    /// This side's Noise identity; may be `nil` if no offered protocol needs one.
    public var identity: IdentityKey?
    /// Decides which peers are accepted.
    public var trust: TrustPolicy
    /// This side's certificate and TLS settings, needed if ``TLSContext/protocolName`` is offered.
    public var tls: TLSContext?
    /// Decides about peers over TLS; `nil` means that ``trust`` decides. The deny list of ``trust``
    /// applies in either case.
    public var certificateTrust: TrustPolicy?
    /// Protocol names, best first; in direct mode exactly one.
    public var protocols = [defaultProtocol]
    /// Negotiated or direct.
    public var mode = Mode.negotiated
    /// Which of the peer's messages this side acknowledges.
    public var acknowledgement = Acknowledgement.automatic
    /// At most 255 bytes that must be the same on both sides; not secret. Negotiated mode only.
    public var context: [UInt8] = []
    /// The Noise prologue in direct mode; it may not begin with `blesec/1`.
    public var prologue: [UInt8] = []
    /// The keys for patterns with `psk`, 32 bytes each.
    public var presharedKeys: [PreSharedKey] = []
    /// Allows patterns that send this side's static key in clear, or reveal it to any acceptor. An
    /// acceptor may always use patterns that reveal its key to any dialer, as XX does.
    public var allowsExposedIdentity = false
    /// Whether the channel is for a connection whose messages arrive exactly once
    /// (``PeerConnection/Guarantee/exactlyOnce(_:)``). Such a channel carries no messages of its
    /// own. Both sides must set the same value. Negotiated mode only.
    public var carriesDelivery = false
    /// The process's unfinished dials, by which a device detects a connection to itself.
    package var pendingDials = PendingDials.shared
    /// A fixed ephemeral key, only for the worked examples of the wire format.
    package var fixedEphemeral: DHKeyPair?
    /// Bounds on memory and work.
    public var limits = ChannelLimits()
    /// Bounds on time.
    public var timeouts = ChannelTimeouts()

    /// Makes a configuration for the default protocol.
    public init(identity: IdentityKey?, trust: TrustPolicy) {
        self.identity = identity
        self.trust = trust
    }
}
