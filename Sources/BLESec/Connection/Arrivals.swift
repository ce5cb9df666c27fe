public import BLESecChannelCore

extension PeerConnection {
    /// What a call returns, one element after another, until it returns `nil` or throws. An iterator
    /// can go on after an error, as the call can.
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
