package import BLESecPrimitives

/// The ephemeral key of an earlier handshake, reused by a fallback pattern; Noise §10.
package enum CarriedEphemeral: Sendable {
    /// The key pair of this party, which was the initiator.
    case local(DHKeyPair)
    /// The peer's public key, from the first message, which this party could not read.
    case remote([UInt8])
}
