import Glibc
import TestSupport

/// A Unix stream socket without a channel: it listens, or sends the bytes that a test chooses.
@safe final class RawSocket {
    private var descriptor: Int32

    private init(_ descriptor: Int32) { self.descriptor = descriptor }

    deinit { close() }

    /// Listens at a path. A dialer's `connect` succeeds before the test calls ``acceptDialer()``.
    static func listening(at path: String) -> RawSocket {
        let socket = RawSocket(Glibc.socket(AF_UNIX, kind, 0))
        let status = unsafe withAddress(path) { unsafe bind(socket.descriptor, $0, $1) }
        precondition(status == 0 && listen(socket.descriptor, 4) == 0, "\(path) cannot be bound")
        return socket
    }

    /// Dials a path.
    static func dialing(_ path: String) -> RawSocket {
        let socket = RawSocket(Glibc.socket(AF_UNIX, kind, 0))
        let status = unsafe withAddress(path) { unsafe connect(socket.descriptor, $0, $1) }
        precondition(status == 0, "\(path) cannot be dialed")
        return socket
    }

    /// The type of each socket, with a flag: programs that other tests start do not inherit the
    /// socket.
    private static let kind = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)

    /// Waits for a dialer, at most 20 seconds, and returns the socket that is connected to it.
    func acceptDialer() throws -> RawSocket {
        var poller = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        guard unsafe poll(&poller, 1, 20_000) == 1 else {
            throw Subprocess.Failure.deadline("nobody has dialed")
        }
        let accepted = accept(descriptor, nil, nil)
        guard accepted >= 0 else { throw Subprocess.Failure.deadline("no dialer: errno \(errno)") }
        _ = fcntl(accepted, F_SETFD, FD_CLOEXEC)
        return RawSocket(accepted)
    }

    /// Sends bytes, and ignores errors, since the other end may already have closed.
    func send(_ bytes: [UInt8]) {
        _ = unsafe bytes.withUnsafeBytes {
            unsafe Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
        }
    }

    func close() {
        if descriptor >= 0 { Glibc.close(descriptor) }
        descriptor = -1
    }

    private static func withAddress(
        _ path: String, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32
    ) -> Int32 {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        unsafe withUnsafeMutableBytes(of: &address.sun_path) {
            unsafe $0.copyBytes(from: path.utf8)
        }
        return unsafe withUnsafePointer(to: &address) {
            unsafe $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe body($0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
    }
}
