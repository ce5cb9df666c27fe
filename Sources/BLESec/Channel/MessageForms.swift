public import BLESecChannelCore

// Messages that are not arrays of bytes.
extension SecureChannel {
    /// Queues a text as UTF-8, as ``send(_:)-([UInt8])`` does.
    public func send(_ text: String) async throws(ChannelError) { try await send(Array(text.utf8)) }

    /// Queues a sequence of bytes, as ``send(_:)-([UInt8])`` does.
    public func send(_ message: some Sequence<UInt8> & Sendable) async throws(ChannelError) {
        try await send(Array(message))
    }

    /// Delivers a text as UTF-8, as ``deliver(_:within:)-([UInt8],_)`` does.
    public func deliver(
        _ text: String, within limit: Duration? = nil
    ) async throws(ChannelError) -> Delivery {
        try await deliver(Array(text.utf8), within: limit)
    }

    /// Delivers a sequence of bytes, as ``deliver(_:within:)-([UInt8],_)`` does.
    public func deliver(
        _ message: some Sequence<UInt8> & Sendable, within limit: Duration? = nil
    ) async throws(ChannelError) -> Delivery {
        try await deliver(Array(message), within: limit)
    }
}

extension PeerConnection {
    /// Queues a text as UTF-8, as ``send(_:whenDisconnected:)-([UInt8],_)`` does.
    public func send(
        _ text: String, whenDisconnected: WhenDisconnected = .wait
    ) async throws(ChannelError) -> PendingDelivery {
        try await send(Array(text.utf8), whenDisconnected: whenDisconnected)
    }

    /// Queues a sequence of bytes, as ``send(_:whenDisconnected:)-([UInt8],_)`` does.
    public func send(
        _ message: some Sequence<UInt8> & Sendable, whenDisconnected: WhenDisconnected = .wait
    ) async throws(ChannelError) -> PendingDelivery {
        try await send(Array(message), whenDisconnected: whenDisconnected)
    }

    /// Delivers a text as UTF-8, as ``deliver(_:whenDisconnected:)-([UInt8],_)`` does.
    public func deliver(
        _ text: String, whenDisconnected: WhenDisconnected = .wait
    ) async throws(ChannelError) -> Delivery {
        try await deliver(Array(text.utf8), whenDisconnected: whenDisconnected)
    }

    /// Delivers a sequence of bytes, as ``deliver(_:whenDisconnected:)-([UInt8],_)`` does.
    public func deliver(
        _ message: some Sequence<UInt8> & Sendable, whenDisconnected: WhenDisconnected = .wait
    ) async throws(ChannelError) -> Delivery {
        try await deliver(Array(message), whenDisconnected: whenDisconnected)
    }
}
