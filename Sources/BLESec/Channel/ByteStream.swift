public import BLESecChannelCore

extension SecureChannel {
    /// The channel as a stream of bytes, for protocols that have their own message boundaries.
    ///
    /// The stream does not preserve message boundaries. Use either the stream or
    /// ``SecureChannel/receive()`` on one channel, not both: ``SecureChannel/receive()`` does not
    /// return the rest of a message that the stream has begun to read.
    public nonisolated var byteStream: ByteStream { ByteStream(channel: self) }

    /// See ``SecureChannel/byteStream``.
    public struct ByteStream: Sendable {
        let channel: SecureChannel

        /// ``write(_:)`` sends messages of at most this many bytes, or of
        /// ``ChannelLimits/maximumMessageLength`` bytes if that is less.
        public static let pieceLength = 64 << 10

        /// Returns 1 to `count` bytes, or `nil` once the peer sends no more. `count` must be
        /// positive.
        ///
        /// Throws `truncated` if the peer ended the channel with a reason other than `done`;
        /// otherwise the error that ended the channel, or `cancelled`.
        public func read(atMost count: Int) async throws(ChannelError) -> [UInt8]? {
            precondition(count > 0, "a read asks for at least one byte")
            return try await channel.read(atMost: count)
        }

        /// Queues bytes for the peer, and suspends while too many bytes are waiting.
        public func write(_ bytes: [UInt8]) async throws(ChannelError) {
            let limit = channel.configuration.limits.maximumMessageLength
            let pieceLength = min(Self.pieceLength, max(1, limit))
            var rest = bytes[...]
            while !rest.isEmpty {
                let piece = rest.prefix(pieceLength)
                rest = rest.dropFirst(piece.count)
                try await channel.send(Array(piece))
            }
        }
    }

    func read(atMost count: Int) async throws(ChannelError) -> [UInt8]? {
        while unreadBytes.isEmpty {
            // Waits here and not in `nextMessage()`, because another call may fill `unreadBytes`
            // during the wait.
            guard canReceive else {
                try await wait(for: .message) { !unreadBytes.isEmpty || canReceive }
                continue
            }
            guard let message = try await nextMessage() else { return nil }
            unreadBytes = message[...]
            if message.isEmpty { didTakeMessage() }
        }
        let bytes = Array(unreadBytes.prefix(count))
        unreadBytes = unreadBytes.dropFirst(bytes.count)
        // A message counts as taken when its last byte is read.
        if unreadBytes.isEmpty { didTakeMessage() }
        return bytes
    }
}
