package import BLESecLinks

// Links over L2CAP connection-oriented channels on LE.
extension SocketLink {
    /// Opens a channel. Of two devices, only one should open the channels between them: kernels
    /// confuse the signalling when both devices open channels at the same time.
    ///
    /// The kernel gives up after 40 s if the device is absent; `deadline` may be earlier.
    ///
    /// - Parameters:
    ///   - adapter: the adapter to dial from; nil leaves the choice to the kernel.
    ///   - receiveMTU: the largest SDU that the peer may send, 23 to 8,192 bytes.
    ///   - maximumSDU: the largest SDU that is sent, 23 to 8,192 bytes; the peer's MTU limits it as
    ///     well.
    /// - Throws: ``LinkError``, for example with these codes:
    ///   - ``LinkError/Code/refused`` when nothing listens on the PSM or the device cannot be reached.
    ///   - ``LinkError/Code/unreachable`` when no adapter is on.
    ///   - ``LinkError/Code/timedOut`` at the deadline.
    ///   - ``LinkError/Code/cancelled`` when the task is cancelled.
    package static func dial(
        _ address: L2CAPAddress, from adapter: Adapter? = nil, deadline: MonotonicTime,
        receiveMTU: Int = L2CAPSocket.maximumReceiveMTU,
        maximumSDU: Int = L2CAPSocket.maximumSDU, loop: EventLoop = .shared
    ) async throws(LinkError) -> SocketLink {
        L2CAPSocket.check(receiveMTU: receiveMTU, maximumSDU: maximumSDU)
        let localAddress = L2CAPSocketAddress(
            device: adapter?.address ?? .any, type: .public, psm: 0)
        let explain: @Sendable (SystemError) -> LinkError = {
            L2CAPFailure.explainDial($0, address)
        }
        let target = SocketDialer.Target(
            name: address.description, address: L2CAPSocketAddress(address).socketAddress,
            open: { () throws(LinkError) in
                try L2CAPFailure.translate(
                    L2CAPSocket.open(boundTo: localAddress, receiveMTU: receiveMTU), explain)
            }, explain: explain)
        return try await SocketDialer.dial(target, deadline: deadline, loop: loop) {
            (source) throws(LinkError) in
            let traits = try L2CAPFailure.translate(
                L2CAPSocket.traits(source.fileDescriptor, maximumSDU: maximumSDU), explain)
            return SocketLink(source, traits)
        }
    }
}
