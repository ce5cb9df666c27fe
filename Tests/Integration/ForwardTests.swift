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
            let anyPort: [UInt8] = [0, 0]
            let loopback: [UInt8] = [127, 0, 0, 1]
            let padding = [UInt8](repeating: 0, count: 8)
            try Socket.bind(
                descriptor,
                to: SocketAddress(SocketAddress.family(AF_INET) + anyPort + loopback + padding))
            return descriptor
        }

        private static func port(of descriptor: Int32) throws -> Int {
            let bytes = try Socket.localAddress(descriptor).bytes
            return Int(bytes[2]) << 8 | Int(bytes[3])
        }

        /// Starts two tools that carry connections from a TCP port to another one, or to a Unix
        /// socket, and a Python program that has both ends of the connections.
        private func start(
            _ script: String, toUnixSocket: Bool = false
        ) throws -> (dialer: Subprocess, listener: Subprocess, program: Subprocess) {
            let (local, port) = try Self.freePorts()
            let target = toUnixSocket ? pair.folder.file("target") : "\(port)"
            let remote = toUnixSocket ? "unix:\(target)" : "tcp:127.0.0.1:\(target)"
            let listener = try Tool.start(
                [
                    "forward", "--allow", remote, "--at", pair.endpoint(), "--listen",
                    "--identity", pair.folder.file("listener"), "--peer", pair.dialerKey,
                ])
            _ = try listener.line("listening on ")
            let dialer = try Tool.start(
                [
                    "forward", "tcp:127.0.0.1:\(local)", remote, "--at", pair.endpoint(),
                    "--identity", pair.folder.file("dialer"), "--peer", pair.listenerKey,
                ])
            _ = try dialer.line("channel ready: ", whileServing: [listener])
            let program = try Subprocess(
                "/usr/bin/python3", ["-c", Self.connecting + script, "\(local)", target],
                input: .keptOpen, within: 60)
            return (dialer, listener, program)
        }

        /// The beginning of each Python program. Its function `connect` returns both ends of a new
        /// connection: the end that dials, and the end at the target.
        private static let connecting = """
            import socket, sys, time

            local, target = int(sys.argv[1]), sys.argv[2]
            if target.startswith("/"):
                server = socket.socket(socket.AF_UNIX)
                server.bind(target)
                server.listen()
            else:
                server = socket.create_server(("127.0.0.1", int(target)))

            def connect():
                near = socket.create_connection(("127.0.0.1", local))
                return near, server.accept()[0]


            """

        @Test(
            "if both processes that carry a TCP connection are killed, both ends of the connection are reset"
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
            "another command of the peer refuses connections, and a message from that command ends forward with 76",
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
                outcome.errors.hasSuffix("another command; run `blesec forward` on both sides\n"),
                "\(outcome.errors)")
            listener.signal(SIGKILL)
            _ = try listener.wait()
        }

        @Test(
            "bytes that are under way when a TCP connection is closed without a reset still arrive")
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

        @Test(
            "a TCP connection is not reset if the program at a Unix socket reads everything and closes its end"
        )
        func closedUnixSocket() throws {
            let (dialer, listener, program) = try start(
                """
                near, far = connect()
                near.sendall(b"x")
                assert far.recv(1) == b"x"
                far.sendall(b"answer")
                far.close()
                got = b""
                while piece := near.recv(100):
                    got += piece
                # The time in which a connection is reset whose bytes are refused.
                time.sleep(4)
                print(got, near.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
                """, toUnixSocket: true)
            let outcome = try program.wait(whileServing: [dialer, listener])
            #expect(outcome.text == "b'answer' 0\n", "\(outcome.errors)")
            for tool in [dialer, listener] { tool.signal(SIGKILL) }
            _ = try Subprocess.wait([dialer, listener])
        }

        @Test(
            "a TCP connection is reset if the program at a Unix socket shuts it down, and later closes it with unread bytes"
        )
        func lateRefusal() throws {
            let (dialer, listener, program) = try start(
                """
                near, far = connect()
                near.sendall(b"x")
                assert far.recv(1, socket.MSG_PEEK) == b"x"
                far.shutdown(socket.SHUT_RDWR)
                time.sleep(0.3)
                far.close()
                error = 0
                for _ in range(200):
                    error = error or near.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    time.sleep(0.05)
                    if error:
                        break
                print(error != 0)
                """, toUnixSocket: true)
            let outcome = try program.wait(whileServing: [dialer, listener])
            #expect(outcome.text == "True\n", "\(outcome.errors)")
            for tool in [dialer, listener] { tool.signal(SIGKILL) }
            _ = try Subprocess.wait([dialer, listener])
        }

        @Test(
            "a TCP program that reads late gets everything, even if the program at a Unix socket has refused bytes"
        )
        func lateReader() throws {
            let (dialer, listener, program) = try start(
                """
                import threading

                near, far = connect()
                near.sendall(b"x")

                def answer():
                    # The byte stays unread, so that the close of the socket refuses it.
                    far.recv(1, socket.MSG_PEEK)
                    far.sendall(bytes(1_500_000))
                    far.close()

                thread = threading.Thread(target=answer)
                thread.start()
                time.sleep(1)
                near.shutdown(socket.SHUT_WR)
                time.sleep(4)
                count = 0
                while piece := near.recv(65536):
                    count += len(piece)
                print(count)
                thread.join()
                """, toUnixSocket: true)
            let outcome = try program.wait(whileServing: [dialer, listener])
            #expect(outcome.text == "1500000\n", "\(outcome.errors)")
            for tool in [dialer, listener] { tool.signal(SIGKILL) }
            _ = try Subprocess.wait([dialer, listener])
        }

        @Test("an urgent byte that is sent over a Unix socket arrives among the others")
        func urgentOverUnixSocket() throws {
            let (dialer, listener, program) = try start(
                """
                near, far = connect()
                far.sendall(b"before ")
                far.send(b"!", socket.MSG_OOB)
                far.sendall(b" after")
                far.shutdown(socket.SHUT_WR)
                got = b""
                while piece := near.recv(100):
                    got += piece
                print(got)
                """, toUnixSocket: true)
            let outcome = try program.wait(whileServing: [dialer, listener])
            #expect(outcome.text == "b'before ! after'\n", "\(outcome.errors)")
            for tool in [dialer, listener] { tool.signal(SIGKILL) }
            _ = try Subprocess.wait([dialer, listener])
        }

        @Test("a pair to which no program connects takes no place from the other pairs")
        func unusedPairs() throws {
            let target = pair.folder.file("target")
            let listener = try Tool.start(
                [
                    "forward", "--allow", "unix:\(target)", "--at", pair.endpoint(), "--listen",
                    "--identity", pair.folder.file("listener"), "--peer", pair.dialerKey,
                ])
            _ = try listener.line("listening on ")
            // With as many pairs as there are places, each pair still carries several connections.
            let locals = (0..<64).map { pair.folder.file("local\($0)") }
            let pairs: [String] = locals.flatMap { ["unix:\($0)", "unix:\(target)"] }
            let dialer = try Tool.start(
                ["forward"] + pairs + [
                    "--at", pair.endpoint(), "--identity", pair.folder.file("dialer"), "--peer",
                    pair.listenerKey,
                ])
            _ = try dialer.line("channel ready: ", whileServing: [listener])
            let script = """
                import socket, sys

                server = socket.socket(socket.AF_UNIX)
                server.bind(sys.argv[2])
                server.listen()
                server.settimeout(10)
                ends = []
                for number in range(3):
                    near = socket.socket(socket.AF_UNIX)
                    near.connect(sys.argv[1])
                    near.sendall(b"%d" % number)
                    far = server.accept()[0]
                    print(far.recv(1))
                    ends += near, far
                """
            let program = try Subprocess("/usr/bin/python3", ["-c", script, locals[0], target])
            let outcome = try program.wait(whileServing: [dialer, listener])
            #expect(outcome.text == "b'0'\nb'1'\nb'2'\n", "\(outcome.errors)")
            for tool in [dialer, listener] { tool.signal(SIGKILL) }
            _ = try Subprocess.wait([dialer, listener])
        }

        @Test("forward ends with 76 if the peer runs another command that sends no message")
        func otherCommandWithoutMessage() throws {
            let listener = try Tool.start(
                [
                    "forward", "--allow", "unix:/target", "--at", pair.endpoint(), "--listen",
                    "--identity", pair.folder.file("listener"), "--peer", pair.dialerKey,
                ])
            _ = try listener.line("listening on ")
            let dialer = try pair.connect(["--persist"])
            let outcome = try listener.wait(whileServing: [dialer])
            #expect(outcome.status == 76, "\(outcome.errors)")
            #expect(
                outcome.errors.hasSuffix("another command; run `blesec forward` on both sides\n"),
                "\(outcome.errors)")
            dialer.signal(SIGKILL)
            _ = try dialer.wait()
        }

        @Test("what a program sends arrives whole, even if that program reads no answer")
        func takesNoAnswer() throws {
            let (local, target) = (pair.folder.file("local"), pair.folder.file("target"))
            let listener = try Tool.start(
                [
                    "forward", "--allow", "unix:\(target)", "--at", pair.endpoint(), "--listen",
                    "--identity", pair.folder.file("listener"), "--peer", pair.dialerKey,
                ])
            _ = try listener.line("listening on ")
            let dialer = try Tool.start(
                [
                    "forward", "unix:\(local)", "unix:\(target)", "--at", pair.endpoint(),
                    "--identity", pair.folder.file("dialer"), "--peer", pair.listenerKey,
                ])
            _ = try dialer.line("channel ready: ", whileServing: [listener])
            let script = """
                import socket, sys

                server = socket.socket(socket.AF_UNIX)
                server.bind(sys.argv[2])
                server.listen()
                for round in range(10):
                    near = socket.socket(socket.AF_UNIX)
                    near.connect(sys.argv[1])
                    near.sendall(b"x")
                    far = server.accept()[0]
                    far.recv(1)
                    sender, other = (near, far) if round % 2 else (far, near)
                    sender.sendall(bytes(120_000))
                    sender.close()
                    count = 0
                    while piece := other.recv(10_000):
                        count += len(piece)
                        try:
                            other.sendall(b"ok")
                        except BrokenPipeError:
                            pass
                    print(count)
                """
            let program = try Subprocess("/usr/bin/python3", ["-c", script, local, target])
            let outcome = try program.wait(whileServing: [dialer, listener])
            #expect(
                outcome.text == String(repeating: "120000\n", count: 10), "\(outcome.errors)")
            for tool in [dialer, listener] { tool.signal(SIGKILL) }
            _ = try Subprocess.wait([dialer, listener])
        }

        @Test(
            "what a program sends before the peer is reached arrives, even if its connection is closed before that"
        )
        func endsBeforeLink() throws {
            let (local, target) = (pair.folder.file("local"), pair.folder.file("target"))
            let dialer = try Tool.start(
                [
                    "forward", "unix:\(local)", "unix:\(target)", "--at", pair.endpoint(),
                    "--identity", pair.folder.file("dialer"), "--peer", pair.listenerKey,
                ], within: 40)
            _ = try dialer.line("forwarding ")
            let script = """
                import socket, sys

                server = socket.socket(socket.AF_UNIX)
                server.bind(sys.argv[2])
                server.listen()
                for number in range(10):
                    near = socket.socket(socket.AF_UNIX)
                    near.connect(sys.argv[1])
                    near.sendall(b"%d" % number)
                    near.close()
                print("sent", flush=True)
                print(sorted(server.accept()[0].recv(10) for _ in range(10)))
                """
            let program = try Subprocess(
                "/usr/bin/python3", ["-c", script, local, target], within: 40)
            try program.output(containing: "sent\n")
            let listener = try Tool.start(
                [
                    "forward", "--allow", "unix:\(target)", "--at", pair.endpoint(), "--listen",
                    "--identity", pair.folder.file("listener"), "--peer", pair.dialerKey,
                ], within: 40)
            let outcome = try program.wait(whileServing: [dialer, listener])
            let numbers = (0..<10).map { "b'\($0)'" }.joined(separator: ", ")
            #expect(outcome.text == "sent\n[\(numbers)]\n", "\(outcome.errors)")
            for tool in [dialer, listener] { tool.signal(SIGKILL) }
            _ = try Subprocess.wait([dialer, listener])
        }

        @Test("a program that only waits gets a reset if the other program resets its connection")
        func noticesReset() throws {
            let (dialer, listener, program) = try start(
                """
                import struct

                for first in (0, 1):
                    ends = connect()
                    gone, waiting = ends[first], ends[1 - first]
                    for end in (gone, waiting):
                        end.shutdown(socket.SHUT_WR) if end is waiting else end.sendall(b"x")
                    waiting.recv(1)
                    gone.recv(1)
                    gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    gone.close()
                    waiting.settimeout(20)
                    try:
                        print("read", waiting.recv(1))
                    except ConnectionResetError:
                        print("reset")
                """)
            let outcome = try program.wait(whileServing: [dialer, listener])
            #expect(outcome.text == "reset\nreset\n", "\(outcome.errors)")
            for tool in [dialer, listener] { tool.signal(SIGKILL) }
            _ = try Subprocess.wait([dialer, listener])
        }

        @Test("if the peer's process is replaced, a connection with bytes under way is reset")
        func replacedPeer() throws {
            let (dialer, listener, program) = try start(
                """
                near, far = connect()
                # The far end has ended its direction, so only the other direction can fail.
                far.shutdown(socket.SHUT_WR)
                assert near.recv(1) == b""
                print("ready", flush=True)
                sys.stdin.readline()
                near.sendall(b"lost")
                print("sent", flush=True)
                sys.stdin.readline()
                for _ in range(200):
                    error = near.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    if error: break
                    time.sleep(0.1)
                print("error" if error else "none")
                """)
            try program.output(containing: "ready\n")
            listener.signal(SIGKILL)
            _ = try listener.wait()
            program.send(Array("\n".utf8))
            try program.output(containing: "sent\n")
            let second = try Tool.start(
                [
                    "forward", "--allow", "unix:/target", "--at", pair.endpoint(), "--listen",
                    "--identity", pair.folder.file("listener"), "--peer", pair.dialerKey,
                ], within: 40)
            _ = try second.line("channel ready: ", whileServing: [dialer])
            program.send(Array("\n".utf8))
            let outcome = try program.wait(whileServing: [dialer, second])
            #expect(outcome.text == "ready\nsent\nerror\n", "\(outcome.errors)")
            for tool in [dialer, second] { tool.signal(SIGKILL) }
            _ = try Subprocess.wait([dialer, second])
        }

        @Test("one command forwards several pairs, and an urgent byte arrives among the others")
        func pairs() throws {
            let (first, second) = try (Self.freePorts(), Self.freePorts())
            let listener = try Tool.start(
                [
                    "forward", "--allow", "tcp:127.0.0.1:\(first.1)", "--allow",
                    "tcp:127.0.0.1:\(second.1)", "--at", pair.endpoint(), "--listen", "--identity",
                    pair.folder.file("listener"), "--peer", pair.dialerKey,
                ])
            _ = try listener.line("listening on ")
            let dialer = try Tool.start(
                [
                    "forward", "tcp:127.0.0.1:\(first.0)", "tcp:127.0.0.1:\(first.1)",
                    "tcp:127.0.0.1:\(second.0)", "tcp:127.0.0.1:\(second.1)", "--at",
                    pair.endpoint(), "--identity", pair.folder.file("dialer"), "--peer",
                    pair.listenerKey,
                ])
            _ = try dialer.line("channel ready: ", whileServing: [listener])
            for (local, target) in [first, second] {
                let program = try Subprocess(
                    "/usr/bin/python3",
                    [
                        "-c",
                        Self.connecting + """
                            near, far = connect()
                            near.sendall(b"before ")
                            near.send(b"!", socket.MSG_OOB)
                            near.sendall(b" after")
                            near.shutdown(socket.SHUT_WR)
                            got = b""
                            while piece := far.recv(100): got += piece
                            print(got)
                            """, "\(local)", "\(target)",
                    ])
                let outcome = try program.wait(whileServing: [dialer, listener])
                #expect(outcome.text == "b'before ! after'\n", "\(outcome.errors)")
            }
            let odd = try Tool.run("forward", "unix:/a", "unix:/b", "unix:/c")
            Tool.expect(odd, status: 64, "REMOTE is missing after unix:/c")
            for open in ["tcp:0.0.0.0:8080", "tcp:[::]:8080", "tcp:[::ffff:127.0.0.1]:8080"] {
                let outcome = try Tool.run("forward", open, "unix:/b")
                Tool.expect(outcome, status: 64, "\(open) would let other machines connect")
            }
            for tool in [dialer, listener] { tool.signal(SIGKILL) }
            _ = try Subprocess.wait([dialer, listener])
        }
    }
}
