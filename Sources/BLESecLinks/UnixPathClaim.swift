import Glibc

/// Binds a listener to its path while other processes may do the same.
///
/// A file is stale if nothing listens on it any more. If two processes find a stale file, only one
/// of them may replace it. So a process that replaces a file holds the advisory lock of the folder
/// while it checks the file and binds. A process that cannot take the lock can still bind to a free
/// path. So no process can block free paths by keeping the lock.
struct UnixPathClaim {
    /// How many times to try to lock the folder.
    private static let lockAttempts = 50
    /// The time between two attempts to lock the folder.
    private static let lockDelay = Duration.milliseconds(2)

    let address: UnixAddress
    let permissions: UInt32
    let backlog: Int32

    /// Binds and listens; the caller owns the descriptor.
    func listen() async throws(LinkError) -> (descriptor: Int32, identity: Socket.FileIdentity) {
        let lock = await lockFolder()
        defer { if let lock { Socket.close(lock) } }
        do throws(SystemError) {
            return try bindAndListen()
        } catch {
            guard error.number == EADDRINUSE else { throw LinkError(error, cannot: action) }
        }
        guard lock != nil else {
            throw LinkError(
                .addressInUse,
                "cannot \(action): the file is there and its folder cannot be locked",
                systemError: EADDRINUSE)
        }
        try removeStale()
        do throws(SystemError) {
            return try bindAndListen()
        } catch {
            throw LinkError(error, cannot: action)
        }
    }

    private var action: String { "listen on \(address)" }

    /// A descriptor that holds the folder's lock; nil if the lock could not be taken.
    private func lockFolder() async -> Int32? {
        guard let folder = try? Socket.openFolder(address.folder) else { return nil }
        for _ in 0..<Self.lockAttempts {
            do throws(SystemError) {
                try Socket.lock(folder)
                return folder
            } catch {
                guard error.number == EWOULDBLOCK || error.number == EINTR else { break }
            }
            // Another process holds the lock, so wait in real time: the loop's clock may be manual.
            guard (try? await Task.sleep(for: Self.lockDelay)) != nil else { break }
        }
        Socket.close(folder)
        return nil
    }

    private func bindAndListen() throws(SystemError) -> (Int32, Socket.FileIdentity) {
        let descriptor = try Socket.open(family: AF_UNIX, kind: address.kind)
        do throws(SystemError) {
            try Socket.setPermissions(descriptor, permissions)
            try Socket.bind(descriptor, to: address.socketAddress)
            let identity = try Socket.identify(address.path)
            try Socket.listen(descriptor, backlog: backlog)
            return (descriptor, identity)
        } catch {
            Socket.close(descriptor)
            throw error
        }
    }

    /// Removes the file if it is a socket on which nothing listens.
    private func removeStale() throws(LinkError) {
        do throws(SystemError) {
            guard try Socket.identify(address.path).isSocket else { throw SystemError(ENOTSOCK) }
            do throws(SystemError) {
                try Socket.probe(address.socketAddress)
                // No error: the file belongs to an open datagram socket.
                throw SystemError(EADDRINUSE)
            } catch {
                guard error.number == ECONNREFUSED else { throw error }
            }
            try Socket.remove(address.path)
        } catch {
            switch error.number {
            case ENOENT: return  // gone meanwhile
            case ENOTSOCK:
                throw LinkError(
                    .addressInUse,
                    "cannot \(action): a file that is no socket has this path; it was kept",
                    systemError: EADDRINUSE)
            // The file belongs to an open socket.
            case EADDRINUSE, EAGAIN, EPROTOTYPE:
                throw LinkError(SystemError(EADDRINUSE), cannot: action)
            default: throw LinkError(error, cannot: action)
            }
        }
    }
}
