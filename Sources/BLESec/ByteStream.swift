public import BLESecChannelCore

extension SecureChannel {
    /// The channel as a stream of bytes, for protocols that have boundaries of their own.
    ///
    /// Where one message ends and the next begins means nothing then. Use either this or
    /// ``SecureChannel/receive()`` on one channel, not both: what one has begun to read, the other
    /// does not see.
    public nonisolated var byteStream: ByteStream { ByteStream(channel: self) }

    /// See ``SecureChannel/byteStream``.
    public struct ByteStream: Sendable {
        let channel: SecureChannel

        /// The bytes that one message of a long write has at the most.
        public static let pieceLength = 64 << 10

        /// At least one byte and at most `count`, or `nil` once the peer sends no more.
        ///
        /// Throws what ended the channel, `truncated` where the peer has said that it does not send
        /// everything, or `cancelled`.
        public func read(atMost count: Int) async throws(ChannelError) -> [UInt8]? {
            precondition(count > 0, "a read asks for at least one byte")
            return try await channel.read(atMost: count)
        }

        /// Queues bytes for the peer, and suspends while too many are waiting.
        public func write(_ bytes: [UInt8]) async throws(ChannelError) {
            var rest = bytes[...]
            while !rest.isEmpty {
                let piece = rest.prefix(Self.pieceLength)
                rest = rest.dropFirst(piece.count)
                try await channel.send(Array(piece))
            }
        }
    }

    func read(atMost count: Int) async throws(ChannelError) -> [UInt8]? {
        while unread.isEmpty {
            // Another reader may have left bytes meanwhile, which come first.
            guard hasMessageNews else {
                try await wait(for: .message) { !unread.isEmpty || hasMessageNews }
                continue
            }
            guard let message = try await nextMessage() else { return nil }
            unread = message[...]
            if message.isEmpty { didTakeMessage() }
        }
        let bytes = Array(unread.prefix(count))
        unread = unread.dropFirst(bytes.count)
        // Its last byte is what makes a message taken.
        if unread.isEmpty { didTakeMessage() }
        return bytes
    }
}
