import BLESecLinks
import Glibc
import Testing

@testable import blesec

@Suite struct ForwardTargetTests {
    /// A TCP socket at a free port of this machine.
    private static func boundSocket() throws -> Int32 {
        let descriptor = try Socket.open(family: AF_INET, kind: .stream)
        let loopback: [UInt8] = [127, 0, 0, 1]
        try Socket.bind(
            descriptor,
            to: SocketAddress(
                SocketAddress.family(AF_INET) + [0, 0] + loopback
                    + [UInt8](repeating: 0, count: 8)))
        return descriptor
    }

    /// Connects a nonblocking socket, and waits until it is connected.
    private static func connect(_ descriptor: Int32, to address: SocketAddress) throws {
        try? Socket.connect(descriptor, to: address)
        for _ in 0..<5_000 where (try? Socket.peerAddress(descriptor)) == nil { usleep(1_000) }
        _ = try Socket.peerAddress(descriptor)
    }

    @Test("a TCP socket connected to itself is distinguished from one connected to a listener")
    func selfConnection() throws {
        let lonely = try Self.boundSocket()
        let listening = try Self.boundSocket()
        let dialing = try Self.boundSocket()
        defer { for descriptor in [lonely, listening, dialing] { Socket.close(descriptor) } }
        try Self.connect(lonely, to: Socket.localAddress(lonely))
        #expect(TCPAddress.isConnectedToItself(lonely))
        try Socket.listen(listening, backlog: 1)
        try Self.connect(dialing, to: Socket.localAddress(listening))
        #expect(!TCPAddress.isConnectedToItself(dialing))
    }
}
