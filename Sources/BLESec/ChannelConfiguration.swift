public import BLESecChannelCore
public import BLESecNoise
package import BLESecPrimitives
public import BLESecTLSEngine

/// Everything that decides how a channel is made: who one is, whom one trusts, what one speaks.
public struct ChannelConfiguration: Sendable {
    /// Which of blesec/1's two modes a link speaks; they are never mixed.
    public enum Mode: Sendable, Hashable {
        /// Hello, answer, handshake, records with acknowledgements and a proper end.
        case negotiated
        /// Length-prefixed Noise messages or TLS, and nothing else, for talking to anyone's
        /// implementation. That a Noise stream was cut short cannot be told in this mode, and some
        /// patterns prove a peer only with its first message behind the handshake: there is no channel
        /// before that (`docs/noise.md`, "Who speaks first in direct mode").
        case direct
    }

    /// Which of the peer's messages are acknowledged, and so count as delivered there.
    public enum Acknowledgement: Sendable, Hashable {
        /// Those that the application has taken: ``SecureChannel/receive()`` has returned them, or
        /// ``SecureChannel/ByteStream/read(atMost:)`` their last byte.
        case automatic
        /// Those that ``SecureChannel/confirm(through:)`` names. Negotiated mode only.
        case manual
    }

    /// The default protocol: what a phone can do with its platform's own primitives.
    public static let defaultProtocol = "Noise_XX_25519_ChaChaPoly_SHA256"

    /// One's own Noise identity; may be `nil` where no offered protocol needs one.
    public var identity: IdentityKey?
    /// Who may be at the other end.
    public var trust: TrustPolicy
    /// One's own certificate and all that TLS needs, where ``TLSContext/protocolName`` is offered.
    public var tls: TLSContext?
    /// Who may be at the other end where the protocol is TLS; ``trust`` where this is `nil`. The deny
    /// list of ``trust`` counts in either case.
    public var certificateTrust: TrustPolicy?
    /// Protocol names, best first; in direct mode exactly one.
    public var protocols = [defaultProtocol]
    /// Negotiated or direct.
    public var mode = Mode.negotiated
    /// When this side tells the peer that a message is delivered.
    public var acknowledgement = Acknowledgement.automatic
    /// Bytes that both sides must hold alike; at most 255, not a secret. Negotiated mode only.
    public var context: [UInt8] = []
    /// The Noise prologue in direct mode; it may not begin with `blesec/1`.
    public var prologue: [UInt8] = []
    /// Keys that patterns with `psk` use, 32 bytes each.
    public var presharedKeys: [PreSharedKey] = []
    /// Allows patterns that send this side's static key in clear, or show it to whoever asks.
    public var allowsExposedIdentity = false
    /// Where this side's dials are remembered, so that it does not answer itself.
    package var pendingDials = PendingDials.shared
    /// An ephemeral in place of a fresh one: for the worked examples of the wire format alone.
    package var fixedEphemeral: DHKeyPair?
    /// Bounds on memory and work.
    public var limits = ChannelLimits()
    /// Bounds on time.
    public var timeouts = ChannelTimeouts()

    /// The default protocol with an identity and a trust policy.
    public init(identity: IdentityKey?, trust: TrustPolicy) {
        self.identity = identity
        self.trust = trust
    }
}
