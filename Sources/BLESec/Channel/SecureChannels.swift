public import BLESecChannelCore

/// The channels of a listener or service as they become ready, until the listener or service is
/// closed.
public struct SecureChannels: AsyncSequence, Sendable {
    let accept: @Sendable () async throws(ChannelError) -> SecureChannel
    /// Makes an iterator that begins with the channel that has waited longest.
    public func makeAsyncIterator() -> Iterator { Iterator(accept: accept) }

    /// See ``SecureChannels``.
    public struct Iterator: AsyncIteratorProtocol {
        let accept: @Sendable () async throws(ChannelError) -> SecureChannel

        /// The next channel, or `nil` once no more will come.
        public mutating func next() async throws(ChannelError) -> SecureChannel? {
            do throws(ChannelError) {
                return try await accept()
            } catch {
                if error.code == .closed { return nil }
                throw error
            }
        }

        /// The requirement of `AsyncIteratorProtocol`; does the same as ``next()``.
        public mutating func next(
            isolation actor: isolated (any Actor)?
        ) async throws(ChannelError) -> SecureChannel? {
            try await next()
        }
    }
}
