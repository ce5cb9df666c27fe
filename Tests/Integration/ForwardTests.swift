import BLESecLinks
import Glibc
import TestSupport
import Testing

extension Integration {
    /// `blesec forward` with TCP connections on one machine.
    @Suite struct ForwardTests {
        private let pair: ToolPair

        init() throws { pair = try ToolPair() }

        /// Two TCP ports of this machine that are free.
        private static func freePorts() throws -> (Int, Int) {
            // Both sockets stay open until both ports are known.
            let sockets = try (boundSocket(), boundSocket())
            defer {
                Socket.close(sockets.0)
                Socket.close(sockets.1)
            }
            return try (port(of: sockets.0), port(of: sockets.1))
        }

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

        private static func port(of descriptor: Int32) throws -> Int {
            let bytes = try Socket.localAddress(descriptor).bytes
            return Int(bytes[2]) << 8 | Int(bytes[3])
        }

        /// Starts two tools that carry connections from one port to another, and a Python program
        /// that has both ends of the connections.
        private func start(
            _ script: String
        ) throws -> (dialer: Subprocess, listener: Subprocess, program: Subprocess) {
            let (local, target) = try Self.freePorts()
            let listener = try Tool.start(
                [
                    "forward", "--allow", "tcp:127.0.0.1:\(target)", "--at", pair.endpoint(),
                    "--listen", "--identity", pair.folder.file("listener"), "--peer",
                    pair.dialerKey,
                ])
            _ = try listener.line("listening on ")
            let dialer = try Tool.start(
                [
                    "forward", "tcp:127.0.0.1:\(local)", "tcp:127.0.0.1:\(target)", "--at",
                    pair.endpoint(), "--identity", pair.folder.file("dialer"), "--peer",
                    pair.listenerKey,
                ])
            _ = try dialer.line("channel ready: ", whileServing: [listener])
            let program = try Subprocess(
                "/usr/bin/python3", ["-c", Self.connecting + script, "\(local)", "\(target)"])
            return (dialer, listener, program)
        }

        /// The beginning of each Python program. Its function `connect` returns both ends of a new
        /// connection: the end that dials, and the end at the target.
        private static let connecting = """
            import socket, sys, time

            local, target = map(int, sys.argv[1:])
            server = socket.create_server(("127.0.0.1", target))

            def connect():
                near = socket.create_connection(("127.0.0.1", local))
                return near, server.accept()[0]


            """

        @Test(
            "if a process that carries a TCP connection is killed, its end of the connection is reset"
        )
        func killed() throws {
            let (dialer, listener, program) = try start(
                """
                ends = connect()
                for sender, receiver in (ends, ends[::-1]):
                    sender.sendall(b"x")
                    receiver.recv(1)
                print("carried", flush=True)
                for end in ends:
                    try:
                        print("read", end.recv(1))
                    except ConnectionResetError:
                        print("reset")
                """)
            try program.output(containing: "carried\n")
            for tool in [dialer, listener] { tool.signal(SIGKILL) }
            _ = try Subprocess.wait([dialer, listener])
            let outcome = try program.wait()
            #expect(outcome.text == "carried\nreset\nreset\n", "\(outcome.errors)")
        }

        @Test(
            "another command of the peer refuses connections, and its message ends forward with 76",
            arguments: [["chat", "--listen"], ["listen", "--persist"]])
        func otherCommand(_ words: [String]) throws {
            let listener = try Tool.start(
                words + [
                    pair.endpoint(), "--identity", pair.folder.file("listener"), "--peer",
                    pair.dialerKey,
                ], input: .keptOpen)
            _ = try listener.line("listening on ")
            let local = pair.folder.file("local")
            let dialer = try Tool.start(
                [
                    "forward", "unix:" + local, "unix:/target", "--at", pair.endpoint(),
                    "--identity", pair.folder.file("dialer"), "--peer", pair.listenerKey,
                ])
            _ = try dialer.line("forwarding ", whileServing: [listener])
            let socket = RawSocket.dialing(local)
            _ = try dialer.line(
                "forward: the peer does not allow unix:/target", whileServing: [listener])
            socket.close()
            listener.send(Array("hello\n".utf8))
            let outcome = try dialer.wait(whileServing: [listener])
            #expect(outcome.status == 76, "\(outcome.errors)")
            #expect(
                outcome.errors.hasSuffix("another command: run `blesec forward` on both sides\n"),
                "\(outcome.errors)")
            listener.signal(SIGKILL)
            _ = try listener.wait()
        }

        @Test("what is under way when a TCP connection is closed in good order still arrives")
        func goodOrder() throws {
            let (dialer, listener, program) = try start(
                """
                data = bytes(range(256)) * 400
                for first in (0, 1):
                    ends = connect()
                    reader, writer = ends[first], ends[1 - first]
                    reader.shutdown(socket.SHUT_WR)
                    assert writer.recv(1) == b""
                    writer.sendall(data)
                    writer.close()
                    # Meanwhile, the tool writes everything, and closes its end.
                    time.sleep(0.5)
                    got = b""
                    while piece := reader.recv(65536):
                        got += piece
                    print("whole" if got == data else len(got))
                """)
            let outcome = try program.wait(whileServing: [dialer, listener])
            #expect(outcome.text == "whole\nwhole\n", "\(outcome.errors)")
            for tool in [dialer, listener] { tool.signal(SIGKILL) }
            _ = try Subprocess.wait([dialer, listener])
        }
    }
}
