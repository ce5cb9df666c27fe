package import BLESecLinks

/// Links over L2CAP connection-oriented channels on LE.
///
/// One side of a pair of devices should open all channels between them: kernels mix up the
/// signalling when the accepting side opens one back at once.
package enum L2CAPLink {
    /// The largest SDU that is sent by default, in bytes, whatever the peer's MTU.
    ///
    /// Half of what Linux takes: its first credits are enough for one SDU as long as its MTU and one
    /// packet more, and it gives no others before that SDU is complete (Core Specification, Volume 3,
    /// Part A, §10.1). With half of it under way the credits for the other half come in time. With the
    /// SDU's length these are 17 full packets of 247 bytes, and a message of 4 KiB fits.
    package static let maximumSDU = 4_197

    /// The largest SDU that is received by default, and the largest that may be asked for, in bytes:
    /// kernels stop in the middle of larger ones for ever when the receive buffer is small.
    package static let maximumReceiveMTU = 8_192

    /// The smallest MTU that the specification allows, in bytes.
    package static let minimumMTU = 23

    /// Opens a channel.
    ///
    /// The kernel gives up on an absent device after 40 s; `deadline` is the caller's own bound.
    ///
    /// - Parameters:
    ///   - adapter: the one to dial from; nil leaves it to the kernel.
    ///   - receiveMTU: the largest SDU that the peer may send, 23 to 8,192 bytes.
    ///   - maximumSDU: the largest that is sent, 23 to 8,192 bytes; the peer's MTU bounds it as well.
    /// - Throws: ``LinkError``: ``LinkError/Code/refused`` when nobody listens on the PSM,
    ///   ``LinkError/Code/unreachable`` without an adapter that is on,
    ///   ``LinkError/Code/timedOut`` at the deadline, ``LinkError/Code/cancelled`` when the task is.
    package static func dial(
        _ address: L2CAPAddress, from adapter: Adapter? = nil, deadline: MonotonicTime,
        receiveMTU: Int = maximumReceiveMTU, maximumSDU: Int = L2CAPLink.maximumSDU,
        loop: EventLoop = .shared
    ) async throws(LinkError) -> SocketLink {
        check(receiveMTU: receiveMTU, maximumSDU: maximumSDU)
        let local = L2CAPSocketAddress(
            device: adapter?.address ?? .any, type: .public, psm: 0)
        let target = SocketDialer.Target(
            name: address.description, address: L2CAPSocketAddress(address).socketAddress,
            open: { () throws(LinkError) in
                do throws(SystemError) {
                    return try L2CAPSocket.open(boundTo: local, receiveMTU: receiveMTU)
                } catch {
                    throw L2CAPFailure.explainDial(error, address)
                }
            },
            explain: { error in L2CAPFailure.explainDial(error, address) })
        return try await SocketDialer.dial(target, deadline: deadline, loop: loop) {
            (source) throws(LinkError) in
            do throws(SystemError) {
                return try L2CAPSocket.link(source, maximumSDU: maximumSDU)
            } catch {
                throw L2CAPFailure.explainDial(error, address)
            }
        }
    }

    static func check(receiveMTU: Int, maximumSDU: Int) {
        let range = minimumMTU...maximumReceiveMTU
        precondition(range.contains(receiveMTU), "a receive MTU is 23 to 8,192 bytes")
        precondition(range.contains(maximumSDU), "the largest SDU is 23 to 8,192 bytes")
    }
}
