import Glibc
import TestSupport
import Testing

extension Integration {
    /// The question of `blesec receive` on a terminal, for the offers of `blesec send`.
    @Suite struct FileQuestionTests {
        private let pair: ToolPair

        init() throws {
            pair = try ToolPair()
            try #require(unsafe mkdir(pair.folder.file("out"), 0o700) == 0)
            for name in ["first", "second", "third"] { pair.folder.write(name, name) }
        }

        /// The end of each question.
        private static let questionEnd = "? [y/n/all] "
        /// The byte that Ctrl-C sends.
        private static let controlC: UInt8 = 3

        /// Starts `blesec receive` on a terminal, and waits until it listens. `shell`, unless it is
        /// empty, is a command that runs the words after it.
        private func startReceiving(
            _ options: [String] = [], trust: [String]? = nil, shell: [String] = []
        ) throws -> Subprocess {
            let receiver = try start(options, trust: trust, shell: shell)
            try receiver.output(containing: "listening on ")
            return receiver
        }

        private func start(
            _ options: [String] = [], trust: [String]? = nil, shell: [String]
        ) throws -> Subprocess {
            let words =
                shell + [
                    Tool.path, "receive", pair.endpoint(), pair.folder.file("out"), "--listen",
                    "--identity", pair.folder.file("listener"),
                ] + (trust ?? ["--peer", pair.dialerKey]) + options
            let command = words.map { "'\($0)'" }.joined(separator: " ")
            return try Subprocess(
                "script", ["-qec", command, "/dev/null"], input: .keptOpen,
                environment: ["TERM": "xterm"], within: 40)
        }

        private func startSending(
            _ name: String, identity: String = "dialer"
        ) throws -> Subprocess {
            try Tool.start(
                [
                    "send", pair.endpoint(), pair.folder.file(name), "--identity",
                    pair.folder.file(identity), "--peer", pair.listenerKey,
                ], within: 40)
        }

        /// Ends a receiver by Ctrl-C.
        private func interrupt(_ receiver: Subprocess) throws {
            receiver.send([Self.controlC])
            #expect(try receiver.wait().status == 130)
        }

        @Test("the answer `all` accepts further files of the same peer, and of no other peer")
        func all() throws {
            try #require(try Tool.run("keygen", pair.folder.file("other")).status == 0)
            let receiver = try startReceiving(["--keep"], trust: ["--anyone"])
            let first = try startSending("first")
            var seen = try receiver.output(containing: Self.questionEnd)
            receiver.send(Array("all\n".utf8))
            #expect(try first.wait(whileServing: [receiver]).status == 0)
            seen = try receiver.output(containing: "received first: ", after: seen)
            let second = try startSending("second")
            #expect(try second.wait(whileServing: [receiver]).status == 0)
            let third = try startSending("third", identity: "other")
            seen = try receiver.output(containing: Self.questionEnd, after: seen)
            receiver.send(Array("n\n".utf8))
            #expect(try third.wait(whileServing: [receiver]).status == 69)
            #expect(pair.folder.read("out/second") != nil)
            #expect(pair.folder.read("out/third") == nil)
            try interrupt(receiver)
        }

        @Test("a question ends when its sender ends, and with --keep the next sender is served")
        func withdrawn() throws {
            let receiver = try startReceiving(["--keep"])
            let first = try startSending("first")
            var seen = try receiver.output(containing: Self.questionEnd)
            first.signal(SIGINT)
            seen = try receiver.output(containing: "first is no longer offered", after: seen)
            #expect(try first.wait(whileServing: [receiver]).status == 130)
            let second = try startSending("second")
            try receiver.output(containing: Self.questionEnd, after: seen)
            receiver.send(Array("y\n".utf8))
            #expect(try second.wait(whileServing: [receiver]).status == 0)
            #expect(pair.folder.read("out/second") != nil)
            try interrupt(receiver)
        }

        @Test(
            "if a sender is ended and started again, a file that was stored before is not stored twice",
            arguments: [SIGTERM, SIGKILL])
        func startedAgain(_ signal: Int32) throws {
            let receiver = try startReceiving(["--keep"])
            func send() throws -> Subprocess {
                try Tool.start(
                    [
                        "send", pair.endpoint(), pair.folder.file("first"),
                        pair.folder.file("second"), "--identity", pair.folder.file("dialer"),
                        "--peer", pair.listenerKey,
                    ], within: 40)
            }
            var seen = 0
            func answer(_ name: String) throws {
                seen = try receiver.output(containing: "Take \(name), ", after: seen)
                seen = try receiver.output(containing: Self.questionEnd, after: seen)
                receiver.send(Array("y\n".utf8))
            }
            let ended = try send()
            try answer("first")
            seen = try receiver.output(containing: "Take second, ", after: seen)
            seen = try receiver.output(containing: Self.questionEnd, after: seen)
            ended.signal(signal)
            _ = try ended.wait(whileServing: [receiver])
            let next = try send()
            try answer("first")
            try answer("second")
            let outcome = try next.wait(whileServing: [receiver])
            #expect(outcome.status == 0, "\(outcome.errors)")
            #expect(outcome.errors.contains("sent first: "), "\(outcome.errors)")
            // The receiver listens again only when it has ended the session.
            try receiver.output(containing: "listening on ", after: seen)
            let names = try Subprocess.run("ls", ["-A", pair.folder.file("out")]).text
            #expect(names == "first\nsecond\n")
            try interrupt(receiver)
        }

        @Test(
            "with --keep and --anyone, a name that is forgotten during a transfer admits nobody from then on"
        )
        func forgottenName() throws {
            try #require(try Tool.run("keygen", pair.folder.file("other")).status == 0)
            let state = ["--state", pair.folder.file("state")]
            let receiver = try startReceiving(
                ["--keep", "--remember", "lamp"] + state, trust: ["--anyone"])
            let first = try startSending("first")
            try receiver.output(containing: "channel ready: ")
            var seen = try receiver.output(containing: Self.questionEnd)
            let forgotten = try Tool.run(arguments: ["peers", "forget", "lamp", "--yes"] + state)
            #expect(forgotten.status == 0, "\(forgotten.errors)")
            receiver.send(Array("y\n".utf8))
            #expect(try first.wait(whileServing: [receiver]).status == 0)
            seen = try receiver.output(containing: "listening on ", after: seen)
            for (file, identity) in [("second", "dialer"), ("third", "other")] {
                let sender = try startSending(file, identity: identity)
                seen = try receiver.output(
                    containing: "`lamp` was the name of \(pair.dialerKey), and has been",
                    after: seen)
                sender.signal(SIGTERM)
                _ = try sender.wait(whileServing: [receiver])
                #expect(pair.folder.read("out/\(file)") == nil)
            }
            #expect(pair.folder.read("state/known_peers") == [])
            try interrupt(receiver)
        }

        @Test("with --keep, the options and the identity are read once, for all senders")
        func keepsIdentity() throws {
            let passphrase = pair.folder.write("passphrase", "horse\n")
            let made = try Tool.run(
                "keygen", pair.folder.file("encrypted"), "--passphrase-file", passphrase)
            try #require(made.status == 0)
            let shown = try Tool.run(
                "pubkey", pair.folder.file("encrypted"), "--passphrase-file", passphrase)
            let key = try #require(shown.text.firstMatch(of: /SHA256:\S+/)).output
            let receiver = try Tool.start(
                [
                    "receive", pair.endpoint(), pair.folder.file("out"), "--listen", "--keep",
                    "--accept", "always", "--peer", pair.dialerKey, "--identity",
                    pair.folder.file("encrypted"), "--passphrase-file", passphrase,
                ], within: 40)
            _ = try receiver.line("listening on ")
            pair.folder.write("passphrase", "another\n")
            for name in ["first", "second"] {
                let sender = try Tool.start(
                    [
                        "send", pair.endpoint(), pair.folder.file(name), "--identity",
                        pair.folder.file("dialer"), "--peer", String(key),
                    ], within: 40)
                let outcome = try sender.wait(whileServing: [receiver])
                #expect(outcome.status == 0, "\(outcome.errors)")
            }
            receiver.signal(SIGINT)
            let received = try receiver.wait()
            #expect(received.status == 130)
            // The receiver waits anew for each sender.
            let lines = received.errors.split(separator: "\n")
            #expect(
                lines.count(where: { $0.hasPrefix("listening on ") }) >= 2, "\(received.errors)")
        }

        @Test("an error of configuration ends the command in spite of --keep")
        func configurationError() throws {
            let outcome = try Tool.run(
                "receive", pair.endpoint(), pair.folder.file("out"), "--keep", "--anyone",
                "--accept", "always", "--protocol", "Noise_FOO_25519_ChaChaPoly_SHA256")
            Tool.expect(outcome, status: 64, "FOO")
        }

        @Test("Ctrl-C at a question ends the sender's transfer as cancelled")
        func interrupted() throws {
            let receiver = try startReceiving()
            let sender = try startSending("first")
            try receiver.output(containing: Self.questionEnd)
            try interrupt(receiver)
            _ = try sender.line("first: the peer has ended the transfer")
            sender.signal(SIGKILL)
        }

        @Test("input typed while a stopped terminal does not show the question is no answer")
        func stoppedTerminal() throws {
            let terminal = StoppedTerminal(pair.folder)
            let receiver = try start(shell: terminal.command)
            receiver.send([StoppedTerminal.controlS])
            let sender = try startSending("first")
            try terminal.waitForQuestion(whileServing: [receiver, sender])
            receiver.send(Array("n\n".utf8) + [StoppedTerminal.controlQ])
            try receiver.output(containing: Self.questionEnd)
            receiver.send(Array("y\n".utf8))
            #expect(try sender.wait(whileServing: [receiver]).status == 0)
            #expect(try receiver.wait().status == 0)
            #expect(pair.folder.read("out/first") != nil)
        }

        @Test("a receiver in the background takes an answer only once it is in the foreground")
        func background() throws {
            // Reads a line that is typed while the receiver asks in the background, and then puts
            // the receiver into the foreground; `fg` prints the job. During the pause, a faulty
            // receiver would take that line as its answer.
            let shell = pair.folder.write(
                "shell",
                """
                "$@" &
                until read -t 0; do sleep 0.1; done
                sleep 0.5
                read -r line
                fg

                """)
            let receiver = try startReceiving(shell: ["bash", "-m", shell])
            let sender = try startSending("first")
            let seen = try receiver.output(containing: Self.questionEnd)
            receiver.send(Array("n\n".utf8))
            try receiver.output(containing: "\"$@\"", after: seen)
            receiver.send(Array("y\n".utf8))
            #expect(try sender.wait(whileServing: [receiver]).status == 0)
            #expect(try receiver.wait().status == 0)
            #expect(pair.folder.read("out/first") != nil)
        }
    }
}
