public import BLESecChannelCore

extension PeerConnection {
    /// What arrives, one element after another: the messages that ``PeerConnection/receive()``
    /// returns, or the bytes that ``PeerConnection/Stream/read(atMost:)`` returns. Each element is the
    /// result of one call. The sequence ends when the call returns `nil`. After an error, an iterator
    /// makes the call again for the next element.
    public struct Arrivals: AsyncSequence, Sendable {
        let call: @Sendable () async throws(ChannelError) -> [UInt8]?

        /// Makes an iterator that begins with the next element.
        public func makeAsyncIterator() -> Iterator { Iterator(call: call) }

        /// See ``PeerConnection/Arrivals``.
        public struct Iterator: AsyncIteratorProtocol {
            let call: @Sendable () async throws(ChannelError) -> [UInt8]?

            /// The next element, or `nil` after the last.
            public mutating func next() async throws(ChannelError) -> [UInt8]? {
                try await call()
            }

            /// The next element, or `nil` after the last.
            public mutating func next(
                isolation actor: isolated (any Actor)?
            ) async throws(ChannelError) -> [UInt8]? {
                try await call()
            }
        }
    }
}
