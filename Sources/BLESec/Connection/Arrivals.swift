public import BLESecChannelCore

extension PeerConnection {
    /// The results of a call that is made again and again, until it returns `nil` or throws. After
    /// an error, an iterator can be asked again, just as the call can be made again.
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
