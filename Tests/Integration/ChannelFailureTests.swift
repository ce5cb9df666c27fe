import BLESec
import BLESecChannelCore
import Glibc
import TestSupport
import Testing

extension Integration {
    /// Channels that do not open, or do not end properly: the tool reports the reason, and its exit
    /// status is not 0.
    @Suite struct ChannelFailureTests {
        /// A well-formed fingerprint of a key that neither side has.
        private static let strangerKey = "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU"

        @Test(
            "a second listener at a path is refused, and the first listener does not report it as a dialer"
        )
        func secondListener() throws {
            let pair = try ToolPair()
            let first = try pair.listen(["--keep"])
            for kind in ["unix", "unix-seqpacket"] {
                let second = try Tool.run(
                    "listen", pair.endpoint(kind), "--identity", pair.folder.file("listener"),
                    "--anyone")
                Tool.expect(second, status: 73, "someone else listens there")
            }
            let dialer = try pair.connect().wait(whileServing: [first])
            #expect(dialer.status == 0, "\(dialer.errors)")
            _ = try first.line("channel complete with ")
            first.signal(15)
            #expect(!(try first.wait().errors.contains("no channel with")))
        }

        @Test(
            "exit status 64: wrong command line; 65: malformed key; 66: no key file; 68: no adapter; 73: no folder for a socket",
            arguments: [
                (
                    ["connect", "unix:s"], 64,
                    "no option says whom to accept: --peer KEY, or --anyone"
                ),
                (["listen", "unix:s"], 64, "no option says whom to accept"),
                (["listen", "--anyone"], 64, "give an ENDPOINT"),
                (
                    ["connect", "unix:s", "--anyone", "--peer", strangerKey], 64,
                    "exclude each other"
                ),
                (
                    ["connect", "unix:s", "--peer", "SHA256:short"], 65,
                    "a peer's key is SHA256: and 43"
                ),
                (["connect", "unix:s", "--peer", "AAAA"], 65, "a peer's key is"),
                (["connect", "unix:s", "--anyone", "--keep"], 64, "unknown option `--keep`"),
                (["connect", "tcp:host:1", "--anyone"], 64, "is no endpoint"),
                (
                    ["connect", "nonsense", "--anyone"], 64,
                    "`nonsense` is no endpoint: write l2cap:AA:BB:CC:DD:EE:FF/0x80, unix:PATH, "
                        + "unix-seqpacket:PATH, service:UUID, peer:NAME or peer:KEY; see"
                ),
                (
                    ["listen", "service:180F", "--anyone"], 64,
                    "is no endpoint: write l2cap:any, l2cap:any/0x85, l2cap:AA:BB:CC:DD:EE:FF/0x80, "
                        + "unix:PATH or unix-seqpacket:PATH; see"
                ),
                (
                    ["chat", "x:y", "--anyone"], 64,
                    "unix:PATH, unix-seqpacket:PATH, peer:NAME or peer:KEY; see"
                ),
                (
                    ["pair", "x:y", "--name", "a"], 64,
                    "unix:PATH, unix-seqpacket:PATH or service:UUID; see"
                ),
                (
                    ["connect", "unix:s", "--anyone", "--timeout", "31536001"], 64,
                    "above 0 and up to 31536000, and not `31536001`"
                ),
                (["connect", "unix:", "--anyone"], 64, "path of a Unix socket is missing"),
                (["connect", "l2cap:any", "--anyone"], 64, "name the device and its PSM"),
                (["connect", "l2cap:AA:BB:CC:DD:EE/0x80", "--anyone"], 64, "AA:BB:CC:DD:EE"),
                (["connect", "l2cap:AA:BB:CC:DD:EE:FF/0x100", "--anyone"], 64, "0x100"),
                (["connect", "l2cap:AA:BB:CC:DD:EE:FF", "--anyone"], 64, "AA:BB:CC:DD:EE:FF"),
                (["listen", "l2cap:any/0x100", "--anyone"], 64, "0x100"),
                (
                    ["listen", "l2cap:any", "--adapter", "hci77", "--anyone"], 68,
                    "Bluetooth adapter"
                ),
                (["listen", "unix:s", "--adapter", "hci0", "--anyone"], 64, "goes with an l2cap:"),
                (
                    [
                        "connect", "l2cap:AA:BB:CC:DD:EE:FF/0x80", "--address-type", "odd",
                        "--anyone",
                    ],
                    64, "--address-type is public or random"
                ),
                (["connect", "unix:s", "--anyone", "--timeout", "0"], 64, "--timeout is a number"),
                (
                    ["connect", "unix:s", "--anyone", "--timeout", "-1"], 64,
                    "--timeout is a number"
                ),
                (
                    ["connect", "unix:s", "--anyone", "--timeout", "1e3"], 64,
                    "--timeout is a number"
                ),
                (
                    ["connect", "unix:s", "--anyone", "--timeout", "inf"], 64,
                    "--timeout is a number"
                ),
                (["connect", "unix:s", "--anyone", "--protocol", "Noise_XX"], 64, "Noise_XX"),
                (["connect", "unix:s", "--anyone", "--protocol", "TLS9"], 64, "TLS9"),
                (
                    [
                        "connect", "unix:s", "--anyone", "--direct", "--protocol", "a",
                        "--protocol",
                        "b",
                    ], 64, "--direct takes only one --protocol"
                ),
                (
                    ["connect", "unix:s", "--anyone", "--passphrase-prompt"], 64,
                    "--passphrase-prompt goes with --identity FILE"
                ),
                (
                    ["connect", "unix:s", "--anyone", "--identity", "/no/key"], 66,
                    "/no/key: no such file"
                ),
                (["listen", "unix:/nonexistent/x", "--anyone"], 73, "no such path"),
                (
                    [
                        "forward", "unix:/nonexistent/x", "unix:y", "--at", "unix:/nonexistent/z",
                        "--anyone",
                    ], 73, "cannot listen on unix:/nonexistent/x: no such path"
                ),
            ] as [([String], Int32, String)])
        func refusedBeforeDialing(_ words: [String], _ status: Int32, _ reason: String) throws {
            Tool.expect(try Subprocess.run(Tool.path, words), status: status, reason)
        }

        @Test("a dialer without a listener exits with 68")
        func noListener() throws {
            let pair = try ToolPair()
            Tool.expect(try pair.connect().wait(), status: 68, pair.folder.file("socket"))
        }

        @Test(
            "a command without permission to connect to a Unix socket exits with 77, and does not try again",
            arguments: [
                ["connect", "SOCKET"], ["connect", "SOCKET", "--persist"], ["chat", "SOCKET"],
                ["send", "SOCKET", "FILE"], ["receive", "SOCKET", "FOLDER", "--keep"],
                ["forward", "--at", "SOCKET", "--allow", "unix:/nowhere"],
            ])
        func deniedSocket(_ words: [String]) throws {
            let pair = try ToolPair()
            let path = pair.folder.file("socket")
            let socket = RawSocket.listening(at: path)
            try #require(unsafe chmod(path, 0) == 0)
            let values = [
                "SOCKET": pair.endpoint(), "FILE": pair.folder.write("file", "x"),
                "FOLDER": pair.folder.path,
            ]
            let outcome = try Tool.runBoundByPermissions(
                words.map { values[$0] ?? $0 } + [
                    "--identity", pair.folder.file("dialer"), "--peer", pair.listenerKey,
                ], input: .keptOpen)
            #expect(outcome.status == 77, "\(outcome.errors)")
            #expect(
                outcome.errors.hasSuffix(
                    "blesec: cannot connect to \(pair.endpoint()): not allowed\n"),
                "\(outcome.errors)")
            #expect(!outcome.errors.contains("next attempt"), "\(outcome.errors)")
            socket.close()
        }

        @Test("a listener whose address is in use exits with 73")
        func addressInUse() throws {
            let pair = try ToolPair()
            let first = try pair.listen()
            let second = try Tool.run("listen", pair.endpoint(), "--anyone")
            Tool.expect(second, status: 73, pair.folder.file("socket"))
            first.signal(SIGTERM)
            #expect(try first.wait().status == 143)
        }

        @Test("a listener without a dialer ends at its timeout")
        func listenerTimeout() throws {
            let pair = try ToolPair()
            let outcome = try pair.listen(["--timeout", "0.2"]).wait()
            #expect(outcome.status == 75)
            #expect(outcome.errors.hasSuffix("blesec: no channel was ready within 0.2 s\n"))
            #expect(pair.folder.mode("socket") == nil)
        }

        @Test("with --persist, both sides end at their timeouts while there is no peer")
        func persistentTimeout() throws {
            let pair = try ToolPair()
            for outcome in [
                try pair.connect(["--persist", "--timeout", "0.3"]).wait(),
                try pair.listen(["--persist", "--timeout", "0.3"]).wait(),
            ] {
                #expect(outcome.status == 75)
                #expect(outcome.errors.hasSuffix("blesec: no channel was ready within 0.3 s\n"))
            }
        }

        @Test(
            "send, receive and forward end at their timeouts while there is no peer",
            arguments: [[], ["--listen"]] as [[String]])
        func transferTimeout(_ role: [String]) throws {
            let pair = try ToolPair()
            let options = [
                "--identity", pair.folder.file("dialer"), "--peer", pair.listenerKey, "--timeout",
                "0.3",
            ]
            for words in [
                ["send", pair.endpoint(), pair.folder.write("file", "x")],
                ["receive", pair.endpoint(), pair.folder.path, "--keep"],
                ["forward", "--at", pair.endpoint(), "--allow", "unix:/nowhere"],
            ] {
                let outcome = try Tool.start(words + options + role).wait()
                #expect(outcome.status == 75, "\(words): \(outcome.errors)")
                #expect(outcome.errors.hasSuffix("blesec: no channel was ready within 0.3 s\n"))
            }
        }

        @Test("a dialer whose listener is silent ends at the dialer's timeout")
        func silentPeer() throws {
            let pair = try ToolPair()
            let unresponsiveListener = RawSocket.listening(at: pair.folder.file("socket"))
            let outcome = try pair.connect(["--timeout", "0.3"]).wait()
            Tool.expect(outcome, status: 75, "was ready within 0.3 s")
            unresponsiveListener.close()
        }

        @Test(
            "a dialer that finds a key other than the pinned one exits with 77, and the listener's error does not contain the pinned key"
        )
        func wrongListener() throws {
            let pair = try ToolPair()
            let listener = try pair.listen(["--timeout", "20"])
            let dialer = try pair.connect(trust: ["--peer", Self.strangerKey])
                .wait(whileServing: [listener])
            Tool.expect(dialer, status: 77, pair.listenerKey)
            let line = try listener.line("blesec: no channel with ")
            #expect(line.contains(Self.strangerKey) == false)
        }

        @Test(
            "a dialer whose key is not pinned is refused, and the listener keeps waiting"
        )
        func wrongDialer() throws {
            let pair = try ToolPair()
            let listener = try pair.listen(trust: [
                "--peer", Self.strangerKey, "--peer", pair.dialerKey,
            ])
            let unexpectedDialer = try Tool.start(
                ["connect", pair.endpoint(), "--peer", pair.listenerKey],
                input: .bytes(Array("let me in".utf8)))
            Tool.expect(
                try unexpectedDialer.wait(whileServing: [listener]), status: 69,
                "the peer refuses this identity")
            #expect(
                try listener.line("blesec: no channel with ").contains("is not among the expected"))
            let outcomes = try Subprocess.wait([listener, try pair.connect()])
            #expect(outcomes.map(\.status) == [0, 0])
            #expect(outcomes[0].output == [])
        }

        @Test("a dialer that uses the listener's own key gets no channel")
        func ownKey() throws {
            let pair = try ToolPair()
            let listener = try pair.listen(["--timeout", "20"], trust: ["--anyone"])
            let dialer = try Tool.start(
                [
                    "connect", pair.endpoint(), "--anyone", "--identity",
                    pair.folder.file("listener"),
                ])
            let outcome = try dialer.wait(whileServing: [listener])
            #expect(outcome.status != 0)
            #expect(outcome.errors.hasPrefix("blesec: "))
        }

        @Test(
            "a dialer that sends no valid hello gets no channel, and the listener keeps waiting",
            arguments: [
                Array("GET / HTTP/1.1\r\n\r\n".utf8), [UInt8](repeating: 0xFF, count: 100_000),
                Array("BLS1".utf8) + [0xFF, 0xFF], [0x00],
            ])
        func invalidHello(_ bytes: [UInt8]) throws {
            let pair = try ToolPair()
            let listener = try pair.listen()
            let rawDialer = RawSocket.dialing(pair.folder.file("socket"))
            rawDialer.send(bytes)
            rawDialer.close()
            // Without the folder's path, since its random name may contain one of the parts below.
            let line = try listener.line("blesec: no channel with ")
                .replacing(pair.folder.path, with: "")
            // The tool shows a NUL as `\u{0}`.
            for part in ["\u{FFFD}", "GET", "\0", #"\u{0}"#] {
                #expect(!line.contains(part), "the error contains bytes of the dialer")
            }
            let outcomes = try Subprocess.wait([listener, try pair.connect()])
            #expect(outcomes.map(\.status) == [0, 0])
        }

        @Test("a dialer that gets an invalid answer exits with 76")
        func invalidAnswer() throws {
            let pair = try ToolPair()
            let rawListener = RawSocket.listening(at: pair.folder.file("socket"))
            let dialer = try pair.connect()
            let accepted = try rawListener.acceptDialer()
            accepted.send(Array("220 mail.example ESMTP\r\n".utf8))
            Tool.expect(try dialer.wait(), status: 76, "the peer does not speak blesec/1: ")
            accepted.close()
        }

        @Test(
            "a dialer whose listener is killed writes the data that arrived, and exits with 76"
        )
        func killed() throws {
            let pair = try ToolPair()
            let listener = try pair.listen(input: .keptOpen)
            let dialer = try pair.connect(input: .keptOpen)
            listener.send(Array("half of it".utf8))
            _ = try dialer.output(10, whileServing: [listener])
            listener.signal(SIGKILL)
            _ = try listener.wait(whileServing: [dialer])
            let outcome = try dialer.wait()
            #expect(outcome.status == 76)
            #expect(outcome.text == "half of it")
            #expect(
                outcome.errors.hasSuffix(
                    "blesec: the link ended before the peer said that it was done\n"))
        }

        @Test(
            "if the listener is killed after it has sent its `end`, the dialer exits with 76, even if the dialer's input stays open and silent"
        )
        func killedAfterEnd() throws {
            let pair = try ToolPair()
            let listener = try pair.listen(input: .bytes(Array("all".utf8)))
            let dialer = try pair.connect(input: .keptOpen)
            // The dialer closes its standard output once the listener's `end` has arrived. The
            // listener then waits for the dialer's `end`.
            try dialer.waitForOutputEnd(whileServing: [listener])
            listener.signal(SIGKILL)
            _ = try listener.wait(whileServing: [dialer])
            let outcome = try dialer.wait()
            #expect(outcome.status == 76)
            #expect(outcome.text == "all")
            #expect(
                outcome.errors.contains(
                    "blesec: the link ended before the peer acknowledged everything"),
                "\(outcome.errors)")
        }

        @Test(
            "SIGINT, SIGTERM and SIGHUP end a dialer, and its listener reports incomplete data",
            arguments: [
                (SIGINT, 130, "interrupted"), (SIGTERM, 143, "terminated"),
                (SIGHUP, 129, "hung up"),
            ])
        func signals(_ number: Int32, _ status: Int32, _ reason: String) throws {
            let pair = try ToolPair()
            let listener = try pair.listen(input: .keptOpen)
            let dialer = try pair.connect(input: .keptOpen)
            dialer.send(Array("half of it".utf8))
            _ = try listener.output(10, whileServing: [dialer])
            dialer.signal(number)
            let outcomes = try Subprocess.wait([listener, dialer])
            #expect(outcomes.map(\.status) == [76, status])
            #expect(
                outcomes[0].errors.hasSuffix(
                    "blesec: the peer was interrupted before it had sent everything\n"))
            #expect(outcomes[1].errors.contains(reason))
            #expect(outcomes[0].text == "half of it")
        }

        @Test(
            "a signal ends a command at once while bluetoothd does not answer",
            arguments: [
                ["listen", "--service", "180F", "--anyone"],
                ["listen", "--service", "180F", "--anyone", "--keep"], ["chat", "--anyone"],
                ["connect", "service:180F", "--anyone"],
                ["scan"], ["forward", "--allow", "unix:/nowhere", "--anyone"],
                ["send", "service:180F", "FOLDER", "--anyone"],
                ["receive", "FOLDER", "--service", "180F", "--anyone"],
                ["pair", "--name", "x", "--state", "FOLDER/state"],
            ])
        func silentBus(_ words: [String]) throws {
            let folder = ScratchFolder()
            let bus = RawSocket.listening(at: folder.file("bus"))
            let tool = try Subprocess(
                Tool.path, words.map { $0.replacing("FOLDER", with: folder.path) },
                input: .keptOpen,
                environment: [
                    "DBUS_SYSTEM_BUS_ADDRESS": "unix:path=\(folder.file("bus"))",
                    "XDG_STATE_HOME": folder.path,
                ], within: 8)
            let accepted = try bus.acceptDialer()
            tool.signal(SIGTERM)
            let outcome = try tool.wait()
            #expect(outcome.status == 143, "\(outcome.errors)")
            #expect(outcome.errors.hasSuffix("blesec: terminated\n"), "\(outcome.errors)")
            accepted.close()
            bus.close()
        }

        @Test(
            "the time limit of a command holds while bluetoothd does not answer",
            arguments: [
                ["listen", "--service", "180F", "--anyone", "--timeout"],
                ["listen", "--service", "180F", "--anyone", "--persist", "--timeout"],
                ["connect", "service:180F", "--anyone", "--timeout"],
                ["chat", "--anyone", "--timeout"], ["scan", "--for"],
                ["forward", "--allow", "unix:/nowhere", "--anyone", "--timeout"],
                ["send", "--service", "180F", "FOLDER", "--anyone", "--timeout"],
                ["receive", "FOLDER", "--service", "180F", "--anyone", "--timeout"],
            ])
        func timeoutWithSilentBus(_ words: [String]) throws {
            let folder = ScratchFolder()
            let bus = RawSocket.listening(at: folder.file("bus"))
            // Without a limit, the command gives up after 10 seconds.
            let outcome = try Subprocess.run(
                Tool.path, words.map { $0.replacing("FOLDER", with: folder.path) } + ["0.5"],
                environment: [
                    "DBUS_SYSTEM_BUS_ADDRESS": "unix:path=\(folder.file("bus"))",
                    "XDG_STATE_HOME": folder.path,
                ], within: 8)
            #expect(outcome.status == 75, "\(outcome.errors)")
            #expect(outcome.errors.hasSuffix(" within 0.5 s\n"), "\(outcome.errors)")
            bus.close()
        }

        @Test(
            "a dialer that is ending ignores a second signal after 0.1 s, and ends at once at a second signal after 2 s",
            arguments: [(100_000, true), (2_000_000, false)] as [(UInt32, Bool)])
        func secondSignal(_ microseconds: UInt32, _ isOrderly: Bool) throws {
            let pair = try ToolPair()
            let listener = try pair.listen(input: .keptOpen)
            let dialer = try pair.connect(input: .keptOpen)
            dialer.send(Array("half of it".utf8))
            _ = try listener.output(10, whileServing: [dialer])
            // The dialer waits up to 5 seconds for a peer that takes nothing.
            listener.suspend()
            dialer.signal(SIGTERM)
            usleep(microseconds)
            dialer.signal(SIGTERM)
            let outcome = try dialer.wait()
            #expect(outcome.status == 143, "\(outcome.errors)")
            #expect(
                outcome.errors.hasSuffix("blesec: terminated\n") == isOrderly, "\(outcome.errors)")
            listener.signal(SIGKILL)
            _ = try listener.wait()
        }

        @Test("a peer that reads slowly still learns that the sender was interrupted")
        func signalWithSlowPeer() throws {
            let pair = try ToolPair()
            let input = pair.folder.write("input", ToolPair.pseudoRandomBytes(8 << 20, seed: 5))
            let listener = try pair.listen(input: .file(input))
            let words = [
                Tool.path, "connect", pair.endpoint(), "--identity", pair.folder.file("dialer"),
                "--peer", pair.listenerKey,
            ]
            // In the first second the reader takes nothing, so all buffers fill; then it takes 32
            // KiB every 1.2 s, four times, and then the rest.
            let reader = """
                { sleep 1
                for piece in 1 2 3 4; do head -c 32768 >/dev/null; echo read >&2; sleep 1.2; done
                cat >/dev/null; }
                """
            let dialer = try Subprocess(
                "sh", ["-c", #"{ "$@"; echo "exit $?" >&2; } | \#(reader)"#, "sh"] + words,
                input: .keptOpen)
            _ = try dialer.line("read", whileServing: [listener])
            listener.signal(SIGINT)
            let outcomes = try Subprocess.wait([listener, dialer])
            #expect(outcomes[0].status == 130)
            #expect(
                outcomes[1].errors.contains(
                    "blesec: the peer was interrupted before it had sent everything\n"))
            #expect(outcomes[1].errors.contains("exit 76\n"))
        }

        @Test("a waiting listener ends on a signal, and removes its socket")
        func signalWhileWaiting() throws {
            let pair = try ToolPair()
            let listener = try pair.listen()
            listener.signal(SIGINT)
            #expect(try listener.wait().status == 130)
            #expect(pair.folder.mode("socket") == nil)
        }

        @Test("a dialer that waits for its peer's last acknowledgement ends on a signal")
        func signalWhileClosing() async throws {
            let pair = try ToolPair()
            let identity = try IdentityKey.generate()
            var configuration = ChannelConfiguration(
                identity: identity, trust: .pinned([try PeerKey(parsing: pair.dialerKey)]))
            // This test's side confirms no message, and so acknowledges nothing.
            configuration.acknowledgement = .manual
            let listener = try await SecureListener.listen(
                on: Endpoint(parsing: pair.endpoint()), configuration: configuration)
            let fifo = pair.folder.file("fifo")
            try #require(unsafe mkfifo(fifo, 0o600) == 0)
            // Opened for reading too, so that opening does not wait for the dialer.
            let input = unsafe Glibc.open(fifo, O_RDWR | O_CLOEXEC)
            let dialer = try pair.connect(
                trust: ["--peer", identity.fingerprint.description], input: .file(fifo))
            let channel = try await listener.accept()
            try await channel.send([1])
            try await channel.finish()
            _ = try dialer.output(1)
            #expect(unsafe write(input, "x", 1) == 1)
            close(input)
            #expect(try await channel.receive() == Array("x".utf8))
            #expect(try await channel.receive() == nil)
            // Now both sides have sent everything.
            dialer.signal(SIGTERM)
            let outcome = try dialer.wait()
            #expect(outcome.status == 143, "\(outcome.errors)")
            await channel.abort()
            await listener.close()
        }

        @Test("a listener that was started with a signal ignored, as by nohup, ignores that signal")
        func ignoredSignal() throws {
            let pair = try ToolPair()
            let words = [
                Tool.path, "listen", pair.endpoint(), "--keep", "--peer", pair.dialerKey,
                "--identity", pair.folder.file("listener"),
            ]
            let listener = try Subprocess(
                "sh", ["-c", #"trap "" HUP; exec "$@""#, "sh"] + words)
            _ = try listener.line("listening on ")
            listener.signal(SIGHUP)
            let dialer = try pair.connect().wait(whileServing: [listener])
            #expect(dialer.status == 0, "\(dialer.errors)")
            listener.signal(SIGTERM)
            #expect(try listener.wait().status == 143)
        }

        @Test("a dialer that waits for an answer ends on a signal")
        func signalWhileHandshaking() throws {
            let pair = try ToolPair()
            let unresponsiveListener = RawSocket.listening(at: pair.folder.file("socket"))
            let dialer = try pair.connect()
            let accepted = try unresponsiveListener.acceptDialer()
            dialer.signal(SIGTERM)
            Tool.expect(try dialer.wait(), status: 143, "terminated")
            accepted.close()
        }

        @Test(
            "a dialer whose standard output is a full disk exits with 74, and its listener with 76")
        func fullDisk() throws {
            let pair = try ToolPair()
            let listener = try pair.listen(
                input: .bytes(ToolPair.pseudoRandomBytes(100_000, seed: 3)), within: 40)
            let dialer = try pair.connect(input: .keptOpen, output: "/dev/full")
            let outcomes = try Subprocess.wait([listener, dialer])
            #expect(outcomes.map(\.status) == [76, 74])
            #expect(outcomes[1].errors.contains("standard output cannot be written: No space left"))
        }

        @Test("a dialer exits with 74 when the reader of its standard output closes")
        func closedPipe() throws {
            let pair = try ToolPair()
            let listener = try pair.listen(
                input: .bytes(ToolPair.pseudoRandomBytes(1 << 20, seed: 4)))
            let words = [
                Tool.path, "connect", pair.endpoint(), "--identity", pair.folder.file("dialer"),
                "--peer", pair.listenerKey,
            ]
            let dialer = try Subprocess(
                "sh",
                ["-c", #"{ "$@"; echo "exit $?" >&2; } | head -c 10 >/dev/null"#, "sh"] + words,
                input: .keptOpen)
            let outcomes = try Subprocess.wait([listener, dialer])
            #expect(outcomes[0].status == 76)
            #expect(outcomes[1].errors.contains("standard output was closed by its reader"))
            #expect(outcomes[1].errors.hasSuffix("exit 74\n"))
        }

        @Test(
            "a dialer that cannot read its standard input exits with 74",
            arguments: ["<&-", "</tmp"])
        func badInput(_ redirection: String) throws {
            let pair = try ToolPair()
            let listener = try pair.listen(input: .keptOpen)
            let words = [
                Tool.path, "connect", pair.endpoint(), "--identity", pair.folder.file("dialer"),
                "--peer", pair.listenerKey,
            ]
            let dialer = try Subprocess("sh", ["-c", "\"$@\" \(redirection)", "sh"] + words)
            let outcomes = try Subprocess.wait([listener, dialer])
            #expect(outcomes.map(\.status) == [76, 74])
            #expect(outcomes[1].errors.contains("standard input cannot be read"))
        }

        @Test("a dialer without --direct and a listener with --direct get no channel")
        func mixedModes() throws {
            let pair = try ToolPair()
            let listener = try pair.listen(["--direct", "--timeout", "1"])
            let dialer = try pair.connect(["--timeout", "1"])
            let outcomes = try Subprocess.wait([listener, dialer])
            #expect(outcomes.allSatisfy { $0.status != 0 })
            #expect(outcomes.allSatisfy { !$0.errors.contains("channel ready") })
        }
    }
}
