import BLESecLinks
import Glibc
import Testing

@testable import blesec

@Suite struct ForwardTargetTests {
    /// A TCP socket at a free port of this machine.
    private static func boundSocket() throws -> Int32 {
        let descriptor = try Socket.open(family: AF_INET, kind: .stream)
        let anyPort: [UInt8] = [0, 0]
        let loopback: [UInt8] = [127, 0, 0, 1]
        let padding = [UInt8](repeating: 0, count: 8)
        try Socket.bind(
            descriptor,
            to: SocketAddress(SocketAddress.family(AF_INET) + anyPort + loopback + padding))
        return descriptor
    }

    /// Connects a nonblocking socket, and waits until it is connected, at most 5 seconds.
    private static func connect(_ descriptor: Int32, to address: SocketAddress) throws {
        try? Socket.connect(descriptor, to: address)
        for _ in 0..<5_000 where (try? Socket.peerAddress(descriptor)) == nil { usleep(1_000) }
        _ = try Socket.peerAddress(descriptor)
    }

    @Test("a TCP socket connected to itself is distinguished from one connected to a listener")
    func selfConnection() throws {
        let selfConnected = try Self.boundSocket()
        let listener = try Self.boundSocket()
        let dialer = try Self.boundSocket()
        defer { for descriptor in [selfConnected, listener, dialer] { Socket.close(descriptor) } }
        try Self.connect(selfConnected, to: Socket.localAddress(selfConnected))
        #expect(TCPAddress.isConnectedToItself(selfConnected))
        try Socket.listen(listener, backlog: 1)
        try Self.connect(dialer, to: Socket.localAddress(listener))
        #expect(!TCPAddress.isConnectedToItself(dialer))
    }
}
