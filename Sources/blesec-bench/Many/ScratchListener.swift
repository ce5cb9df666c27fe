internal import BLESec
internal import BLESecLinks

extension SecureListener {
    /// Listens on a Unix socket in /tmp while `body` runs. Then closes the listener, which removes
    /// the socket's file, even if `body` throws.
    static func withScratch<Value>(
        _ configuration: ChannelConfiguration, loop: EventLoop,
        _ body: (SecureListener, UnixAddress) async throws -> Value
    ) async throws -> Value {
        let address = try UnixAddress.scratch(.seqpacket)
        let listener = try await listen(
            on: Endpoint(address), configuration: configuration, loop: loop)
        do {
            let value = try await body(listener, address)
            await listener.close()
            return value
        } catch {
            await listener.close()
            throw error
        }
    }
}
