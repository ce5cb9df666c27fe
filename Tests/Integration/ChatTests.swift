import BLESec
import BLESecChannelCore
import Glibc
import TestSupport
import Testing

extension Integration {
    /// `blesec chat` and `blesec connect --persist`, without Bluetooth.
    @Suite struct ChatTests {
        let pair: ToolPair

        init() throws { pair = try ToolPair() }

        /// Starts `blesec chat` with the identity of `side`, `listener` or `dialer`, and pins the
        /// other side's key.
        private func chat(
            _ side: String, _ arguments: [String], input: Subprocess.Input = .keptOpen,
            output: String? = nil, within seconds: Double = 40
        ) throws -> Subprocess {
            try Tool.start(
                words(side) + arguments, input: input, output: output, within: seconds)
        }

        private func words(_ side: String) -> [String] {
            let peer = side == "listener" ? pair.dialerKey : pair.listenerKey
            return ["chat", pair.endpoint(), "--identity", pair.folder.file(side), "--peer", peer]
        }

        /// Waits until the link, which has carried a message, is a second old and counts as good.
        /// By then its messages are acknowledged.
        private static func waitUntilLinkIsGood() { usleep(1_100_000) }

        /// Starts `blesec chat --listen`, and waits until it can be dialed.
        private func listen(
            _ arguments: [String] = [], within seconds: Double = 40
        ) throws -> Subprocess {
            let listener = try chat("listener", ["--listen"] + arguments, within: seconds)
            let isJSON = arguments.contains("--json")
            _ = try listener.line(isJSON ? #"{"event": "listening""# : "listening on ")
            return listener
        }

        @Test("lines go both ways, and each is reported as sent and then as delivered")
        func lines() throws {
            let listener = try listen()
            let dialer = try chat("dialer", [])
            dialer.send(Array("hello\nsecond\r\n".utf8))
            _ = try dialer.line("sent 1", whileServing: [listener])
            _ = try dialer.line("delivered 2", whileServing: [listener])
            #expect(
                try listener.output(13, whileServing: [dialer]) == Array("hello\nsecond\n".utf8))
            Self.waitUntilLinkIsGood()
            // This line has a control sequence for terminals, and no line feed.
            listener.send(Array("\u{1B}[2Jbye".utf8))
            listener.endInput()
            let ended = try listener.wait(whileServing: [dialer])
            #expect(ended.status == 0, "\(ended.errors)")
            #expect(ended.errors.contains("delivered 1\n"))
            let shown = #"\u{1B}[2Jbye"# + "\n"
            #expect(try dialer.output(shown.utf8.count) == Array(shown.utf8))
            _ = try dialer.line("the link is gone: the peer has left")
            dialer.signal(SIGINT)
            let outcome = try dialer.wait()
            #expect(outcome.status == 130)
            #expect(outcome.errors.hasSuffix("blesec: interrupted\n"))
        }

        @Test("a chat continues after its peer is killed and restarted")
        func killed() throws {
            let listener = try listen()
            let first = try chat("dialer", ["--json"])
            first.send(Array("one\n".utf8))
            #expect(try listener.output(4, whileServing: [first]) == Array("one\n".utf8))
            Self.waitUntilLinkIsGood()
            first.signal(SIGKILL)
            _ = try first.wait(whileServing: [listener])
            _ = try listener.line("the link is gone")
            // This line waits for the next peer, since no peer is connected.
            listener.send(Array("two\n".utf8))
            let second = try chat("dialer", [])
            #expect(try second.output(4, whileServing: [listener]) == Array("two\n".utf8))
            _ = try listener.line("delivered 1", whileServing: [second])
            second.endInput()
            listener.endInput()
            let outcomes = try Subprocess.wait([listener, second])
            #expect(outcomes.map(\.status) == [0, 0])
        }

        @Test("a chat in which the fate of a line is unknown exits with 76")
        func unknownLine() async throws {
            let identity = try IdentityKey.generate()
            let listener = try Tool.start(
                [
                    "chat", pair.endpoint(), "--listen", "--identity",
                    pair.folder.file("listener"), "--peer", identity.fingerprint.description,
                ], input: .keptOpen, within: 40)
            _ = try listener.line("listening on ")
            let key = try PeerKey(parsing: pair.listenerKey)
            var configuration = ChannelConfiguration(identity: identity, trust: .pinned([key]))
            configuration.carriesDelivery = true
            var options = PeerConnection.DeliveryOptions()
            options.acknowledgement = .manual
            let route = PeerRoute.dialing(
                try Endpoint(parsing: pair.endpoint()), configuration: configuration)
            let first = await PeerConnection.start(
                route, to: key, delivery: .exactlyOnce(options))
            listener.send(Array("hello\n".utf8))
            _ = try listener.line("sent 1")
            // The line arrives, and is not confirmed.
            #expect(try await first.receive() == Array("hello".utf8))
            await first.abort()
            let second = await PeerConnection.start(
                route, to: key, delivery: .exactlyOnce(options))
            _ = try listener.line("unknown 1")
            listener.endInput()
            let outcome = try listener.wait()
            #expect(outcome.status == 76)
            #expect(
                outcome.errors.hasSuffix("blesec: 1 line may not have arrived\n"),
                "\(outcome.errors)")
            await second.abort()
        }

        @Test("a line whose fate is still open when a signal ends the chat is reported as unknown")
        func unknownAfterSignal() throws {
            // Nobody listens.
            let dialer = try chat("dialer", [])
            dialer.send(Array("hello\n".utf8))
            _ = try dialer.line("sent 1")
            dialer.signal(SIGINT)
            let outcome = try dialer.wait()
            #expect(outcome.status == 130)
            #expect(
                outcome.errors.hasSuffix("unknown 1\nblesec: interrupted\n"),
                "\(outcome.errors)")
        }

        @Test(
            "if standard output is full at the end of the input, a chat waits and then exits with 76; a signal ends the wait",
            arguments: [nil, SIGINT] as [Int32?])
        func fullOutput(_ signal: Int32?) throws {
            let (path, descriptor) = try pair.fullFIFO()
            defer { close(descriptor) }
            let (listener, dialer) = try endInput(withOutput: path)
            if let signal { dialer.signal(signal) }
            let outcome = try dialer.wait(whileServing: [listener])
            #expect(outcome.status == (signal == nil ? 76 : 130), "\(outcome.errors)")
            let reason =
                signal == nil
                ? "a line from the peer was not written: standard output takes no more"
                : "interrupted"
            #expect(outcome.errors.hasSuffix("blesec: \(reason)\n"), "\(outcome.errors)")
        }

        @Test(
            "if the reader of full standard output ends after the end of the input, a chat reports this"
        )
        func lostOutput() throws {
            let (path, descriptor) = try pair.fullFIFO()
            let (listener, dialer) = try {
                // The descriptor is the FIFO's only reader.
                defer { close(descriptor) }
                return try endInput(withOutput: path)
            }()
            let outcome = try dialer.wait(whileServing: [listener])
            #expect(outcome.status == 74, "\(outcome.errors)")
            #expect(
                outcome.errors.contains("blesec: standard output was closed by its reader"),
                "\(outcome.errors)")
        }

        /// Starts a listener, and a dialer whose standard output is the full FIFO at `path`. Each
        /// of them sends a line; the dialer cannot write the listener's line. Then ends the dialer's
        /// input.
        private func endInput(
            withOutput path: String
        ) throws -> (listener: Subprocess, dialer: Subprocess) {
            let listener = try listen()
            let dialer = try chat("dialer", [], output: path)
            _ = try dialer.line("channel ready: ", whileServing: [listener])
            listener.send(Array("question\n".utf8))
            _ = try listener.line("sent 1", whileServing: [dialer])
            dialer.send(Array("answer\n".utf8))
            // The question has arrived before the acknowledgement of the answer.
            _ = try dialer.line("delivered 1", whileServing: [listener])
            dialer.endInput()
            // `line` serves both tools, so it also closes the dialer's input.
            listener.send(Array("again\n".utf8))
            _ = try listener.line("sent 2", whileServing: [dialer])
            return (listener, dialer)
        }

        /// Starts a dialer with `--json` that writes its standard error to `path`.
        private func startDialer(errors path: String) throws -> Subprocess {
            try Subprocess(
                "sh",
                ["-c", #"exec "$@" 2>"$0""#, path, Tool.path] + words("dialer") + ["--json"],
                input: .keptOpen, within: 100)
        }

        /// A Python program that reads the JSON objects of a chat from the file that its first
        /// argument names. The other arguments are numbers of lines. If an object reports that one
        /// of these lines was delivered, the program prints `delivered` and the line's number. If
        /// an object reports how many objects were left out, it prints `left out` and this count.
        /// At the end of the file, it prints how many objects `sent` and `delivered` it has read.
        private static let reader = """
            import json, sys

            last = count = 0
            for line in open(sys.argv[1]):
                value = json.loads(line) if line.strip() else {}
                event = value.get("event")
                if event == "left-out":
                    print("left out", value["lines"], flush=True)
                if event in ("sent", "delivered"):
                    count += 1
                if event == "sent":
                    assert value["number"] > last, "the objects are not in order"
                    assert last or value["number"] == 1, "the first object was left out"
                    last = value["number"]
                if event == "delivered" and str(value["number"]) in sys.argv[2:]:
                    print("delivered", value["number"], flush=True)
            print("objects", count)
            """

        @Test(
            "while nobody reads standard error, a chat continues, and later says how many lines it left out"
        )
        func unreadErrors() throws {
            let (path, descriptor) = try pair.fullFIFO()
            let (listener, dialer, reader) = try {
                // Once this descriptor is closed, only the dialer can write to the FIFO. So the
                // FIFO ends when the dialer ends.
                defer { close(descriptor) }
                return try leaveOutObjects(path)
            }()
            dialer.endInput()
            #expect(try dialer.wait(whileServing: [listener, reader]).status == 0)
            let read = try reader.wait()
            #expect(read.status == 0, "\(read.errors)")
            // Each line has two objects.
            let numbers = read.text.matches(of: /(?:left out|objects) ([0-9]+)/)
                .compactMap { Int($0.1) }
            #expect(numbers.reduce(0, +) == 2 * (Self.fillingCount + 1), "\(read.text)")
        }

        /// A number of lines. The objects about these lines have more bytes than may wait for the
        /// reader of standard error.
        private static let fillingCount = 70_000

        /// Starts a listener, and a dialer whose standard error is the full FIFO at `path`. Once
        /// the dialer has left objects out, starts a reader of the FIFO, and has one more line
        /// delivered.
        private func leaveOutObjects(
            _ path: String
        ) throws -> (listener: Subprocess, dialer: Subprocess, reader: Subprocess) {
            let listener = try listen(within: 100)
            let count = Self.fillingCount
            let dialer = try startDialer(errors: path)
            dialer.send(Array(String(repeating: "x\n", count: count).utf8))
            _ = try listener.output(2 * count, whileServing: [dialer])
            let reader = try Subprocess(
                "/usr/bin/python3", ["-c", Self.reader, path, "\(count + 1)"], within: 100)
            try reader.output(containing: "left out ")
            dialer.send(Array("last\n".utf8))
            _ = try listener.output(2 * count + 5, whileServing: [dialer, reader])
            try reader.output(containing: "delivered \(count + 1)\n")
            return (listener, dialer, reader)
        }

        @Test(
            "at its end, a chat waits for a slow reader of standard error, and the reader loses nothing"
        )
        func slowErrors() throws {
            let (path, descriptor) = try pair.fullFIFO()
            let listener = try listen()
            let count = 2_000
            let dialer = try startDialer(errors: path)
            dialer.send(Array(String(repeating: "x\n", count: count).utf8))
            _ = try listener.output(2 * count, whileServing: [dialer])
            // The reader takes a page at a time, and needs more than two seconds for all of them.
            let slowly = """
                import os, sys, time
                fifo = os.open(sys.argv[1], os.O_RDONLY)
                print("open", flush=True)
                while part := os.read(fifo, 4096):
                    os.write(1, part)
                    time.sleep(0.05)
                """
            let reader = try Subprocess("/usr/bin/python3", ["-c", slowly, path], within: 40)
            try reader.output(containing: "open")
            // From now on, only the dialer can write to the FIFO. So the FIFO ends when the dialer
            // ends.
            close(descriptor)
            dialer.endInput()
            #expect(try dialer.wait(whileServing: [listener, reader]).status == 0)
            let text = try reader.wait().text
            #expect(text.contains(#"{"event": "delivered", "number": \#(count)}"# + "\n"))
            let reports = text.split(separator: "\n").count(where: {
                $0.hasPrefix(#"{"event": "sent""#) || $0.hasPrefix(#"{"event": "delivered""#)
            })
            #expect(reports == 2 * count)
            #expect(!text.contains(#""left-out""#))
        }

        @Test("the longest line is sent whole, also with a carriage return before its line feed")
        func longestLine() throws {
            let listener = try listen()
            let line = String(repeating: "x", count: 16_384)
            let dialer = try chat("dialer", [], input: .bytes(Array((line + "\r\ny\r\n").utf8)))
            let shown = line + "\ny\n"
            #expect(
                try listener.output(shown.utf8.count, whileServing: [dialer]) == Array(shown.utf8))
            listener.endInput()
            #expect(try Subprocess.wait([listener, dialer]).map(\.status) == [0, 0])
        }

        @Test("a long line is sent in pieces that cut no character")
        func longLine() throws {
            let listener = try listen()
            // The last letter of `line` has two bytes, and only the first of these would fit.
            let line = String(repeating: "x", count: 16_383) + "\u{E9}"
            let dialer = try chat("dialer", [], input: .bytes(Array((line + "y\n").utf8)))
            let shown = String(repeating: "x", count: 16_383) + "\n\u{E9}y\n"
            #expect(
                try listener.output(shown.utf8.count, whileServing: [dialer]) == Array(shown.utf8))
            listener.endInput()
            #expect(try Subprocess.wait([listener, dialer]).map(\.status) == [0, 0])
        }

        @Test(
            "on a terminal, a chat is coloured, but not with NO_COLOR, or if TERM is `dumb` or missing",
            arguments: [
                ("TERM=xterm", true), ("TERM=xterm NO_COLOR=1", false), ("TERM=dumb", false),
                ("TERM=", false), ("", false),
            ])
        func colours(_ variables: String, _ isColoured: Bool) throws {
            let listener = try listen()
            let command = """
                \(variables) '\(Tool.path)' chat '\(pair.endpoint())' --peer \(pair.listenerKey) \
                --identity '\(pair.folder.file("dialer"))'
                """
            let dialer = try Subprocess(
                "script", ["-qec", command, "/dev/null"], input: .keptOpen, within: 40)
            try dialer.output(containing: "channel ready: ")
            listener.send(Array("hello\n".utf8))
            _ = try listener.line("delivered 1", whileServing: [dialer])
            dialer.send(Array("typed\n".utf8))
            try dialer.output(containing: "delivered: typed")
            // Control-D ends the input.
            dialer.send([4])
            let outcome = try dialer.wait(whileServing: [listener])
            #expect(outcome.status == 0, "\(outcome.text)")
            #expect(outcome.text.contains("\u{1B}") == isColoured, "\(outcome.text)")
            let mark = isColoured ? "\u{1B}[1;36m<\u{1B}[0m" : "<"
            #expect(outcome.text.contains("\(mark) hello\r\n"), "\(outcome.text)")
            listener.endInput()
            #expect(try listener.wait().status == 0)
        }

        @Test("a line of 40,000 bytes is sent in pieces, and --anyone admits only the first peer")
        func firstComer() throws {
            let listener = try Tool.start(
                ["chat", pair.endpoint(), "--listen", "--anyone"], input: .keptOpen, within: 40)
            _ = try listener.line("listening on ")
            let first = try Tool.start(
                ["chat", pair.endpoint(), "--anyone"],
                input: .bytes([UInt8](repeating: 120, count: 40_000)), within: 40)
            // Each of the three pieces is shown as a line, with a line feed.
            let count = 40_000 + 3
            let shown = try listener.output(count, whileServing: [first])
            #expect(shown.split(separator: 10).map(\.count) == [16_384, 16_384, 7_232])
            #expect(try first.wait(whileServing: [listener]).status == 0)
            let second = try Tool.start(
                ["connect", pair.endpoint(), "--anyone", "--persist", "--timeout", "5"], within: 40)
            _ = try second.line(
                "no channel: the peer refuses this identity", whileServing: [listener])
            _ = try listener.line("blesec: no channel with ")
            second.signal(SIGTERM)
            _ = try second.wait(whileServing: [listener])
            listener.endInput()
            #expect(try listener.wait().status == 0)
        }

        @Test(
            "the idle deadline detects a stopped peer, and the peer gets later lines when it runs again"
        )
        func stopped() throws {
            let listener = try listen(["--idle", "2", "--json"])
            let dialer = try chat("dialer", [])
            _ = try dialer.line("channel ready: ", whileServing: [listener])
            _ = try listener.line(#"{"event": "state", "state": "connected""#)
            dialer.suspend()
            listener.send(Array("late\n".utf8))
            _ = try listener.line(
                #"{"event": "state", "state": "backing-off", "code": "timed-out""#)
            dialer.signal(SIGCONT)
            listener.send(Array("again\n".utf8))
            for number in 1...2 {
                _ = try listener.line(
                    #"{"event": "delivered", "number": \#(number)}"#, whileServing: [dialer])
            }
            #expect(try dialer.output(11, whileServing: [listener]) == Array("late\nagain\n".utf8))
            for tool in [dialer, listener] { tool.endInput() }
            #expect(try Subprocess.wait([listener, dialer]).map(\.status) == [0, 0])
        }

        @Test(
            "a remembered peer is found by name at its last address, and another peer is refused")
        func remembered() throws {
            let state = ["--state", pair.folder.file("state")]
            let remember = ["--remember", "lamp", "--timeout", "20"] + state
            let listener = try pair.listen(["--keep"])
            let first = try pair.connect(remember, trust: ["--anyone"])
                .wait(whileServing: [listener])
            #expect(first.status == 0, "\(first.errors)")
            #expect(pair.folder.mode("state") == 0o700)
            let names = try #require(pair.folder.read("state/known_peers"))
            #expect(names == Array("lamp \(pair.listenerKey)\n".utf8))
            #expect(pair.folder.mode("state/known_peers") == 0o600)
            #expect(pair.folder.mode("state/last_addresses") == 0o600)
            let again = try Tool.start(
                ["connect", "peer:lamp", "--identity", pair.folder.file("dialer")] + state
            ).wait(whileServing: [listener])
            #expect(again.status == 0, "\(again.errors)")
            #expect(again.errors.hasPrefix("dialing \(pair.endpoint()), where the peer was last\n"))
            listener.signal(SIGTERM)
            _ = try listener.wait()
            // Another peer listens at that address now.
            let otherListener = try Tool.start(
                ["listen", pair.endpoint(), "--anyone", "--timeout", "20"])
            _ = try otherListener.line("listening on ")
            let refused = try pair.connect(remember, trust: ["--anyone"])
                .wait(whileServing: [otherListener])
            Tool.expect(refused, status: 77, "the key of `lamp` is another one")
            let unknown = try Tool.run(arguments: ["connect", "peer:nobody"] + state)
            Tool.expect(unknown, status: 68, "nobody called `nobody` is remembered")
            otherListener.signal(SIGTERM)
            _ = try otherListener.wait()
        }

        @Test("stored peers are refused if a file is missing or malformed, or others can change it")
        func hostileState() throws {
            let folder = pair.folder.file("state")
            let words = ["connect", "peer:lamp", "--state", folder]
            Tool.expect(try Tool.run(arguments: words), status: 66, "no such file")
            _ = try Tool.run(
                arguments: [
                    "connect", "unix:/nowhere", "--anyone", "--remember", "x", "--state", folder,
                ])
            pair.folder.write("state/known_peers", "lamp SHA256:short\n")
            Tool.expect(
                try Tool.run(arguments: words), status: 65, "known_peers, line 1: a fingerprint")
            pair.folder.write("state/known_peers", "lamp \(pair.listenerKey)\n")
            pair.folder.write(
                "state/last_addresses", "\(pair.listenerKey) l2cap:nowhere%20public\n")
            Tool.expect(try Tool.run(arguments: words), status: 65, "is no address")
            pair.folder.write("state/known_peers", "lamp \(pair.listenerKey)\n", mode: 0o666)
            Tool.expect(try Tool.run(arguments: words), status: 65, "can be changed by others")
        }

        @Test("an unusable default state folder stops only commands that look up a peer by name")
        func unusableDefault() throws {
            try #require(unsafe mkdir(pair.folder.file("blesec"), 0o755) == 0)
            try #require(unsafe chmod(pair.folder.file("blesec"), 0o755) == 0)
            let home = ["XDG_STATE_HOME": pair.folder.path]
            let named = try Subprocess.run(Tool.path, ["connect", "peer:lamp"], environment: home)
            Tool.expect(named, status: 65, "is open to others (mode 755)")
            let listener = try pair.listen()
            let identity = pair.folder.file("dialer")
            let dialer = try Subprocess(
                Tool.path,
                [
                    "connect", pair.endpoint(), "--identity", identity, "--peer",
                    pair.listenerKey,
                ], environment: home)
            let dialed = try dialer.wait(whileServing: [listener])
            #expect(dialed.status == 0, "\(dialed.errors)")
            let accepted = try listener.wait()
            #expect(accepted.status == 0, "\(accepted.errors)")
        }

        @Test("connect --persist sends the rest of its input once its killed peer is restarted")
        func persists() throws {
            let dialer = try pair.connect(["--persist", "--json"], input: .keptOpen)
            _ = try dialer.line(#"{"event": "state", "state": "backing-off""#)
            let first = try pair.listen(["--persist"], input: .keptOpen)
            dialer.send(Array("one ".utf8))
            #expect(try first.output(4, whileServing: [dialer]) == Array("one ".utf8))
            Self.waitUntilLinkIsGood()
            first.signal(SIGKILL)
            _ = try first.wait(whileServing: [dialer])
            let lost = try dialer.line(#"{"event": "state", "state": "searching", "code": "trunc"#)
            #expect(lost.contains(#""failures": 0"#), "the link counted as good")
            dialer.send(Array("two".utf8))
            let second = try pair.listen(["--persist"], input: .bytes(Array("answer".utf8)))
            #expect(try second.output(3, whileServing: [dialer]) == Array("two".utf8))
            dialer.endInput()
            let outcomes = try Subprocess.wait([second, dialer])
            #expect(outcomes.map(\.status) == [0, 0], "\(outcomes.map(\.errors))")
            #expect(outcomes[1].text == "answer")
        }

        @Test("when a store's transfer is complete, more standard input is refused with 65")
        func completeStore() throws {
            func transfer(_ text: String) throws -> [Subprocess.Outcome] {
                let persist = ["--persist", "--store"]
                let listener = try pair.listen(
                    persist + [pair.folder.file("listener-store")], within: 40)
                let dialer = try pair.connect(
                    persist + [pair.folder.file("dialer-store")],
                    input: .file(pair.folder.write("input", text)), within: 40)
                return try Subprocess.wait([listener, dialer])
            }
            let first = try transfer("monday")
            #expect(first.map(\.status) == [0, 0], "\(first.map(\.errors))")
            #expect(first[0].text == "monday")
            #expect(try transfer("").map(\.status) == [0, 0])
            let late = try transfer("tuesday")
            #expect(late.map(\.status) == [0, 65], "\(late.map(\.errors))")
            // Without the other side, each side succeeds when its time limit ends.
            let limited = ["--persist", "--timeout", "1", "--store"]
            let alone = [
                try pair.listen(limited + [pair.folder.file("listener-store")]).wait(),
                try pair.connect(limited + [pair.folder.file("dialer-store")]).wait(),
            ]
            #expect(alone.map(\.status) == [0, 0], "\(alone.map(\.errors))")
            let waiting = try pair.listen(
                ["--persist", "--store", pair.folder.file("listener-store")])
            _ = try waiting.line("the store says that everything was queued for sending before")
            waiting.signal(SIGTERM)
            #expect(try waiting.wait().status == 143)
            #expect(
                late[1].errors.hasSuffix(
                    "blesec: the store says that everything was sent; standard input was not sent: "
                        + "use another directory\n"))
        }

        @Test("a store that has the peer's end, but whose own end is unconfirmed, is not complete")
        func halfCompleteStore() throws {
            let store = ["--persist", "--store", pair.folder.file("store")]
            let listener = try pair.listen(["--persist"], input: .bytes(Array("all".utf8)))
            let dialer = try pair.connect(store, input: .keptOpen)
            #expect(try dialer.output(3, whileServing: [listener]) == Array("all".utf8))
            // The listener's end follows its bytes at once.
            usleep(300_000)
            dialer.signal(SIGKILL)
            listener.signal(SIGKILL)
            _ = try Subprocess.wait([dialer, listener])
            let alone = try pair.connect(store + ["--timeout", "1"]).wait()
            #expect(alone.status == 75, "\(alone.errors)")
        }

        @Test(
            "if all input is queued in a store and nothing is sent, the next process says that all was queued"
        )
        func queuedStore() throws {
            // The first process queues the bytes, and the second process the end. So only the third
            // process finds everything queued.
            for (text, isFinished) in [("hello", false), ("", false), ("", true)] {
                let outcome = try pair.connect(
                    ["--persist", "--store", pair.folder.file("store"), "--timeout", "2"],
                    input: .bytes(Array(text.utf8))
                ).wait()
                #expect(outcome.status == 75, "\(outcome.errors)")
                let hasLine = outcome.errors.hasPrefix(
                    "the store says that everything was queued for sending before\n")
                #expect(hasLine == isFinished, "\(outcome.errors)")
            }
        }

        @Test("--input and --output refuse a FIFO at once", arguments: ["--input", "--output"])
        func fifo(_ option: String) throws {
            let fifo = pair.folder.file("fifo")
            try #require(unsafe mkfifo(fifo, 0o600) == 0)
            Tool.expect(
                try pair.connect(["--persist", option, fifo]).wait(), status: 64,
                "\(fifo) is no regular file")
        }

        @Test("options that do not go with the other arguments, and a long name, are refused")
        func usage() throws {
            let socket = pair.endpoint()
            for (words, reason) in [
                (["chat", "--listen", "--anyone"], "--listen goes with an ENDPOINT"),
                (
                    ["chat", socket, "--rescan", "1", "--anyone"],
                    "--rescan cannot be used with an ENDPOINT"
                ),
                (["connect", socket, "--anyone", "--idle", "3"], "--idle goes with --persist"),
                (
                    ["connect", socket, "--anyone", "--persist", "--direct"],
                    "--direct does not have"
                ),
                (
                    [
                        "connect", socket, "--anyone", "--remember",
                        String(repeating: "n", count: 256),
                    ],
                    "a name to remember has 1 to 255 bytes"
                ),
            ] { Tool.expect(try Tool.run(arguments: words), status: 64, reason) }
        }
    }
}
