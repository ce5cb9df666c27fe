public import BLESecChannelCore

extension SecureChannel {
    /// The peer's messages, read on demand: the channel reads only a limited number of bytes ahead
    /// (``ChannelLimits/readAhead``), so a slow consumer slows the peer down.
    ///
    /// The sequence ends or throws as ``receive()`` does. Several consumers share the messages:
    /// each message goes to the consumer that asked first.
    public nonisolated var messages: Messages { Messages(channel: self) }

    /// See ``SecureChannel/messages``.
    public struct Messages: AsyncSequence, Sendable {
        let channel: SecureChannel
        /// Makes an iterator that begins with the next message.
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
