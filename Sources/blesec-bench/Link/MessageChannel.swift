internal import BLESec

/// A channel that the link scenario measures: a secure channel, a connection, or the plain channel
/// for comparison.
protocol MessageChannel: Actor {
    /// Queues a message, and suspends while too many bytes are queued.
    func send(_ message: [UInt8]) async throws(ChannelError)
    /// The next message, or `nil` after the last.
    func receive() async throws(ChannelError) -> [UInt8]?
    /// Tells the peer that no message follows, and waits until the peer says the same.
    func close() async throws(ChannelError)
}

extension SecureChannel: MessageChannel {
    func close() async throws(ChannelError) { try await close(within: nil) }
}

extension PeerConnection: MessageChannel {
    func send(_ message: [UInt8]) async throws(ChannelError) {
        _ = try await send(message, noting: nil)
    }

    func close() async throws(ChannelError) { try await close(.done) }
}
