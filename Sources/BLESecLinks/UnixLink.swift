import Glibc

/// Links over Unix sockets, between processes of one machine.
package enum UnixLink {
    /// The largest number of bytes that one send takes.
    ///
    /// Well below the default send buffer of 212,992 bytes, so that a packet of this size is never
    /// refused.
    package static let maximumSDU = 65_536

    /// Connects to a listener.
    ///
    /// - Throws: ``LinkError``: ``LinkError/Code/notFound`` when there is no file at the path,
    ///   ``LinkError/Code/refused`` when nothing listens there, ``LinkError/Code/timedOut`` when
    ///   the listener's queue stays full until `deadline`, ``LinkError/Code/cancelled`` when the
    ///   task is cancelled.
    package static func dial(
        _ address: UnixAddress, deadline: MonotonicTime = .distantFuture,
        loop: EventLoop = .shared
    ) async throws(LinkError) -> SocketLink {
        let name = address.description
        let target = SocketDialer.Target(
            name: name, address: address.socketAddress,
            open: { () throws(LinkError) in
                do throws(SystemError) {
                    return try Socket.open(family: AF_UNIX, kind: address.socketKind)
                } catch {
                    throw LinkError(error, "connect to \(name)")
                }
            },
            explain: { error in explain(error, address) })
        return try await SocketDialer.dial(target, deadline: deadline, loop: loop) { source in
            SocketLink(source, traits(address.kind, peerDescription: name))
        }
    }

    /// Two links that are connected to each other, without a path.
    ///
    /// - Parameter maximumSDU: a smaller bound than ``maximumSDU``, to behave like another kind of
    ///   link.
    package static func pair(
        _ kind: UnixAddress.Kind, maximumSDU: Int = maximumSDU, loop: EventLoop
    ) async throws(LinkError) -> (SocketLink, SocketLink) {
        precondition((1...Self.maximumSDU).contains(maximumSDU), "beyond what a link takes")
        return try await loop.run { () throws(LinkError) in
            do throws(SystemError) {
                let ends = try Socket.pair(kind == .stream ? .stream : .seqpacket)
                var traits = traits(kind, peerDescription: "socket pair")
                traits.maximumSDU = maximumSDU
                return (
                    SocketLink(EventSource(owning: ends.0, loop: loop), traits),
                    SocketLink(EventSource(owning: ends.1, loop: loop), traits)
                )
            } catch {
                throw LinkError(error, "make a pair of sockets")
            }
        }
    }

    static func traits(_ kind: UnixAddress.Kind, peerDescription: String) -> SocketLink.Traits {
        var traits = SocketLink.Traits(maximumSDU: maximumSDU, peerDescription: peerDescription)
        traits.keepsPackets = kind == .seqpacket
        traits.sendsPackets = kind == .seqpacket
        return traits
    }

    private static func explain(_ error: SystemError, _ address: UnixAddress) -> LinkError {
        if error.number == EPROTOTYPE {
            let other =
                address.kind == .stream ? "packets: use unix-seqpacket:" : "a stream: use unix:"
            return LinkError(
                .refused, "cannot connect to \(address): its listener speaks \(other)",
                systemError: error.number)
        }
        return LinkError(error, "connect to \(address)")
    }
}
