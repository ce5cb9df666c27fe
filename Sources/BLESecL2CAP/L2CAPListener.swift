package import BLESecLinks

/// A listener on a PSM of one adapter, or of all adapters.
package final class L2CAPListener: LinkListener {
    /// The address that peers dial, with the PSM that the kernel has chosen if none was given.
    ///
    /// If the listener accepts peers on all adapters, this is the address of the first adapter that
    /// is on.
    package let localAddress: L2CAPAddress

    private let listener: SocketListener

    private init(_ address: L2CAPAddress, _ listener: SocketListener) {
        localAddress = address
        self.listener = listener
    }

    /// Starts to listen.
    ///
    /// - Parameters:
    ///   - psm: the PSM; nil chooses a free dynamic one.
    ///   - adapter: the adapter to listen on; nil for all of them.
    ///   - receiveMTU: the largest SDU that a peer may send, 23 to 8,192 bytes.
    ///   - maximumSDU: the largest SDU that is sent, 23 to 8,192 bytes; the peer's MTU limits it as
    ///     well.
    ///   - backlog: the argument of `listen(2)`. Until `accept` is called, the kernel connects this
    ///     number of peers and one more.
    /// - Throws: ``LinkError``: ``LinkError/Code/addressInUse``, ``LinkError/Code/permission`` for
    ///   a PSM below 0x80 without CAP_NET_BIND_SERVICE, ``LinkError/Code/noSuchAdapter`` when no
    ///   adapter is on.
    package static func listen(
        psm: PSM? = nil, on adapter: Adapter? = nil,
        receiveMTU: Int = L2CAPSocket.maximumReceiveMTU, maximumSDU: Int = L2CAPSocket.maximumSDU,
        backlog: Int32 = 8, loop: EventLoop = .shared
    ) throws(LinkError) -> L2CAPListener {
        L2CAPSocket.check(receiveMTU: receiveMTU, maximumSDU: maximumSDU)
        let reportedAdapter = if let adapter { adapter } else { try Adapter.first() }
        let wanted = L2CAPSocketAddress(
            device: adapter?.address ?? .any, type: .public, psm: psm?.rawValue ?? 0)
        let (descriptor, actualPSM) = try open(wanted, psm, receiveMTU, backlog)
        let address = L2CAPAddress(device: reportedAdapter.address, psm: actualPSM)
        let listener = SocketListener(
            owning: descriptor, name: address.description, loop: loop,
            traits: { (descriptor) throws(LinkError) in
                do throws(SystemError) {
                    try L2CAPSocket.setBuffers(descriptor)
                    return try L2CAPSocket.traits(descriptor, maximumSDU: maximumSDU)
                } catch {
                    throw LinkError(error, cannot: "accept a channel")
                }
            })
        return L2CAPListener(address, listener)
    }

    /// See `LinkListener`.
    package func accept() async throws(LinkError) -> any Link { try await listener.accept() }
    /// See `LinkListener`.
    package func accept(
        on choose: @escaping @Sendable () -> EventLoop
    ) async throws(LinkError) -> any Link {
        try await listener.accept(on: choose)
    }
    /// See `LinkListener`.
    package func close() async { await listener.close() }
    /// The endpoint in the format of the command-line tools.
    package var localDescription: String { localAddress.description }

    private static func open(
        _ wanted: L2CAPSocketAddress, _ psm: PSM?, _ receiveMTU: Int, _ backlog: Int32
    ) throws(LinkError) -> (Int32, PSM) {
        var descriptor: Int32 = -1
        do throws(SystemError) {
            descriptor = try L2CAPSocket.open(boundTo: wanted, receiveMTU: receiveMTU)
            try Socket.listen(descriptor, backlog: backlog)
            let bound = try Socket.localAddress(descriptor)
            if let actual = L2CAPSocketAddress(bound), let psm = try? PSM(Int(actual.psm)) {
                return (descriptor, psm)
            }
        } catch {
            if descriptor >= 0 { Socket.close(descriptor) }
            throw L2CAPFailure.explainListen(error, psm: psm)
        }
        Socket.close(descriptor)
        throw LinkError(.system, "the kernel bound the listener to an address that is not LE")
    }
}
