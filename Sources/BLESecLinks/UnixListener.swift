import Glibc

/// A listener on the path of a Unix socket. ``LinkListener`` describes the members without a comment
/// here.
package final class UnixListener: LinkListener {
    /// The listener's address.
    package let localAddress: UnixAddress

    private let listener: SocketListener

    private init(_ address: UnixAddress, _ listener: SocketListener) {
        localAddress = address
        self.listener = listener
    }

    /// Listens at a path.
    ///
    /// A stale socket file, on which nothing listens any more, is replaced if its folder can be
    /// opened and locked. A file of any other kind is never removed. When the listener is closed,
    /// its file is removed, unless another file has the path by then.
    ///
    /// - Parameters:
    ///   - permissions: the permissions of the socket's file, less the umask; by default only the
    ///     same user may dial.
    ///   - backlog: the number of peers that the kernel lets wait.
    /// - Throws: ``LinkError/Code/addressInUse`` when another process or file has the path,
    ///   ``LinkError/Code/notFound`` if the folder is missing, ``LinkError/Code/permission``.
    package static func listen(
        _ address: UnixAddress, permissions: UInt32 = 0o600, backlog: Int32 = 128,
        loop: EventLoop = .shared
    ) async throws(LinkError) -> UnixListener {
        let claim = UnixPathClaim(address: address, permissions: permissions, backlog: backlog)
        let (descriptor, identity) = try await claim.listen()
        let (path, name) = (address.path, address.description)
        let listener = SocketListener(
            owning: descriptor, name: name, loop: loop,
            traits: { descriptor in
                SocketLink.Traits(
                    unix: address.kind, peerDescription: describe(descriptor, name))
            },
            beforeClosing: {
                guard let found = try? Socket.identify(path), found == identity else { return }
                try? Socket.remove(path)
            })
        return UnixListener(address, listener)
    }

    package func accept() async throws(LinkError) -> any Link { try await listener.accept() }

    package func accept(
        on choose: @escaping @Sendable () -> EventLoop
    ) async throws(LinkError) -> any Link {
        try await listener.accept(on: choose)
    }

    package func close() async { await listener.close() }

    package var localDescription: String { localAddress.description }

    private static func describe(_ descriptor: Int32, _ name: String) -> String {
        guard let peer = try? Socket.peerCredentials(descriptor) else { return name }
        return "\(name) (process \(peer.process), user \(peer.user))"
    }
}
