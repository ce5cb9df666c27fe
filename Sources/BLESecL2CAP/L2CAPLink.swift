package import BLESecLinks

/// Links over L2CAP connection-oriented channels on LE.
///
/// Only one of two devices should open the channels between them: kernels confuse the signalling
/// when the accepting device opens one back at once.
package enum L2CAPLink {
    /// The largest SDU that is sent by default, in bytes, whatever the peer's MTU.
    ///
    /// It is half of the SDU that Linux accepts. The receiver's first credits are enough for one
    /// SDU of its MTU and one packet more, and it grants no others before that SDU is complete
    /// (Core Specification, Volume 3, Part A, §10.1). With half-size SDUs, the credits for the
    /// second half arrive in time. Including the SDU length field, this size fills 17 packets of
    /// 247 bytes, and a message of 4 KiB fits.
    package static let maximumSDU = 4_197

    /// The default and the upper limit for the largest SDU that is received, in bytes. If the
    /// receive buffer is small, kernels stall for ever in the middle of a larger SDU.
    package static let maximumReceiveMTU = 8_192

    /// The smallest MTU that the specification allows, in bytes.
    package static let minimumMTU = 23

    /// Opens a channel.
    ///
    /// The kernel gives up on an absent device after 40 s; `deadline` may be earlier.
    ///
    /// - Parameters:
    ///   - adapter: the adapter to dial from; nil leaves the choice to the kernel.
    ///   - receiveMTU: the largest SDU that the peer may send, 23 to 8,192 bytes.
    ///   - maximumSDU: the largest SDU that is sent, 23 to 8,192 bytes; the peer's MTU limits it as
    ///     well.
    /// - Throws: ``LinkError``: ``LinkError/Code/refused`` when nothing listens on the PSM,
    ///   ``LinkError/Code/unreachable`` when no adapter is on, ``LinkError/Code/timedOut`` at the
    ///   deadline, ``LinkError/Code/cancelled`` when the task is cancelled.
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
