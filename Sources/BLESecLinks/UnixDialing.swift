import Glibc

// Links over Unix sockets, between processes of one machine.
extension SocketLink {
    /// Connects to a listener.
    ///
    /// - Throws: ``LinkError``, for example with these codes:
    ///   - ``LinkError/Code/notFound`` when there is no file at the path.
    ///   - ``LinkError/Code/refused`` when nothing listens there.
    ///   - ``LinkError/Code/timedOut`` when the listener's queue stays full until `deadline`.
    ///   - ``LinkError/Code/cancelled`` when the task is cancelled.
    package static func dial(
        _ address: UnixAddress, deadline: MonotonicTime = .distantFuture,
        loop: EventLoop = .shared
    ) async throws(LinkError) -> SocketLink {
        let name = address.description
        let target = SocketDialer.Target(
            name: name, address: address.socketAddress,
            open: { () throws(LinkError) in
                do throws(SystemError) {
                    return try Socket.open(family: AF_UNIX, kind: address.kind)
                } catch {
                    throw LinkError(error, cannot: "connect to \(name)")
                }
            },
            explain: { error in explain(error, address) })
        return try await SocketDialer.dial(target, deadline: deadline, loop: loop) { source in
            SocketLink(source, Traits(unix: address.kind, peerDescription: name))
        }
    }

    /// Two links that are connected to each other, without a path.
    ///
    /// - Parameter maximumSDU: the largest number of bytes that one send takes, at most
    ///   ``UnixAddress/maximumSDU``. A smaller value imitates a kind of link that takes less.
    package static func pair(
        _ kind: UnixAddress.Kind, maximumSDU: Int = UnixAddress.maximumSDU, loop: EventLoop
    ) async throws(LinkError) -> (SocketLink, SocketLink) {
        precondition((1...UnixAddress.maximumSDU).contains(maximumSDU), "the SDU is out of range")
        return try await loop.run { () throws(LinkError) in
            do throws(SystemError) {
                let ends = try Socket.pair(kind)
                var traits = Traits(unix: kind, peerDescription: "socket pair")
                traits.maximumSDU = maximumSDU
                return (
                    SocketLink(EventSource(owning: ends.0, loop: loop), traits),
                    SocketLink(EventSource(owning: ends.1, loop: loop), traits)
                )
            } catch {
                throw LinkError(error, cannot: "make a pair of sockets")
            }
        }
    }

    private static func explain(_ error: SystemError, _ address: UnixAddress) -> LinkError {
        if error.number == EPROTOTYPE {
            let listenerKind =
                address.kind == .stream ? "packets: use unix-seqpacket:" : "a stream: use unix:"
            return LinkError(
                .refused, "cannot connect to \(address): its listener uses \(listenerKind)",
                systemError: error.number)
        }
        return LinkError(error, cannot: "connect to \(address)")
    }
}

extension SocketLink.Traits {
    init(unix kind: UnixAddress.Kind, peerDescription: String) {
        self.init(maximumSDU: UnixAddress.maximumSDU, peerDescription: peerDescription)
        receivesPackets = kind == .seqpacket
        sendsPackets = kind == .seqpacket
    }
}
