extension TrustPolicy {
    /// A peer with which a pairing was begun and not completed: this side has sent, or was about to
    /// send, its last confirmation, and does not know whether the peer has received it.
    ///
    /// Such a peer is not trusted. The entry serves only to complete the pairing when the two meet
    /// again.
    public struct PendingPeer: Sendable, Hashable, CustomStringConvertible {
        /// How long a store keeps the entry: 24 hours.
        public static let lifetime: Duration = .seconds(24 * 60 * 60)
        /// The length of ``transcript`` in bytes.
        public static let transcriptLength = 32

        /// The name under which the peer will be known.
        public let name: String
        /// The peer's key.
        public let key: Fingerprint
        /// A hash over the pairing, 32 bytes. With a code, only a side that knew the code can
        /// calculate it; in the other ways of pairing, nothing depends on its secrecy.
        public let transcript: [UInt8]
        /// Whether this side has accepted the peer: the peer has proven that it knows the code or
        /// the invitation's secret, or a person on this side has confirmed the digits.
        public let isVerified: Bool

        /// Makes an entry; called by a store that has read it.
        public init(name: String, key: Fingerprint, transcript: [UInt8], isVerified: Bool) {
            self.name = name
            self.key = key
            self.transcript = transcript
            self.isVerified = isVerified
        }

        /// The name and the key, without the transcript.
        public var description: String { "\(name) \(key)" }
    }
}

extension TrustStore {
    /// Refuses: this store cannot keep a pairing that is not complete.
    public func pendingPeer(_ key: Fingerprint) throws(ChannelError) -> TrustPolicy.PendingPeer? {
        throw Self.keepsNoPending
    }

    /// Refuses: this store cannot keep a pairing that is not complete.
    public func keepPending(_ peer: TrustPolicy.PendingPeer) throws(ChannelError) {
        throw Self.keepsNoPending
    }

    /// Refuses: this store cannot keep a pairing that is not complete.
    public func forgetPending(_ key: Fingerprint) throws(ChannelError) {
        throw Self.keepsNoPending
    }

    private static var keepsNoPending: ChannelError {
        ChannelError(
            .configuration,
            "this trust store cannot keep a pairing that is not complete; use KnownPeersFile, or "
                + "implement pendingPeer, keepPending and forgetPending")
    }
}
