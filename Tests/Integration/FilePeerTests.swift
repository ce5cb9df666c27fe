import Glibc
import TestSupport
import Testing

extension Integration {
    /// `blesec send` and `blesec receive` against `file_peer.py`, a peer that is written from the
    /// pages on the wire format and on delivery, on top of `noiseprotocol`. The peer checks what
    /// the tool sends against the pages, and fails if a rule is broken.
    @Suite struct FilePeerTests {
        private let fixture: FilePeerFixture

        init() throws { fixture = try FilePeerFixture() }

        // MARK: - Whole transfers

        @Test(
            "a Python peer sends a file, an empty one and a folder: contents, times and executable bits arrive",
            arguments: ["dialer", "acceptor"], [0, 4])
        func receiving(role: String, cuts: Int) throws {
            try fixture.writeSources()
            let outcomes = try fixture.run(
                "receive", [fixture.out, "--accept", "always"], role,
                fixture.sources + ["--cuts", "\(cuts)"])
            #expect(outcomes.map(\.status) == [0, 0], "\(outcomes.map(\.errors))")
            #expect(try fixture.content(of: "out") == fixture.content(of: "in"))
            #expect(outcomes[1].errors.contains("sent tree as tree\n"))
        }

        @Test(
            "the tool sends a file, an empty one and a folder to a Python peer: contents, times and executable bits arrive",
            arguments: ["dialer", "acceptor"], [0, 4])
        func sending(role: String, cuts: Int) throws {
            try fixture.writeSources()
            let outcomes = try fixture.run(
                "send", fixture.sources, role, [fixture.out, "--cuts", "\(cuts)"])
            #expect(outcomes.map(\.status) == [0, 0], "\(outcomes.map(\.errors))")
            #expect(try fixture.content(of: "out") == fixture.content(of: "in"))
            #expect(outcomes[1].errors.contains("received tree\n"))
        }

        @Test("a folder is sent without a file whose name cannot be sent, and the status says so")
        func badName() throws {
            try fixture.writeSources()
            fixture.folder.write("in/tree/line\nfeed", "not sent")
            let outcomes = try fixture.run("send", [fixture.sources[2]], "acceptor", [fixture.out])
            #expect(outcomes.map(\.status) == [76, 0], "\(outcomes.map(\.errors))")
            let line = "not sent: line\\u{A}feed: the name cannot be sent\n"
            #expect(outcomes[0].errors.contains(line), "\(outcomes[0].errors)")
            #expect(outcomes[1].errors.contains("received tree\n"))
            #expect(
                fixture.folder.read("out/tree/sub/first") == Array(fixture.random.prefix(100_000)))
        }

        // MARK: - Reports and questions

        @Test(
            "a stored file is reported at once and only once, even if the sender offers the file again before reading that it is stored"
        )
        func offeredAgain() throws {
            let outcomes = try fixture.run(
                "receive", [fixture.out, "--accept", "always"], "dialer", ["--attack", "unread"])
            #expect(outcomes.map(\.status) == [0, 0], "\(outcomes.map(\.errors))")
            let lines = outcomes[0].errors.split(separator: "\n")
            #expect(
                lines.count(where: { $0.hasPrefix("received bad: ") }) == 1, "\(outcomes[0].errors)"
            )
            #expect(
                lines.count(where: { $0.hasPrefix("received good: ") }) == 1,
                "\(outcomes[0].errors)")
            #expect(try fixture.names(in: "out") == ["bad", "good"])
        }

        @Test(
            "a stored file counts as received, even if a second copy of the offer was refused during the transfer"
        )
        func secondCopy() throws {
            let outcomes = try fixture.run(
                "receive", [fixture.out, "--accept", "always"], "dialer",
                ["--attack", "second-copy"])
            let errors = outcomes[0].errors
            #expect(outcomes.map(\.status) == [0, 0], "\(outcomes.map(\.errors))")
            #expect(errors.contains("\nreceived bad: "), "\(errors)")
            #expect(errors.contains("\nbad: bad is being received already\n"), "\(errors)")
        }

        /// Starts `blesec receive` on a terminal, where it asks about each offer.
        private func startAsking() throws -> Subprocess {
            let words = fixture.toolWords("receive", [fixture.out], listens: true)
            let command = words.map { "'\($0)'" }.joined(separator: " ")
            let tool = try Subprocess(
                "script", ["-qec", command, "/dev/null"], input: .keptOpen,
                environment: ["TERM": "xterm"], within: 60)
            try tool.output(containing: "listening on ")
            return tool
        }

        @Test(
            "a stored file is reported as received, even if its stream is then given up; if the same offer comes again, there is a new question"
        )
        func storedThenReset() throws {
            let tool = try startAsking()
            let peer = try fixture.startPeer("send", "dialer", ["--attack", "stored-then-reset"])
            var seen = 0
            // The offers are `bad`, `other`, `bad` and `good`.
            for answer in ["y", "n", "y", "y"] {
                let start = seen
                seen = try tool.output(containing: "[y/n/all] ", after: start)
                if answer == "n" {
                    // This report may precede the question.
                    seen = try max(seen, tool.output(containing: "received bad: ", after: start))
                }
                tool.send(Array("\(answer)\n".utf8))
            }
            let outcome = try peer.wait(whileServing: [tool])
            #expect(outcome.status == 0, "\(outcome.errors)")
            let receiver = try tool.wait()
            #expect(receiver.status == 0, "\(receiver.text)")
            #expect(receiver.text.split(separator: "received bad: ").count == 2, "\(receiver.text)")
            #expect(try fixture.finalNames == ["bad", "good"])
        }

        @Test(
            "an answer at the terminal holds for one version of a file, and only until that version is stored"
        )
        func question() throws {
            let tool = try startAsking()
            let peer = try fixture.startPeer("send", "dialer", ["--attack", "same-file"])
            var seen = 0
            // The peer expects these answers. The last one is about the file `good`.
            for answer in ["y", "n", "y", "n", "y"] {
                seen = try tool.output(containing: "[y/n/all] ", after: seen)
                tool.send(Array("\(answer)\n".utf8))
            }
            let outcome = try peer.wait(whileServing: [tool])
            #expect(outcome.status == 0, "\(outcome.errors)")
            let receiver = try tool.wait()
            #expect(receiver.status == 0, "\(receiver.text)")
            #expect(receiver.text.split(separator: "[y/n/all] ").count == 6, "\(receiver.text)")
            #expect(try fixture.finalNames == ["bad", "bad (2)", "good"])
        }

        @Test("with --json, progress is written each second")
        func progressObjects() throws {
            let path = fixture.folder.file("in/large")
            try Subprocess.runSuccessfully("truncate", ["-s", "1G", path])
            let tool = try Subprocess(
                "bash",
                ["-c", #"exec "$@" 2>&1"#, "bash"]
                    + fixture.toolWords("send", [path, "--json"], listens: true), within: 60)
            func expect(_ state: String, after start: Int) throws -> Int {
                let object = #"{"event": "progress", "name": "large", "state": "\#(state)", "#
                return try tool.output(containing: object, after: start)
            }
            // Nothing changes between these two objects.
            var seen = try expect("connecting", after: 0)
            seen = try expect("connecting", after: seen)
            let peer = try fixture.startPeer("receive", "dialer", [fixture.out])
            seen = try expect("transferring", after: seen)
            peer.signal(SIGKILL)
            _ = try peer.wait(whileServing: [tool])
            _ = try expect("waiting", after: seen)
            tool.signal(SIGKILL)
        }

        // MARK: - Continued transfers

        @Test(
            "if a Python peer has the first bytes of a file, the tool sends the rest; if those bytes are wrong, the whole file",
            arguments: [true, false])
        func toolSendsRest(isPrefixRight: Bool) throws {
            try fixture.writeSources()
            var held = Array(fixture.random.prefix(2_000_000))
            if !isPrefixRight { held[1_234_567] ^= 1 }
            let path = fixture.folder.write("held", held)
            let outcomes = try fixture.run(
                "send", [fixture.sources[0]], "acceptor", [fixture.out, "--hold", path])
            #expect(outcomes.map(\.status) == [0, 0], "\(outcomes.map(\.errors))")
            let line = isPrefixRight ? "agreed to 2000000 bytes, " : "restart\n"
            #expect(outcomes[1].errors.contains(line), "\(outcomes[1].errors)")
            #expect(fixture.folder.read("out/random") == fixture.random)
        }

        @Test(
            "the tool says how much it has of a given-up file, and takes the rest if the hash is right, otherwise the whole file",
            arguments: [true, false])
        func peerSendsRest(isPrefixRight: Bool) throws {
            try fixture.writeSources()
            let source = fixture.sources[0]
            let arguments = [fixture.out, "--accept", "always"]
            let first = try fixture.run(
                "receive", arguments, "dialer", [source, "--give-up", "2000000"])
            #expect(first.map(\.status) == [76, 0], "\(first.map(\.errors))")
            #expect(first[0].errors.contains("blesec: the peer has ended the transfer\n"))
            #expect(try fixture.names(in: "out") == [".blesec-partial"])
            let second = try fixture.run(
                "receive", arguments, "dialer",
                [source] + (isPrefixRight ? [] : ["--prefix", "wrong"]))
            #expect(second.map(\.status) == [0, 0], "\(second.map(\.errors))")
            let errors = second[1].errors
            #expect(errors.contains("\nfrom "), "\(errors)")
            #expect(errors.contains(isPrefixRight ? "\nagreed\n" : "\nrestart\n"), "\(errors)")
            #expect(fixture.folder.read("out/random") == fixture.random)
        }

        @Test("when a folder is sent again, the files that the tool has stored are not sent again")
        func peerSendsRestOfTree() throws {
            try fixture.writeSources()
            let source = fixture.sources[2]
            let arguments = [fixture.out, "--accept", "always"]
            let first = try fixture.run(
                "receive", arguments, "dialer", [source, "--give-up", "1200000", "--settle"])
            #expect(first.map(\.status) == [76, 0], "\(first.map(\.errors))")
            let second = try fixture.run("receive", arguments, "dialer", [source])
            #expect(second.map(\.status) == [0, 0], "\(second.map(\.errors))")
            #expect(second[1].errors.contains("\nhave größe\n"), "\(second[1].errors)")
            #expect(try fixture.content(of: "out/tree") == fixture.content(of: "in/tree"))
        }

        @Test("the hash of the bytes that the receiver holds may come before any data")
        func earlyPrefix() throws {
            try fixture.writeSources()
            let source = fixture.sources[0]
            let arguments = [fixture.out, "--accept", "always"]
            let first = try fixture.run(
                "receive", arguments, "dialer", [source, "--give-up", "2000000"])
            #expect(first.map(\.status) == [76, 0], "\(first.map(\.errors))")
            let second = try fixture.run(
                "receive", arguments, "dialer", [source, "--prefix", "early"])
            #expect(second.map(\.status) == [0, 0], "\(second.map(\.errors))")
            #expect(second[1].errors.contains("\nagreed\n"), "\(second[1].errors)")
            #expect(fixture.folder.read("out/random") == fixture.random)
        }

        // MARK: - Hostile senders

        @Test(
            "a hostile sender's stream is given up as a violation or a failure, the next file arrives, and nothing else is touched",
            arguments: FileAttacks.senders)
        func hostileSender(attack: String) throws {
            try fixture.writeOutside()
            let outcomes = try fixture.run(
                "receive", [fixture.out, "--accept", "always"], "dialer", ["--attack", attack])
            let errors = outcomes[0].errors
            try #require(outcomes[1].status == 0, "\(outcomes[1].errors)\n\(errors)")
            if FileAttacks.neverAccepted.contains(attack) {
                #expect([0, 76].contains(outcomes[0].status), "\(errors)")
            } else if FileAttacks.afterStored.contains(attack) {
                #expect(outcomes[0].status == 0, "\(errors)")
                #expect(errors.contains("\nreceived bad: "), "\(errors)")
            } else {
                #expect([65, 69, 73, 76].contains(outcomes[0].status), "\(errors)")
                #expect(errors.contains("\nblesec: "), "\(errors)")
            }
            #expect(errors.contains("\nreceived good: "), "\(errors)")
            #expect(!errors.contains { "\u{1B}\0\u{202E}".contains($0) }, "\(errors)")
            try fixture.checkOutside()
            #expect(fixture.folder.read("out/good") == Array("good".utf8))
            for name in try fixture.names(in: "out")
            where ![".blesec-partial", "good"].contains(name) {
                // Another file may be there if it was complete before the attack.
                #expect(["bad", "first"].contains(name), "\(name)")
                #expect(fixture.folder.read("out/" + name) == Array("12345".utf8))
            }
        }

        @Test(
            "a symbolic link in the folder of incomplete files is not followed",
            arguments: [
                "-type f -name 'f-*' ! -size 0", "-type d -name sub", "-type d -name tree",
                "-type d -name 'o-*'", "-mindepth 1 -maxdepth 1 -type d",
                "-maxdepth 0 -type d",
            ])
        func link(findExpression: String) throws {
            try fixture.writeSources()
            try fixture.writeOutside()
            let source = fixture.sources[2]
            let arguments = [fixture.out, "--accept", "always"]
            let first = try fixture.run(
                "receive", arguments, "dialer", [source, "--give-up", "900000"])
            #expect(first.map(\.status) == [76, 0], "\(first.map(\.errors))")
            let partial = fixture.out + "/.blesec-partial"
            let found = try Subprocess.run("bash", ["-c", "find \(partial) \(findExpression)"]).text
                .split(separator: "\n").map(String.init)
            let victim = try #require(found.first, "`find` finds nothing with \(findExpression)")
            let target = findExpression.contains("type f") ? "outside/file" : "outside/folder"
            try Subprocess.runSuccessfully(
                "bash",
                ["-c", "rm -r '\(victim)' && ln -s '\(fixture.folder.file(target))' '\(victim)'"])
            let second = try fixture.run("receive", arguments, "dialer", [source])
            #expect(second[1].status == 0, "\(second.map(\.errors))")
            // The tool may begin anew, or give up.
            let isStored = try fixture.names(in: "out").contains("tree")
            #expect(isStored == (second[0].status == 0), "\(second.map(\.errors))")
            if isStored {
                #expect(try fixture.content(of: "out/tree") == fixture.content(of: "in/tree"))
            } else {
                #expect(second[0].errors.contains("blesec: "))
            }
            try fixture.checkOutside()
        }

        // MARK: - Hostile receivers

        @Test(
            "with a hostile receiver the tool reports an error, and does not report the file as sent",
            arguments: FileAttacks.receivers)
        func hostileReceiver(attack: String) throws {
            try fixture.writeOutside()
            let paths = (0..<(FileAttacks.receiverCounts[attack] ?? 1)).map {
                fixture.folder.write("file-\($0)", ToolPair.pseudoRandomBytes(1_000_000, seed: 5))
            }
            let outcomes = try fixture.run("send", paths, "acceptor", ["--attack", attack])
            let errors = outcomes[0].errors
            try #require(outcomes[1].status == 0, "\(outcomes[1].errors)\n\(errors)")
            let isRefusal = attack.hasPrefix("refuse") && attack != "refuse-behind-accept"
            #expect(outcomes[0].status == (isRefusal ? 69 : 76), "\(errors)")
            #expect(errors.contains("\nblesec: "), "\(errors)")
            #expect(!errors.contains("\nsent "), "\(errors)")
            #expect(!errors.contains { "\u{1B}\u{202E}".contains($0) }, "\(errors)")
            try fixture.checkOutside()
        }
    }
}

/// The names of the attacks in `file_attacks.py`; `*` stands for several attacks.
private enum FileAttacks {
    /// Attacks that the tool meets before it has accepted an offer.
    static let neverAccepted = [
        "no-offer", "offer-of-kind-2", "offer-of-2^61-bytes", "offer-of-2^61-files",
        "offer-of-2^62-1-bytes", "offer-of-too-many-files", "offer-of-two-files-as-one",
        "offer-without-name-and-numbers", "offer-twice-at-once", "file-before-accept",
    ]
    /// Attacks that begin when the offered file is whole, and therefore stored.
    static let afterStored = ["second-file", "data-behind-end", "end-twice"]
    static let senders =
        neverAccepted + afterStored + [
            "offer-twice", "folder-of-file", "data-without-file", "end-without-file",
            "skip-without-file", "nanoseconds", "mode", "more-data",
            "more-data-later", "data-of-empty-file", "fewer-data", "no-data", "empty-data",
            "prefix", "again", "skip-with-byte", "short-hash", "long-hash", "long-frame",
            "very-long-frame", "long-number", "long-number-inside", "end-in-frame", "end-in-file",
            "end-without-file-at-all", "257-files", "other-path", "skip", "skip-0", "skip-10",
            "file-twice", "file-as-folder", "size-of-2^61", "size-of-2^62-1", "wrong-hash",
            "same-id", "type-*", "name-*", "path-*", "folder-*", "tree-*", "size-of-2^61-1",
            "time-of-2^61", "sum-of-2^61", "more-bytes-than-offered", "more-files-than-offered",
            "smaller-than-offered",
        ]
    static let receivers =
        [
            "refuse-behind-accept", "from-above-size", "from-twice", "have-twice", "from-with-byte",
            "stored-without-answer", "stored-beyond", "stored-less", "done-too-early",
            "done-without-answer", "done-after-failure", "agreed-without-prefix",
            "restart-without-prefix", "agreed-without-answer", "agreed-twice", "restart-twice",
            "restart-behind-agreed", "failed-unknown-file", "failed-after-stored", "failed-twice",
            "agreed-to-other-file", "received-too-much", "stored-too-early",
            "end-in-frame-of-receiver", "end-without-answer", "end-behind-accept", "accept-twice",
            "accept-with-byte", "long-frame-of-receiver", "long-number-of-receiver",
            "before-accept-*", "answer-*", "refuse", "refuse-with-escape",
        ]
    /// How many attacks a name with `*` stands for. The tool offers one file for each.
    static let receiverCounts = ["before-accept-*": 8, "answer-*": 14]
}

/// Runs the tool and a peer, with keys and files for both.
private struct FilePeerFixture {
    private static let keys = Result { try DeliveryFixture(in: ScratchFolder(), count: 0) }
    private static let peer = #filePath.replacing("FilePeerTests.swift", with: "Peers/file_peer.py")
    private static let python = #filePath.replacing(
        "Tests/Integration/FilePeerTests.swift", with: ".build/venv/bin/python")

    let folder = ScratchFolder()
    let random = ToolPair.pseudoRandomBytes(3_000_001, seed: 41)
    private let keys: DeliveryFixture

    init() throws {
        keys = try Self.keys.get()
        try Subprocess.runSuccessfully("mkdir", [folder.file("in"), out, folder.file("outside")])
    }

    /// The receiving folder.
    var out: String { folder.file("out") }

    /// What is sent: a file, an empty one and a folder.
    var sources: [String] { ["random", "empty", "tree"].map { folder.file("in/" + $0) } }

    func writeSources() throws {
        try Subprocess.runSuccessfully(
            "mkdir", ["-p"] + ["sub/deep", "none"].map { sources[2] + "/" + $0 })
        folder.write("in/random", random)
        folder.write("in/empty", "")
        folder.write("in/tree/run", "#!/bin/sh\n", mode: 0o700)
        folder.write("in/tree/größe", Array(random.prefix(1_000_000)))
        folder.write("in/tree/sub/first", Array(random.prefix(100_000)))
        folder.write("in/tree/sub/second", Array(random.prefix(200_000)))
        folder.write("in/tree/sub/deep/empty", "")
        try Subprocess.runSuccessfully(
            "touch", ["-d", "1999-12-31 23:59:59.123456789 UTC", sources[0]])
        try Subprocess.runSuccessfully(
            "touch", ["-d", "1970-01-01 00:00:00 UTC", sources[2] + "/run"])
    }

    /// Writes files outside of the receiving folder. These files must not change.
    func writeOutside() throws {
        try Subprocess.runSuccessfully("mkdir", [folder.file("outside/folder")])
        folder.write("outside/file", "nobody else's")
        folder.write("outside/folder/second", "nobody else's either")
    }

    func checkOutside() throws {
        #expect(
            try content(of: "outside") == """
                file f
                folder d
                folder/second f
                nobody else's
                nobody else's either
                """)
        let names = folder.names.filter { !$0.hasPrefix("file-") && $0 != "socket" }
        #expect(names == ["in", "out", "outside"])
    }

    /// The names in the receiving folder, without the folder of incomplete files.
    var finalNames: [String] {
        get throws { try names(in: "out").filter { $0 != ".blesec-partial" } }
    }

    func names(in path: String) throws -> [String] {
        try Subprocess.run("ls", ["-A", folder.file(path)]).text
            .split(separator: "\n").map(String.init)
    }

    /// A description of a folder: the name and the kind of each entry, and the time, the executable
    /// bit and the hash of each file. For `outside`: names, kinds and contents.
    func content(of path: String) throws -> String {
        let script = """
            cd "$1" && export LC_ALL=C.UTF-8 && if [ "$2" ]; then
            find . -mindepth 1 -printf '%P %y\\n' | sort; for file in file folder/second; do
            cat $file; echo; done; else
            find . -name .blesec-partial -prune -o -mindepth 1 \\( -type d -printf '%P d\\n' \
            -o -perm -100 -printf '%P x %T@\\n' -o -printf '%P %y %T@\\n' \\) | sort
            find . -name .blesec-partial -prune -o -type f -exec sha256sum {} + | sort; fi
            """
        let isOutside = path == "outside" ? "1" : ""
        let text = try Subprocess.run(
            "bash", ["-c", script, "bash", folder.file(path), isOutside]
        ).text
        return String(text.dropLast())
    }

    /// The tool's path and its arguments.
    func toolWords(_ command: String, _ arguments: [String], listens: Bool) -> [String] {
        [Tool.path, command, "unix:" + folder.file("socket")] + arguments + [
            "--identity", keys.folder.file("key"), "--peer", keys.peerKey,
        ] + (listens ? ["--listen"] : [])
    }

    /// Starts the peer with the command `send` or `receive`.
    func startPeer(_ command: String, _ role: String, _ options: [String]) throws -> Subprocess {
        try Subprocess(
            Self.python,
            [Self.peer, command, role, keys.peerPrivateKey, folder.file("socket")] + options,
            within: 60)
    }

    /// Runs the tool with `command` against the peer; `role` is the peer's role, `dialer` or
    /// `acceptor`. Returns the outcomes of the tool and of the peer, in this order.
    func run(
        _ command: String, _ arguments: [String], _ role: String, _ options: [String]
    ) throws -> [Subprocess.Outcome] {
        func startTool() throws -> Subprocess {
            let words = toolWords(command, arguments, listens: role == "dialer")
            return try Subprocess(words[0], Array(words.dropFirst()), within: 60)
        }
        func startPeer() throws -> Subprocess {
            try self.startPeer(command == "send" ? "receive" : "send", role, options)
        }
        unsafe unlink(folder.file("socket"))
        let tool, peer: Subprocess
        if role == "dialer" {
            tool = try startTool()
            _ = try tool.line("listening on ")
            peer = try startPeer()
        } else {
            peer = try startPeer()
            _ = try peer.line("listening")
            tool = try startTool()
        }
        let outcome = try peer.wait(whileServing: [tool])
        if outcome.status != 0 { tool.signal(SIGTERM) }
        return [try tool.wait(), outcome]
    }
}

extension Subprocess {
    fileprivate static func runSuccessfully(_ program: String, _ arguments: [String]) throws {
        let outcome = try run(program, arguments)
        try #require(outcome.status == 0, "\(outcome.errors)")
    }
}
