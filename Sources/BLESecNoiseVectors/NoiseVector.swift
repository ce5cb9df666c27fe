/// A test vector: one run of a protocol with the keys of both sides and every message.
///
/// Its keys are known to everyone, so they are plain bytes.
package struct NoiseVector: Sendable, Hashable {
    /// What one side brings, `init_…` or `resp_…`.
    package struct Party: Sendable, Hashable {
        /// `prologue`.
        package var prologue: [UInt8] = []
        /// `psks`, in the order in which the messages use them.
        package var psks: [[UInt8]] = []
        /// `static`: the private key.
        package var staticKey: [UInt8]?
        /// `ephemeral`: the private key.
        package var ephemeral: [UInt8]?
        /// `remote_static`: the public key of the other side, where it is known beforehand.
        package var remoteStatic: [UInt8]?
    }

    /// One message, of the handshake or behind it.
    package struct Message: Sendable, Hashable {
        /// What its sender hands in.
        package var payload: [UInt8]
        /// What travels.
        package var ciphertext: [UInt8]
    }

    /// `protocol_name`, whether this module knows it or not.
    package var protocolName: String
    /// The pattern of an attempt before a fallback, whose first message is `messages[0]`; some
    /// write such a vector with `fallback` and `pattern`.
    package var attemptedPattern: String?
    /// `init_…`
    package var initiator = Party()
    /// `resp_…`
    package var responder = Party()
    /// `handshake_hash`
    package var handshakeHash: [UInt8]?
    /// The handshake's messages, then transport messages from both sides in turn.
    package var messages: [Message] = []
}
