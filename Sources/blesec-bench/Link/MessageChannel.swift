internal import BLESec

/// What the link scenario measures: a secure channel, or the plain one that it is compared with.
protocol MessageChannel: Actor {
    /// Queues a message, and suspends while too many bytes wait.
    func send(_ message: [UInt8]) async throws(ChannelError)
    /// The next message, or `nil` after the last.
    func receive() async throws(ChannelError) -> [UInt8]?
    /// Says that nothing more comes, and waits for the peer to say so as well.
    func close() async throws(ChannelError)
}

extension SecureChannel: MessageChannel {}
