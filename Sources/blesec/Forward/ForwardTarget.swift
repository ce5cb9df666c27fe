internal import BLESec
internal import BLESecLinks
internal import Glibc

/// Where forwarded connections come from or go to: a Unix socket, or an IP address and a TCP port.
enum ForwardTarget: Sendable, Hashable, CustomStringConvertible {
    case unix(UnixAddress)
    case tcp(TCPAddress)

    /// Reads `unix:PATH` or `tcp:ADDRESS:PORT`.
    init(parsing text: String) throws(ChannelError) {
        do throws(LinkError) {
            if text.hasPrefix("unix:") {
                self = .unix(try UnixAddress(path: String(text.dropFirst(5))))
                return
            }
        } catch {
            throw ChannelError(.configuration, error.description)
        }
        guard text.hasPrefix("tcp:"), let address = TCPAddress(text.dropFirst(4)) else {
            throw ChannelError(
                .configuration,
                "`\(text)` is not a target: write unix:PATH, tcp:127.0.0.1:PORT or tcp:[::1]:PORT, "
                    + "with a numeric address")
        }
        self = .tcp(address)
    }

    var description: String {
        switch self {
        case .unix(let address): address.description
        case .tcp(let address): "tcp:\(address)"
        }
    }

    /// Whether another machine may reach a listener at this address.
    var isOpenToOtherMachines: Bool {
        if case .tcp(let address) = self { !address.isLoopback } else { false }
    }

    var isTCP: Bool { if case .tcp = self { true } else { false } }

    /// Connects to the target.
    func dial(until deadline: MonotonicTime, on loop: EventLoop) async throws(LinkError) -> any Link
    {
        switch self {
        case .unix(let address):
            return try await SocketLink.dial(address, deadline: deadline, loop: loop)
        case .tcp(let address):
            let name = description
            let target = SocketDialer.Target(
                name: name, address: address.socketAddress,
                open: { () throws(LinkError) in
                    do throws(SystemError) {
                        return try address.open()
                    } catch {
                        throw LinkError(error, cannot: "connect to \(name)")
                    }
                }, explain: { LinkError($0, cannot: "connect to \(name)") })
            return try await SocketDialer.dial(target, deadline: deadline, loop: loop) {
                source throws(LinkError) in
                guard !TCPAddress.isConnectedToItself(source.fileDescriptor) else {
                    throw target.explain(SystemError(ECONNREFUSED))
                }
                return SocketLink(source, TCPAddress.traits(name))
            }
        }
    }

    /// Listens for connections.
    func listen(on loop: EventLoop) async throws(LinkError) -> ForwardListener {
        switch self {
        case .unix(let address): return .unix(try await UnixListener.listen(address, loop: loop))
        case .tcp(let address):
            let name = description
            do throws(SystemError) {
                let descriptor = try address.open()
                do throws(SystemError) {
                    try Socket.setOption(descriptor, SOL_SOCKET, SO_REUSEADDR, to: 1)
                    try Socket.bind(descriptor, to: address.socketAddress)
                    try Socket.listen(descriptor, backlog: 128)
                } catch {
                    Socket.close(descriptor)
                    throw error
                }
                let listener = SocketListener(owning: descriptor, name: name, loop: loop) {
                    descriptor throws(LinkError) in
                    TCPAddress.prepare(descriptor)
                    return TCPAddress.traits(name)
                }
                return .tcp(listener)
            } catch {
                throw LinkError(error, cannot: "listen on \(name)")
            }
        }
    }
}

/// Where forwarded connections arrive.
enum ForwardListener: Sendable {
    case unix(UnixListener)
    case tcp(SocketListener)

    func accept() async throws(LinkError) -> ForwardedSocket {
        switch self {
        case .unix(let listener): ForwardedSocket(try await listener.accept(), isTCP: false)
        case .tcp(let listener): ForwardedSocket(try await listener.accept(), isTCP: true)
        }
    }

    func close() async {
        switch self {
        case .unix(let listener): await listener.close()
        case .tcp(let listener): await listener.close()
        }
    }
}

/// A numeric IP address and a TCP port.
struct TCPAddress: Sendable, Hashable, CustomStringConvertible {
    let description: String
    let socketAddress: SocketAddress
    /// Whether the address reaches only this machine: `127.…` or `::1`.
    let isLoopback: Bool
    private let family: Int32

    /// Reads `127.0.0.1:80` or `[::1]:80`; nil for anything else.
    init?(_ text: some StringProtocol) {
        guard let colon = text.lastIndex(of: ":") else { return nil }
        let digits = text[text.index(after: colon)...]
        guard digits.utf8.allSatisfy({ UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 }),
            let port = UInt16(digits), port > 0
        else { return nil }
        var host = text[..<colon]
        let isIPv6 = host.hasPrefix("[") && host.hasSuffix("]")
        if isIPv6 { host = host.dropFirst().dropLast() }
        family = isIPv6 ? AF_INET6 : AF_INET
        var address = [UInt8](repeating: 0, count: isIPv6 ? 16 : 4)
        let name = String(host)
        let result = unsafe address.withUnsafeMutableBytes {
            unsafe inet_pton(isIPv6 ? AF_INET6 : AF_INET, name, $0.baseAddress)
        }
        guard result == 1 else { return nil }
        isLoopback = isIPv6 ? address == [UInt8](repeating: 0, count: 15) + [1] : address[0] == 127
        let bigEndianPort = [UInt8(port >> 8), UInt8(port & 0xFF)]
        let zeros = [UInt8](repeating: 0, count: 8)
        // sockaddr_in ends with 8 zeros; sockaddr_in6 has flow information before the address and a
        // scope ID after the address.
        socketAddress = SocketAddress(
            SocketAddress.family(family) + bigEndianPort
                + (isIPv6 ? zeros.prefix(4) + address + zeros.prefix(4) : address + zeros))
        description = isIPv6 ? "[\(name)]:\(port)" : "\(name):\(port)"
    }

    /// Opens a socket of the address's family. The caller owns the socket.
    func open() throws(SystemError) -> Int32 {
        let descriptor = try Socket.open(family: family, kind: .stream)
        Self.prepare(descriptor)
        return descriptor
    }

    /// Tells the kernel to reset the connection when the socket is closed, so that the connection
    /// does not look complete if this process is killed. ``ForwardedSocket/close(inOrder:)``
    /// withdraws this request for a connection that has ended in good order. Sets SO_OOBINLINE, so
    /// that an urgent byte stays in its place among the others: streams have no urgent data. Sets
    /// TCP_NODELAY, so that small pieces are sent at once. A failure to set these two options is
    /// ignored.
    static func prepare(_ descriptor: Int32) {
        Socket.resetAtClose(descriptor)
        try? Socket.setOption(descriptor, SOL_SOCKET, SO_OOBINLINE, to: 1)
        try? Socket.setOption(descriptor, Int32(IPPROTO_TCP), TCP_NODELAY, to: 1)
    }

    /// Whether both ends of a connection are this socket. If nobody listens at a port of this
    /// machine, the kernel may choose that port for the dialing socket, which then connects to
    /// itself.
    static func isConnectedToItself(_ descriptor: Int32) -> Bool {
        guard let local = try? Socket.localAddress(descriptor),
            let peer = try? Socket.peerAddress(descriptor)
        else { return false }
        return local == peer
    }

    static func traits(_ name: String) -> SocketLink.Traits {
        SocketLink.Traits(maximumSDU: 65_536, peerDescription: name)
    }
}
