internal import BLESecLinks
internal import Glibc

/// Sets up kernel sockets for LE connection-oriented channels; the order of the steps matters.
package enum L2CAPSocket {
    /// The largest SDU that is sent by default, in bytes; the peer's MTU limits it as well.
    ///
    /// It is about half of ``maximumReceiveMTU``. A Linux receiver first grants just enough credits
    /// (Core Specification, Volume 3, Part A, §10.1) for one SDU of its MTU, and no further credits
    /// before an SDU is complete. With SDUs of half the MTU, further credits arrive before the
    /// first ones are used up. Including the SDU length field, this size fills 17 packets of 247
    /// bytes, and a message of 4 KiB fits.
    package static let maximumSDU = 4_197

    /// The default and the upper limit for the largest SDU that is received, in bytes.
    /// Kernels with a small receive buffer stall for ever in the middle of a larger SDU.
    package static let maximumReceiveMTU = 8_192

    /// The smallest MTU that the specification allows, in bytes.
    package static let minimumMTU = 23

    static let protocolL2CAP: Int32 = 0  // BTPROTO_L2CAP
    static let levelBluetooth: Int32 = 274  // SOL_BLUETOOTH
    static let optionSendMTU: Int32 = 12  // BT_SNDMTU
    static let optionReceiveMTU: Int32 = 13  // BT_RCVMTU

    /// The size that is set for each of the two socket buffers, in bytes: the default limit for an
    /// unprivileged process (`net.core.wmem_max`). The kernel makes the buffers twice as large.
    ///
    /// With a small receive buffer, the kernel gives no more credits in the middle of an SDU, and
    /// the channel stalls for ever. With a small send buffer, the kernel never takes a large SDU.
    static let bufferSize: Int32 = 212_992

    /// Opens a socket and binds it, for connect or listen; the caller owns the descriptor.
    ///
    /// The socket is bound first, with an LE address type. Without the bind, the kernel treats the
    /// channel as one of classic Bluetooth, and the data contain stray bytes. The kernel accepts
    /// the MTU only after the bind, and the MTU must be set before connecting. The socket is a byte
    /// stream, because such a socket keeps the rest of a partly read SDU, and reports the end after
    /// the data.
    static func open(
        boundTo address: L2CAPSocketAddress, receiveMTU: Int
    ) throws(SystemError) -> Int32 {
        let descriptor = try Socket.open(
            family: L2CAPSocketAddress.family, kind: .stream, protocol: protocolL2CAP)
        do throws(SystemError) {
            try Socket.bind(descriptor, to: address.socketAddress)
            try Socket.setOption16(
                descriptor, levelBluetooth, optionReceiveMTU, to: UInt16(receiveMTU))
            try setBuffers(descriptor)
            return descriptor
        } catch {
            Socket.close(descriptor)
            throw error
        }
    }

    /// Enlarges the socket's buffers; an accepted socket does not inherit its listener's sizes.
    static func setBuffers(_ descriptor: Int32) throws(SystemError) {
        try Socket.setOption(descriptor, SOL_SOCKET, SO_SNDBUF, to: bufferSize)
        try Socket.setOption(descriptor, SOL_SOCKET, SO_RCVBUF, to: bufferSize)
    }

    /// The traits of a connected socket's link.
    static func traits(
        _ descriptor: Int32, maximumSDU: Int
    ) throws(SystemError) -> SocketLink.Traits {
        let peer = L2CAPSocketAddress(try Socket.peerAddress(descriptor)).map {
            DeviceAddress($0.device, $0.type)
        }
        let sendMTU = try Socket.option16(descriptor, levelBluetooth, optionSendMTU)
        var traits = SocketLink.Traits(
            maximumSDU: min(Int(sendMTU), maximumSDU),
            peerDescription: peer?.description ?? "unknown device",
            peerAddress: peer.map { LinkAddress($0) })
        traits.resetIsEnd = true
        traits.canHalfClose = false
        traits.isBluetooth = true
        traits.sendsPackets = true
        return traits
    }

    /// Traps unless both sizes are in the permitted range.
    static func check(receiveMTU: Int, maximumSDU: Int) {
        let range = minimumMTU...maximumReceiveMTU
        precondition(range.contains(receiveMTU), "a receive MTU is 23 to 8,192 bytes")
        precondition(range.contains(maximumSDU), "the largest SDU is 23 to 8,192 bytes")
    }
}
