public import BLESecChannelCore

extension SecureChannel {
    /// The peer's messages as they are asked for: nothing is read ahead beyond
    /// ``ChannelLimits/readAhead``, and a consumer that is slow slows the peer down.
    ///
    /// The sequence ends when the peer has said that it has sent everything, and throws what ended
    /// the channel otherwise, as ``receive()`` does. Each message goes to one consumer, whoever asks first.
    public nonisolated var messages: Messages { Messages(channel: self) }

    /// See ``SecureChannel/messages``.
    public struct Messages: AsyncSequence, Sendable {
        let channel: SecureChannel

        /// Begins, or goes on, with the next message.
        public func makeAsyncIterator() -> Iterator { Iterator(channel: channel) }

        /// See ``SecureChannel/messages``.
        public struct Iterator: AsyncIteratorProtocol {
            let channel: SecureChannel

            /// The next message, or `nil` after the last.
            public mutating func next() async throws(ChannelError) -> [UInt8]? {
                try await channel.receive()
            }

            /// The next message, or `nil` after the last.
            public mutating func next(
                isolation actor: isolated (any Actor)?
            ) async throws(ChannelError) -> [UInt8]? {
                try await channel.receive()
            }
        }
    }
}
