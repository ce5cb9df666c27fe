internal import BLESecLinks
internal import Glibc

/// How the kernel wants its LE connection-oriented channels: what is done, and in which order.
enum L2CAPSocket {
    static let protocolL2CAP: Int32 = 0  // BTPROTO_L2CAP
    static let levelBluetooth: Int32 = 274  // SOL_BLUETOOTH
    static let optionSendMTU: Int32 = 12  // BT_SNDMTU
    static let optionReceiveMTU: Int32 = 13  // BT_RCVMTU

    /// What is asked for both buffers: what an unprivileged process may have by default
    /// (`net.core.wmem_max`); the kernel doubles it.
    ///
    /// A small receive buffer stops the peer's credits in the middle of an SDU for ever, a small
    /// send buffer never takes a large SDU.
    static let bufferSize: Int32 = 212_992

    /// A socket that is bound and ready for connect or listen, which the caller owns.
    ///
    /// Bound first, with an LE type: without that the channel stays classic and data arrives with
    /// stray bytes; and only then does the kernel take the MTU, which must be set before connecting.
    /// A byte stream, because such a socket keeps the rest of an SDU that was read in part, and tells
    /// the end after the data.
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

    /// Raises the buffers; an accepted socket does not inherit them.
    static func setBuffers(_ descriptor: Int32) throws(SystemError) {
        try Socket.setOption(descriptor, SOL_SOCKET, SO_SNDBUF, to: bufferSize)
        try Socket.setOption(descriptor, SOL_SOCKET, SO_RCVBUF, to: bufferSize)
    }

    /// Makes a link of a connected socket.
    static func link(
        _ source: EventSource, maximumSDU: Int
    ) throws(SystemError) -> SocketLink {
        let descriptor = source.fileDescriptor
        let peer = L2CAPSocketAddress(try Socket.peerAddress(descriptor))
        let sendMTU = try Socket.option16(descriptor, levelBluetooth, optionSendMTU)
        var traits = SocketLink.Traits(
            maximumSDU: min(Int(sendMTU), maximumSDU),
            peerDescription: peer.map { "\($0.device) (\($0.type.rawValue))" } ?? "unknown device",
            peerAddress: peer.map { LinkAddress("\($0.device) (\($0.type.rawValue))") })
        traits.resetIsEnd = true
        traits.canHalfClose = false
        traits.tellsFreeSpace = true
        traits.sendsPackets = true
        return SocketLink(source, traits)
    }
}
