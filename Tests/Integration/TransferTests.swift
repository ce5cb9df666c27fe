import Glibc
import TestSupport
import Testing

extension Integration {
    /// Data transfers with `blesec listen` and `blesec connect`, and how they end.
    @Suite struct TransferTests {
        @Test(
            "a file is transferred completely each way, and both sides report the peer's identity",
            arguments: ["unix", "unix-seqpacket"])
        func bothWays(_ kind: String) throws {
            let pair = try ToolPair()
            let folder = pair.folder
            let dialerData = ToolPair.pseudoRandomBytes(3 << 20, seed: 1)
            let listenerData = ToolPair.pseudoRandomBytes((2 << 20) + 1, seed: 2)
            folder.write("dialer-data", dialerData)
            folder.write("listener-data", listenerData)
            let listener = try pair.listen(
                kind: kind, input: .file(folder.file("listener-data")),
                output: folder.file("from-dialer"))
            let dialer = try pair.connect(
                kind: kind, input: .file(folder.file("dialer-data")),
                output: folder.file("from-listener"))
            let outcomes = try Subprocess.wait([listener, dialer])
            #expect(outcomes.map(\.status) == [0, 0])
            #expect(
                outcomes[0].errors
                    == "listening on \(pair.endpoint(kind))\n\(pair.listenerReadyLine)\n")
            #expect(outcomes[1].errors == "\(pair.dialerReadyLine)\n")
            #expect(folder.read("from-dialer") == dialerData)
            #expect(folder.read("from-listener") == listenerData)
            #expect(folder.mode("socket") == nil, "the socket's file is still there")
        }

        @Test("a transfer succeeds where the system has no epoll_pwait2")
        func oldKernel() throws {
            let pair = try ToolPair()
            let script = #filePath.replacing(
                "TransferTests.swift", with: "Peers/without_syscall.py")
            // The call's number on x86-64 and on AArch64.
            let epollPwait2 = "441"
            func start(_ arguments: [String], _ input: Subprocess.Input) throws -> Subprocess {
                try Subprocess(
                    "python3", [script, epollPwait2, Tool.path] + arguments, input: input,
                    within: 20)
            }
            let listener = try start(
                [
                    "listen", pair.endpoint(), "--identity", pair.folder.file("listener"),
                    "--peer", pair.dialerKey,
                ], .bytes([]))
            _ = try listener.line("listening on ")
            let dialer = try start(
                [
                    "connect", pair.endpoint(), "--identity", pair.folder.file("dialer"),
                    "--peer", pair.listenerKey,
                ], .bytes(Array("question".utf8)))
            let outcomes = try Subprocess.wait([listener, dialer])
            #expect(outcomes.map(\.status) == [0, 0], "\(outcomes.map(\.errors))")
            #expect(outcomes[0].text == "question")
        }

        @Test("a transfer without data succeeds")
        func empty() throws {
            let pair = try ToolPair()
            let listener = try pair.listen()
            let outcomes = try Subprocess.wait([listener, try pair.connect()])
            #expect(outcomes.map(\.status) == [0, 0])
            #expect(outcomes.map(\.output) == [[], []])
        }

        @Test("after one side has ended its data, the other side can still send")
        func halfClose() throws {
            let pair = try ToolPair()
            let listener = try pair.listen(input: .keptOpen)
            let dialer = try pair.connect(input: .bytes(Array("question".utf8)))
            #expect(try listener.output(8, whileServing: [dialer]) == Array("question".utf8))
            _ = try dialer.line(pair.dialerReadyLine, whileServing: [listener])
            listener.send(Array("answer".utf8))
            #expect(try dialer.output(6, whileServing: [listener]) == Array("answer".utf8))
            listener.send(Array(", and more".utf8))
            listener.endInput()
            let outcomes = try Subprocess.wait([listener, dialer])
            #expect(outcomes.map(\.status) == [0, 0])
            #expect(outcomes[1].text == "answer, and more")
        }

        @Test("standard output is closed when the peer's data ends, even if standard input is open")
        func outputEndsFirst() throws {
            let pair = try ToolPair()
            let listener = try pair.listen(input: .keptOpen)
            // `wc` prints when its input ends, and only then does the test end the dialer's input.
            let words = [
                Tool.path, "connect", pair.endpoint(), "--identity", pair.folder.file("dialer"),
                "--peer", pair.listenerKey,
            ]
            let dialer = try Subprocess(
                "bash", ["-c", #"set -o pipefail; "$@" | wc -c"#, "bash"] + words, input: .keptOpen)
            _ = try listener.line(pair.listenerReadyLine, whileServing: [dialer])
            listener.send([1, 2, 3])
            listener.endInput()
            #expect(try dialer.output(2, whileServing: [listener]) == Array("3\n".utf8))
            dialer.endInput()
            #expect(try dialer.wait(whileServing: [listener]).status == 0)
            #expect(try listener.wait().status == 0)
        }

        @Test(
            "a reader of standard output that takes nothing for more than ten seconds loses nothing"
        )
        func slowReader() throws {
            let pair = try ToolPair()
            // More than a pipe takes, and less than the channel reads ahead.
            let listener = try pair.listen(
                input: .bytes([UInt8](repeating: 7, count: 200_000)))
            let words = [
                Tool.path, "connect", pair.endpoint(), "--identity", pair.folder.file("dialer"),
                "--peer", pair.listenerKey,
            ]
            let dialer = try Subprocess(
                "bash", ["-c", #"set -o pipefail; "$@" | (sleep 12; wc -c)"#, "bash"] + words)
            let outcomes = try Subprocess.wait([listener, dialer])
            #expect(outcomes.map(\.status) == [0, 0], "\(outcomes.map(\.errors))")
            #expect(outcomes[1].text == "200000\n")
        }

        @Test("a listener with --keep serves peers in turn, and reports how each channel ended")
        func keep() throws {
            let pair = try ToolPair()
            let listener = try pair.listen(["--keep"], input: .bytes(Array("hello".utf8)))
            let first = try pair.connect(input: .bytes(Array("one ".utf8)))
                .wait(whileServing: [listener])
            #expect(first.status == 0)
            #expect(first.text == "hello")
            let second = try pair.connect(input: .bytes(Array("two".utf8)))
                .wait(whileServing: [listener])
            #expect(second.status == 0)
            // The first peer has received the listener's whole standard input.
            #expect(second.text == "")
            let third = try pair.connect(input: .keptOpen)
            _ = try third.line(pair.dialerReadyLine, whileServing: [listener])
            third.signal(9)
            _ = try third.wait(whileServing: [listener])
            _ = try listener.line("blesec: ", whileServing: [])
            listener.signal(15)
            let outcome = try listener.wait()
            #expect(outcome.status == 143)
            #expect(outcome.text == "one two")
            let lines = outcome.errors.split(separator: "\n")
            #expect(lines.count(where: { $0 == "channel complete with \(pair.dialerKey)" }) == 2)
            #expect(lines.contains("blesec: the link ended before the peer said that it was done"))
            #expect(lines.last == "blesec: terminated")
            #expect(pair.folder.mode("socket") == nil)
        }

        @Test("a dialer without --identity connects with a temporary key")
        func ephemeral() throws {
            let pair = try ToolPair()
            let listener = try pair.listen(trust: ["--anyone"])
            let dialer = try Tool.start(["connect", pair.endpoint(), "--peer", pair.listenerKey])
            let outcomes = try Subprocess.wait([listener, dialer])
            #expect(outcomes.map(\.status) == [0, 0])
            #expect(outcomes[0].errors.contains(pair.dialerKey) == false)
            #expect(outcomes[0].errors.contains(" with SHA256:"))
        }

        @Test(
            "the first offer that the listener accepts is used; if it accepts none, both sides report that"
        )
        func protocols() throws {
            let pair = try ToolPair()
            let aes = "Noise_XX_25519_AESGCM_SHA256"
            let chacha = "Noise_XX_25519_ChaChaPoly_SHA256"
            let listener = try pair.listen(["--protocol", chacha])
            let dialer = try pair.connect(["--protocol", aes, "--protocol", chacha])
            let outcomes = try Subprocess.wait([listener, dialer])
            #expect(outcomes.map(\.status) == [0, 0])
            #expect(outcomes[1].errors == "\(pair.dialerReadyLine)\n")

            let otherListener = try pair.listen(["--protocol", chacha, "--timeout", "20"])
            let refused = try pair.connect(["--protocol", aes]).wait(whileServing: [otherListener])
            Tool.expect(refused, status: 69, "the peer accepts none of \(aes)")
            _ = try otherListener.line("blesec: no channel with ")
        }

        @Test(
            "a listener with --persist refuses a dialer without it, and the dialer's error has the remedy"
        )
        func oneSidedPersistence() throws {
            let pair = try ToolPair()
            let listener = try pair.listen(["--persist"])
            let refused = try pair.connect().wait(whileServing: [listener])
            Tool.expect(
                refused, status: 69,
                "run the same command on both sides; `listen` and `connect` both need --persist")
            listener.signal(SIGKILL)
            _ = try listener.wait()
        }

        @Test("IK works with a pinned public key; with a pinned fingerprint it is a usage error")
        func knownKey() throws {
            let pair = try ToolPair()
            let name = "Noise_IK_25519_ChaChaPoly_SHA256"
            let shown = try Tool.run("pubkey", pair.folder.file("listener"))
            let line = try #require(shown.text.split(separator: "\n").first)
            let key = String(line.dropFirst("public-key: ".count))
            let listener = try pair.listen(["--protocol", name])
            let dialer = try pair.connect(["--protocol", name], trust: ["--peer", key])
            let outcomes = try Subprocess.wait([listener, dialer])
            #expect(outcomes.map(\.status) == [0, 0])
            let refused = try pair.connect(["--protocol", name]).wait()
            Tool.expect(refused, status: 64, name)
        }

        /// Runs a dialer on a terminal. The dialer's input is a pipe that ends after more than two
        /// seconds.
        private func pipeOnTerminal(
            _ options: String, terminal: String = "xterm"
        ) throws -> Subprocess.Outcome {
            let pair = try ToolPair()
            let listener = try pair.listen(options.contains("--persist") ? ["--persist"] : [])
            let command = """
                (head -c 100000 /dev/zero; sleep 2.3) | '\(Tool.path)' connect \(pair.endpoint()) \
                --identity '\(pair.folder.file("dialer"))' --peer \(pair.listenerKey) \(options)
                """
            let outcome = try Subprocess(
                "script", ["-qec", command, "/dev/null"], environment: ["TERM": terminal]
            ).wait(whileServing: [listener])
            #expect(try listener.wait().status == 0)
            return outcome
        }

        @Test(
            "a dialer with a pipe as input shows its progress on a terminal, in one line that it removes at the end",
            arguments: ["> /dev/null", "--persist > /dev/null"])
        func progress(_ options: String) throws {
            let outcome = try pipeOnTerminal(options)
            #expect(outcome.status == 0, "\(outcome.text)")
            #expect(outcome.text.contains("\r\u{1B}[Ksent 97.7 KiB ("), "\(outcome.text)")
            #expect(outcome.text.contains("/s), received 0 B (0 B/s)"), "\(outcome.text)")
            #expect(outcome.text.hasSuffix("\r\u{1B}[K"), "\(outcome.text)")
        }

        @Test(
            "there is no progress with --json, if standard output is the terminal, or if TERM is `dumb`",
            arguments: [
                ("--json > /dev/null", "xterm"), ("", "xterm"), ("> /dev/null", "dumb"),
            ])
        func noProgress(_ options: String, _ terminal: String) throws {
            let outcome = try pipeOnTerminal(options, terminal: terminal)
            #expect(outcome.status == 0, "\(outcome.text)")
            #expect(!outcome.text.contains("sent "), "\(outcome.text)")
            #expect(!outcome.text.contains("\u{1B}"), "\(outcome.text)")
        }

        @Test(
            "on a terminal, send redraws its progress, but writes only lines if TERM is `dumb` or not set",
            arguments: [("TERM=xterm", true), ("TERM=dumb", false), ("", false)])
        func filesOnTerminal(_ variable: String, _ isRedrawn: Bool) throws {
            let pair = try ToolPair()
            try #require(unsafe mkdir(pair.folder.file("in"), 0o700) == 0)
            let receiver = try Tool.start([
                "receive", pair.endpoint(), pair.folder.file("in"), "--listen", "--accept",
                "always", "--identity", pair.folder.file("listener"), "--peer", pair.dialerKey,
            ])
            _ = try receiver.line("listening on ")
            let command = """
                \(variable) '\(Tool.path)' send \(pair.endpoint()) \(pair.folder.write("file", "x")) \
                --identity '\(pair.folder.file("dialer"))' --peer \(pair.listenerKey)
                """
            let outcome = try Subprocess("script", ["-qec", command, "/dev/null"])
                .wait(whileServing: [receiver])
            #expect(outcome.status == 0, "\(outcome.text)")
            #expect(outcome.text.contains("sent file: "), "\(outcome.text)")
            #expect(outcome.text.contains("\u{1B}") == isRedrawn, "\(outcome.text)")
            #expect(try receiver.wait().status == 0)
        }

        @Test(
            "a dialer in the background receives, and reads its terminal once it is in the foreground"
        )
        func background() throws {
            let pair = try ToolPair()
            // During the pause, a faulty dialer that does not wait for the foreground would end.
            let shell = pair.folder.write(
                "shell",
                """
                "$@" &
                read -r line
                sleep 0.5
                fg

                """)
            let listener = try pair.listen(
                input: .bytes(Array("hello\n".utf8)), output: pair.folder.file("received"),
                within: 40)
            let words = [
                "bash", "-m", shell, Tool.path, "connect", pair.endpoint(), "--identity",
                pair.folder.file("dialer"), "--peer", pair.listenerKey,
            ]
            let dialer = try Subprocess(
                "script", ["-qec", words.map { "'\($0)'" }.joined(separator: " "), "/dev/null"],
                input: .keptOpen, within: 40)
            let seen = try dialer.output(containing: "hello")
            dialer.send(Array("\n".utf8))
            try dialer.output(containing: "\"$@\"", after: seen)
            let endOfInput: UInt8 = 4
            dialer.send(Array("typed\n".utf8) + [endOfInput])
            let outcomes = try Subprocess.wait([listener, dialer])
            #expect(outcomes.map(\.status) == [0, 0], "\(outcomes.map(\.errors))")
            #expect(pair.folder.read("received") == Array("typed\n".utf8))
        }

        @Test("a listener opens its identity with a passphrase, and uses the identity's hash")
        func otherHash() throws {
            let pair = try ToolPair()
            let passphrase = pair.folder.write("passphrase", "correct horse\n")
            let path = pair.folder.file("sha512")
            let made = try Tool.run(
                "keygen", path, "--hash", "SHA512", "--passphrase-file", passphrase)
            try #require(made.status == 0)
            let words = ["--identity", path, "--passphrase-file", passphrase, "--anyone"]
            let listener = try Tool.start(["listen", pair.endpoint()] + words)
            _ = try listener.line("listening on ")
            let dialer = try Tool.start(
                [
                    "connect", pair.endpoint(), "--anyone", "--protocol",
                    "Noise_XX_25519_ChaChaPoly_SHA512",
                ])
            let outcomes = try Subprocess.wait([listener, dialer])
            #expect(outcomes.map(\.status) == [0, 0])
            #expect(outcomes[1].errors.contains("Noise_XX_25519_ChaChaPoly_SHA512 with SHA256:"))
        }

        @Test(
            "two tools in direct mode exchange data, and one may answer after the other has ended its data"
        )
        func direct() throws {
            let pair = try ToolPair()
            let listener = try pair.listen(["--direct"], input: .keptOpen)
            let dialer = try pair.connect(["--direct"], input: .bytes(Array("question".utf8)))
            #expect(try listener.output(8, whileServing: [dialer]) == Array("question".utf8))
            listener.send(Array("answer".utf8))
            listener.endInput()
            let outcomes = try Subprocess.wait([listener, dialer])
            #expect(outcomes.map(\.status) == [0, 0])
            #expect(outcomes[1].text == "answer")
        }

        @Test("with --json each event is one line with one object")
        func json() throws {
            let pair = try ToolPair()
            let listener = try Tool.start(
                [
                    "listen", pair.endpoint(), "--identity", pair.folder.file("listener"), "--peer",
                    pair.dialerKey, "--json",
                ])
            _ = try listener.line(
                "{\"event\": \"listening\", \"endpoint\": \"\(pair.endpoint())\"}")
            let outcomes = try Subprocess.wait([listener, try pair.connect(["--json"])])
            #expect(outcomes.map(\.status) == [0, 0])
            #expect(
                outcomes[1].errors == """
                    {"event": "ready", "protocol": "Noise_XX_25519_ChaChaPoly_SHA256", \
                    "peer": "\(pair.listenerKey)"}
                    {"event": "complete", "peer": "\(pair.listenerKey)"}

                    """)
        }
    }
}
