/// A test vector: one run of a protocol with the keys of both sides and every message.
///
/// The keys are public, so they are not stored as secrets.
package struct NoiseVector: Sendable, Hashable {
    /// The keys and the prologue of one side, `init_…` or `resp_…`.
    package struct Party: Sendable, Hashable {
        /// `prologue`.
        package var prologue: [UInt8] = []
        /// `psks`, in the order in which the messages use them.
        package var psks: [[UInt8]] = []
        /// `static`: the private key.
        package var staticKey: [UInt8]?
        /// `ephemeral`: the private key.
        package var ephemeral: [UInt8]?
        /// `remote_static`: the public key of the other side, if it is known before the handshake.
        package var remoteStatic: [UInt8]?
    }

    /// One message, of the handshake or of transport.
    package struct Message: Sendable, Hashable {
        /// The payload that its sender encrypts.
        package var payload: [UInt8]
        /// The bytes that are sent.
        package var ciphertext: [UInt8]
    }

    /// `protocol_name`, even if this module does not implement it.
    package var protocolName: String
    /// The pattern of the attempt before a fallback, whose first message is `messages[0]`. Some
    /// implementations write such a vector with `fallback` and `pattern`.
    package var attemptedPattern: String?
    /// `init_…`
    package var initiator = Party()
    /// `resp_…`
    package var responder = Party()
    /// `handshake_hash`
    package var handshakeHash: [UInt8]?
    /// The handshake's messages, then transport messages from the two sides in turn.
    package var messages: [Message] = []
}
