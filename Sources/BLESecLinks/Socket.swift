internal import CBLESecLinux
import Glibc

/// The system calls of links: those on sockets, on the files of Unix sockets, and on the clock. No
/// other file of this module makes system calls on sockets.
///
/// Functions that transfer bytes return a count, or a negated `errno` value, so that they do not
/// throw. They allocate memory only for a packet that does not fit into the reader's buffer. Most
/// other functions throw.
package enum Socket {
    /// How a socket divides the bytes that are sent.
    package enum Kind: Sendable, Hashable {
        /// A byte stream (`SOCK_STREAM`).
        case stream
        /// Packets (`SOCK_SEQPACKET`): each send arrives as one packet.
        case seqpacket

        fileprivate var rawValue: Int32 {
            Int32((self == .stream ? SOCK_STREAM : SOCK_SEQPACKET).rawValue)
        }
    }

    private static let flags = Int32(SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue)

    // MARK: - Making

    /// A new nonblocking socket, which the caller owns.
    package static func open(
        family: Int32, kind: Kind, protocol number: Int32 = 0
    ) throws(SystemError) -> Int32 {
        try check(socket(family, kind.rawValue | flags, number))
    }

    /// Two nonblocking Unix sockets, connected to each other. The caller owns both.
    package static func pair(_ kind: Kind) throws(SystemError) -> (Int32, Int32) {
        var ends: (Int32, Int32) = (-1, -1)
        let result = unsafe withUnsafeMutableBytes(of: &ends) { raw in
            guard let base = raw.baseAddress else { return Int32(-1) }
            return unsafe socketpair(
                AF_UNIX, kind.rawValue | flags, 0, base.assumingMemoryBound(to: Int32.self))
        }
        _ = try check(result)
        return ends
    }

    /// Closes a descriptor. An error is ignored.
    package static func close(_ descriptor: Int32) { Glibc.close(descriptor) }

    // MARK: - Addresses

    package static func bind(_ descriptor: Int32, to address: SocketAddress) throws(SystemError) {
        _ = try check(unsafe withAddress(address) { unsafe Glibc.bind(descriptor, $0, $1) })
    }

    /// Connects; throws EINPROGRESS if the connection has only begun, and EAGAIN if a Unix
    /// listener's queue is full.
    package static func connect(
        _ descriptor: Int32, to address: SocketAddress
    ) throws(SystemError) {
        _ = try check(unsafe withAddress(address) { unsafe Glibc.connect(descriptor, $0, $1) })
    }

    /// Finds out to which kind of open socket the file of a Unix address belongs. Returns for a
    /// datagram socket. Throws EPROTOTYPE for a stream or packet socket, and ECONNREFUSED if the file
    /// belongs to no open socket. The probe connects a datagram socket, so a listening socket there
    /// gets no connection to accept.
    static func probe(_ address: SocketAddress) throws(SystemError) {
        let probe = try check(socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue) | flags, 0))
        defer { close(probe) }
        try connect(probe, to: address)
    }

    package static func listen(_ descriptor: Int32, backlog: Int32) throws(SystemError) {
        _ = try check(Glibc.listen(descriptor, backlog))
    }

    /// Accepts the next waiting peer; returns a nonblocking socket that the caller owns.
    package static func accept(_ descriptor: Int32) throws(SystemError) -> Int32 {
        try check(blesec_accept(descriptor))
    }

    /// The address that the socket is bound to.
    package static func localAddress(_ descriptor: Int32) throws(SystemError) -> SocketAddress {
        try unsafe address { unsafe getsockname(descriptor, $0, $1) }
    }

    /// The address at the other end.
    package static func peerAddress(_ descriptor: Int32) throws(SystemError) -> SocketAddress {
        try unsafe address { unsafe getpeername(descriptor, $0, $1) }
    }

    /// The process and user at the other end of a Unix socket, as they were when that end called
    /// `connect` or `listen`.
    package static func peerCredentials(
        _ descriptor: Int32
    ) throws(SystemError) -> (process: Int32, user: UInt32) {
        var process: pid_t = 0
        var user: uid_t = 0
        _ = try check(unsafe blesec_peer_credentials(descriptor, &process, &user))
        return (process, user)
    }

    // MARK: - Options

    package static func setOption(
        _ descriptor: Int32, _ level: Int32, _ option: Int32, to value: Int32
    ) throws(SystemError) {
        var value = value
        let size = socklen_t(MemoryLayout<Int32>.size)
        _ = try check(unsafe setsockopt(descriptor, level, option, &value, size))
    }

    package static func setOption16(
        _ descriptor: Int32, _ level: Int32, _ option: Int32, to value: UInt16
    ) throws(SystemError) {
        var value = value
        let size = socklen_t(MemoryLayout<UInt16>.size)
        _ = try check(unsafe setsockopt(descriptor, level, option, &value, size))
    }

    package static func option(
        _ descriptor: Int32, _ level: Int32, _ option: Int32
    ) throws(SystemError) -> Int32 {
        var value: Int32 = 0
        var size = socklen_t(MemoryLayout<Int32>.size)
        _ = try check(unsafe getsockopt(descriptor, level, option, &value, &size))
        return value
    }

    package static func option16(
        _ descriptor: Int32, _ level: Int32, _ option: Int32
    ) throws(SystemError) -> UInt16 {
        var value: UInt16 = 0
        var size = socklen_t(MemoryLayout<UInt16>.size)
        _ = try check(unsafe getsockopt(descriptor, level, option, &value, &size))
        return value
    }

    /// Sets whether the close of a TCP socket sends a reset and drops the bytes that were not sent
    /// yet. By default, a close sends these bytes and then a normal end, even if the process is
    /// killed, so the peer sees an end that looks complete.
    package static func resetAtClose(_ descriptor: Int32, isOn: Bool = true) {
        var option = linger(l_onoff: isOn ? 1 : 0, l_linger: 0)
        _ = unsafe setsockopt(
            descriptor, SOL_SOCKET, SO_LINGER, &option, socklen_t(MemoryLayout<linger>.size))
    }

    /// Returns and clears the socket's pending error; 0 if there is none.
    package static func pendingError(_ descriptor: Int32) -> Int32 {
        do throws(SystemError) {
            return try option(descriptor, SOL_SOCKET, SO_ERROR)
        } catch {
            return error.number
        }
    }

    /// The result of `TIOCOUTQ`, in bytes. For a Unix socket, this is the memory that its queued data
    /// take; for a Bluetooth socket, the free space of the send buffer.
    package static func outputQueue(_ descriptor: Int32) throws(SystemError) -> Int {
        var bytes: Int32 = 0
        _ = try check(unsafe blesec_output_queue(descriptor, &bytes))
        return Int(bytes)
    }

    static func isWritable(_ descriptor: Int32) -> Bool {
        var entry = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
        return unsafe poll(&entry, 1, 0) > 0 && entry.revents & Int16(POLLOUT) != 0
    }

    /// Whether the socket has an error that no call has returned yet, such as a reset.
    package static func hasError(_ descriptor: Int32) -> Bool {
        var entry = pollfd(fd: descriptor, events: 0, revents: 0)
        return unsafe poll(&entry, 1, 0) > 0 && entry.revents & Int16(POLLERR) != 0
    }

    // MARK: - Bytes

    /// Sends, without blocking and without a SIGPIPE.
    static func send(_ descriptor: Int32, _ bytes: Span<UInt8>) -> Int {
        unsafe bytes.withUnsafeBufferPointer { buffer in
            while true {
                let count = unsafe Glibc.send(
                    descriptor, buffer.baseAddress, buffer.count, Int32(MSG_NOSIGNAL))
                if count >= 0 { return count }
                if errno != EINTR { return -Int(errno) }
            }
        }
    }

    /// Receives into the free capacity of `buffer`; returns 0 at the end.
    static func receive(_ descriptor: Int32, into buffer: inout OutputSpan<UInt8>) -> Int {
        unsafe buffer.withUnsafeMutableBufferPointer { buffer, used in
            guard let base = buffer.baseAddress else { return -Int(EINVAL) }
            while true {
                let count = unsafe recv(descriptor, base + used, buffer.count - used, 0)
                if count >= 0 {
                    used += count
                    return count
                }
                if errno != EINTR { return -Int(errno) }
            }
        }
    }

    /// Receives the next packet that is not empty; bytes that do not fit into `buffer` go to
    /// `spill`. Returns the packet's length, 0 at the end, and -EMSGSIZE for a packet that is too
    /// large for both.
    ///
    /// - Parameter isBluetooth: whether this is a Bluetooth socket. There the kernel's number of
    ///   waiting bytes (`FIONREAD`) covers only the first waiting packet, which may be empty.
    static func receivePacket(
        _ descriptor: Int32, into buffer: inout OutputSpan<UInt8>, spill: inout PacketSpill,
        _ space: PacketSpace, isBluetooth: Bool
    ) -> Int {
        let leastEmptyPacketsAtEnd = isBluetooth ? leastEmptyPacketsAtBluetoothEnd : 1
        // A receive returns 0 for an empty packet and at the end. After an empty packet, more
        // packets may follow; at the end, each receive returns 0.
        var emptyPackets = 0
        while true {
            let count = receiveAnyPacket(descriptor, into: &buffer, spill: &spill, space)
            guard count == 0 else { return count }
            emptyPackets += 1
            let isPeerDone = peerCanSendNoMore(descriptor)
            if isPeerDone, emptyPackets >= leastEmptyPacketsAtEnd,
                blesec_input_queue(descriptor) <= 0
            {
                return 0
            }
            if !isPeerDone, emptyPackets >= mostEmptyPackets { return -Int(EAGAIN) }
        }
    }

    /// If the peer can send nothing more, this many empty packets in a row count as the end of a
    /// Bluetooth link.
    private static let leastEmptyPacketsAtBluetoothEnd = 4
    /// The most empty packets that one call reads while the peer can send more.
    private static let mostEmptyPackets = 16

    /// Whether the peer can send nothing more. What it has sent may still wait to be received.
    private static func peerCanSendNoMore(_ descriptor: Int32) -> Bool {
        // POLLRDHUP, which Swift cannot import, is the same bit.
        let events = Int16(EPOLLRDHUP.rawValue)
        var entry = pollfd(fd: descriptor, events: events, revents: 0)
        return unsafe poll(&entry, 1, 0) > 0
    }

    /// Receives the next packet, which may be empty. Returns the packet's length, or a negated
    /// `errno` value.
    private static func receiveAnyPacket(
        _ descriptor: Int32, into buffer: inout OutputSpan<UInt8>, spill: inout PacketSpill,
        _ space: PacketSpace
    ) -> Int {
        unsafe buffer.withUnsafeMutableBufferPointer { buffer, used in
            guard let base = buffer.baseAddress else { return -Int(EINVAL) }
            let room = buffer.count - used
            var truncated = false
            let count =
                if room >= PacketSpace.capacity {
                    unsafe receiveWhole(descriptor, base + used, room, &truncated)
                } else {
                    unsafe space.receive(descriptor, base + used, room, &spill, &truncated)
                }
            if truncated { return -Int(EMSGSIZE) }
            guard count > 0 else { return count }
            used += min(count, room)
            return count
        }
    }

    /// Receives one packet into a buffer that has room for the longest that a peer may send. Uses
    /// `recv`, which is faster than `recvmsg`.
    private static func receiveWhole(
        _ descriptor: Int32, _ target: UnsafeMutablePointer<UInt8>, _ room: Int,
        _ truncated: inout Bool
    ) -> Int {
        while true {
            let count = unsafe recv(descriptor, target, room, Int32(MSG_TRUNC))
            truncated = count > room
            if count >= 0 { return count }
            if errno != EINTR { return -Int(errno) }
        }
    }

    /// Makes the peer's sends fail on a Unix socket; a TCP peer notices nothing. An error of the
    /// call is ignored, because it means that the connection is over.
    package static func shutdownRead(_ descriptor: Int32) {
        _ = shutdown(descriptor, Int32(SHUT_RD))
    }

    static func shutdownWrite(_ descriptor: Int32) throws(SystemError) {
        _ = try check(shutdown(descriptor, Int32(SHUT_WR)))
    }

    // MARK: - Files

    /// Distinguishes a file from another file that gets the same path later.
    struct FileIdentity: Hashable {
        let device: UInt
        let inode: UInt
        let modified: [Int]
        let isSocket: Bool
    }

    /// The identity of the file at `path`; symbolic links are not followed.
    static func identify(_ path: String) throws(SystemError) -> FileIdentity {
        var status = stat()
        _ = try check(unsafe lstat(path, &status))
        return FileIdentity(
            device: UInt(status.st_dev), inode: UInt(status.st_ino),
            modified: [status.st_mtim.tv_sec, status.st_mtim.tv_nsec],
            isSocket: status.st_mode & S_IFMT == S_IFSOCK)
    }

    /// Sets the permissions that `bind` gives to a Unix socket's file, less the umask.
    static func setPermissions(_ descriptor: Int32, _ mode: UInt32) throws(SystemError) {
        _ = try check(fchmod(descriptor, mode_t(mode)))
    }

    static func remove(_ path: String) throws(SystemError) { _ = try check(unsafe unlink(path)) }

    /// A descriptor of the folder, which the caller owns.
    static func openFolder(_ path: String) throws(SystemError) -> Int32 {
        try check(unsafe Glibc.open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC))
    }

    /// Takes the advisory lock of an open file, and keeps it until the descriptor is closed. Throws
    /// EWOULDBLOCK if another process has the lock.
    static func lock(_ descriptor: Int32) throws(SystemError) {
        _ = try check(flock(descriptor, LOCK_EX | LOCK_NB))
    }

    // MARK: - Clock, error texts, spilled packets

    static func monotonicTime() -> MonotonicTime {
        var time = timespec()
        unsafe clock_gettime(CLOCK_MONOTONIC, &time)
        return MonotonicTime(
            nanoseconds: UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec))
    }

    static func errorText(of number: Int32) -> String {
        guard let text = unsafe blesec_error_text(number) else { return "error \(number)" }
        return unsafe String(cString: text)
    }

    private static func check(_ result: Int32) throws(SystemError) -> Int32 {
        if result < 0 { throw SystemError(errno) }
        return result
    }

    private static func withAddress(
        _ address: SocketAddress, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32
    ) -> Int32 {
        unsafe address.bytes.withUnsafeBytes { raw in
            guard let base = raw.baseAddress else { return -1 }
            return unsafe body(base.assumingMemoryBound(to: sockaddr.self), socklen_t(raw.count))
        }
    }

    private static func address(
        _ call: (UnsafeMutablePointer<sockaddr>, UnsafeMutablePointer<socklen_t>) -> Int32
    ) throws(SystemError) -> SocketAddress {
        var bytes = [UInt8](repeating: 0, count: 128)
        var length = socklen_t(bytes.count)
        let result = unsafe bytes.withUnsafeMutableBytes { raw in
            guard let base = raw.baseAddress else { return Int32(-1) }
            return unsafe call(base.assumingMemoryBound(to: sockaddr.self), &length)
        }
        _ = try check(result)
        return SocketAddress(Array(bytes.prefix(Int(length))))
    }
}

/// The part of a packet that did not fit into the reader's buffer.
struct PacketSpill {
    private var bytes: [UInt8] = []
    private var start = 0

    var isEmpty: Bool { start == bytes.count }

    /// Moves as many bytes as fit to `buffer`; frees the memory after the last byte.
    mutating func move(into buffer: inout OutputSpan<UInt8>) {
        let moved = min(bytes.count - start, buffer.freeCapacity)
        unsafe bytes.withUnsafeBufferPointer { source in
            unsafe buffer.withUnsafeMutableBufferPointer { target, used in
                guard let base = target.baseAddress, let first = source.baseAddress else { return }
                unsafe (base + used).update(from: first + start, count: moved)
                used += moved
            }
        }
        start += moved
        if isEmpty { self = PacketSpill() }
    }

    fileprivate mutating func fill(_ bytes: UnsafeBufferPointer<UInt8>) {
        unsafe self.bytes = Array(bytes)
        start = 0
    }
}

/// The memory in which the kernel stores the part of a packet that does not fit into the reader's
/// buffer. The links of a loop share it: it is in use during one call only.
@safe final class PacketSpace {
    /// The length of the longest packet that a peer may send, in bytes.
    static let capacity = 65_536

    private let storage = UnsafeMutablePointer<UInt8>.allocate(capacity: capacity)

    deinit { unsafe storage.deallocate() }

    /// Receives a packet into the `room` bytes at `target`. What does not fit there is received into
    /// this memory, and copied to `spill`.
    fileprivate func receive(
        _ descriptor: Int32, _ target: UnsafeMutablePointer<UInt8>, _ room: Int,
        _ spill: inout PacketSpill, _ truncated: inout Bool
    ) -> Int {
        var parts = unsafe (
            iovec(iov_base: target, iov_len: room),
            iovec(iov_base: storage, iov_len: Self.capacity)
        )
        let count = unsafe withUnsafeMutableBytes(of: &parts) { raw in
            guard let base = raw.baseAddress else { return -Int(EINVAL) }
            var message = unsafe msghdr()
            unsafe message.msg_iov = base.assumingMemoryBound(to: iovec.self)
            unsafe message.msg_iovlen = 2
            while true {
                let count = unsafe recvmsg(descriptor, &message, 0)
                if count >= 0 {
                    unsafe truncated = message.msg_flags & Int32(MSG_TRUNC) != 0
                    return count
                }
                if errno != EINTR { return -Int(errno) }
            }
        }
        if count > room {
            unsafe spill.fill(UnsafeBufferPointer(start: storage, count: count - room))
        }
        return count
    }
}
