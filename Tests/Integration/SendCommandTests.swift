import Glibc
import TestSupport
import Testing

extension Integration {
    /// `blesec send` when something cannot be sent, or is not taken.
    @Suite struct SendCommandTests {
        @Test(
            "send fails at once if an operand is neither a file nor a folder, or has a name that cannot be sent",
            arguments: [
                (["/dev/null"], 66, "/dev/null is no file or folder that can be read"),
                (["pipe"], 66, "pipe is no file or folder that can be read"),
                (["file", "pipe"], 66, "pipe is no file or folder that can be read"),
                (["missing"], 66, "missing is no file or folder that can be read"),
                (["/"], 69, "/: the name cannot be sent"),
            ] as [([String], Int32, String)])
        func nothingToSend(_ operands: [String], _ status: Int32, _ reason: String) throws {
            let pair = try ToolPair()
            pair.folder.write("file", "x")
            try #require(unsafe mkfifo(pair.folder.file("pipe"), 0o600) == 0)
            let paths = operands.map { $0.hasPrefix("/") ? $0 : pair.folder.file($0) }
            let outcome = try Tool.start(
                ["send", pair.endpoint()] + paths + [
                    "--identity", pair.folder.file("dialer"), "--peer", pair.listenerKey,
                    "--timeout", "10",
                ]
            ).wait()
            #expect(outcome.status == status, "\(outcome.errors)")
            #expect(outcome.errors.hasSuffix("\(reason)\n"), "\(outcome.errors)")
            #expect(outcome.errors.split(separator: reason).count == 2, "\(outcome.errors)")
        }

        /// Runs `receive` and `send`. `shell` are shell commands that run before `receive`. Returns
        /// the outcomes of the receiver and of the sender.
        private func transfer(
            _ pair: ToolPair, _ names: [String], _ options: [String] = [], shell: String = ""
        ) throws -> [Subprocess.Outcome] {
            unsafe mkdir(pair.folder.file("out"), 0o700)
            let receiver = try Subprocess(
                "bash",
                [
                    "-c", shell + #" exec "$@""#, "bash", Tool.path, "receive", pair.endpoint(),
                    pair.folder.file("out"), "--listen", "--accept", "always", "--identity",
                    pair.folder.file("listener"), "--peer", pair.dialerKey,
                ], within: 40)
            _ = try receiver.line("listening on ")
            let sender = try Tool.start(
                ["send", pair.endpoint()] + names.map { pair.folder.file($0) } + [
                    "--identity", pair.folder.file("dialer"), "--peer", pair.listenerKey,
                ] + options, within: 40)
            return try Subprocess.wait([receiver, sender])
        }

        @Test("with --json, progress has the sums of all files")
        func sums() throws {
            let pair = try ToolPair()
            pair.folder.write("first", "123")
            pair.folder.write("second", "12345")
            let outcomes = try transfer(pair, ["first", "second"], ["--json"])
            #expect(outcomes.map(\.status) == [0, 0], "\(outcomes.map(\.errors))")
            let sums = #""all-ended": 1, "all-count": 2, "all-bytes": 8, "all-total": 8}"#
            #expect(outcomes[1].errors.contains(sums), "\(outcomes[1].errors)")
        }

        @Test("with --json, the error for a name that cannot be sent is the last object")
        func oneBadName() throws {
            let pair = try ToolPair()
            for name in ["good", "line\nfeed"] { pair.folder.write(name, "x") }
            let outcomes = try transfer(pair, ["line\nfeed", "good"], ["--json"])
            #expect(outcomes.map(\.status) == [0, 69], "\(outcomes.map(\.errors))")
            let last = outcomes[1].errors.split(separator: "\n").last ?? ""
            #expect(last.hasPrefix(#"{"event": "error", "#), "\(outcomes[1].errors)")
            #expect(last.contains("the name cannot be sent"), "\(outcomes[1].errors)")
            #expect(pair.folder.read("out/good") != nil)
        }

        @Test("a receiver without --hidden that is offered a hidden file names the option")
        func hidden() throws {
            let pair = try ToolPair()
            pair.folder.write(".hid", "x")
            let outcomes = try transfer(pair, [".hid"])
            #expect(outcomes.map(\.status) == [69, 69], "\(outcomes.map(\.errors))")
            let error = ".hid is not taken, since its name begins with a dot: start with --hidden\n"
            #expect(outcomes[0].errors.hasSuffix("blesec: \(error)"), "\(outcomes[0].errors)")
            #expect(
                outcomes[1].errors.contains("names that begin with a dot are not taken"),
                "\(outcomes[1].errors)")
        }

        @Test("a receiver may use the folders that it makes, whatever its umask is")
        func umask() throws {
            let pair = try ToolPair()
            try #require(unsafe mkdir(pair.folder.file("tree"), 0o700) == 0)
            pair.folder.write("tree/file", "x")
            let outcomes = try transfer(pair, ["tree"], shell: "umask 0177;")
            #expect(outcomes.map(\.status) == [0, 0], "\(outcomes.map(\.errors))")
            #expect(pair.folder.mode("out/tree") == 0o700)
        }
    }
}
