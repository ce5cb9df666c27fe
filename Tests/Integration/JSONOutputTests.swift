import Glibc
import TestSupport
import Testing

extension Integration {
    /// The output of `--json` is strict JSON, even with unusual names in it: Python's strict reader
    /// accepts it.
    @Suite struct JSONOutputTests {
        /// A Python program that checks that every line is one object without control characters,
        /// and prints all strings in the objects, each after a zero byte.
        private static let checker = """
            import json, sys, unicodedata

            def refuse(what):
                raise ValueError(what)

            def members(pairs):
                assert len({name for name, _ in pairs}) == len(pairs), "an object has a member twice"
                return dict(pairs)

            def texts(value):
                if isinstance(value, str):
                    yield value
                elif isinstance(value, (list, dict)):
                    for part in value.values() if isinstance(value, dict) else value:
                        yield from texts(part)

            lines = sys.stdin.buffer.read().decode("utf-8", "strict").split("\\n")
            assert lines.pop() == "" and lines, "there is no line, or the last line has no line feed"
            for line in lines:
                value = json.loads(line, parse_constant=refuse, object_pairs_hook=members)
                assert isinstance(value, dict), line
                controls = [c for c in line if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")]
                assert not controls, controls
                for text in texts(value):
                    sys.stdout.buffer.write(b"\\0" + text.encode("utf-8", "strict"))
            """

        private static let unusualNames = [
            #"quote " and \ and \u0041 and \u{2028}"#, "line\nfeed\r\tand\u{1}\u{1B}[2J\u{7F}",
            "\u{85}\u{2028}\u{2029}\u{202E}\u{FEFF}\u{AD}", "\u{E0001}\u{E007F}\u{1F600}\u{FFFF}",
            String(repeating: "\u{2028}", count: 80), "/'{\u{0301}}",
        ]

        private let folder = ScratchFolder()
        private let noBus = ["DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/nonexistent/bus"]

        /// Expects that a tool's output is strict JSON, and returns the strings in it.
        private func texts(
            _ output: [UInt8], _ comment: String, at location: SourceLocation = #_sourceLocation
        ) throws -> [String] {
            let read = try Subprocess.run(
                "/usr/bin/python3", ["-c", Self.checker], input: .bytes(output))
            #expect(
                read.status == 0,
                "\(comment): \(read.errors): \(String(decoding: output, as: UTF8.self))",
                sourceLocation: location)
            return read.output.split(separator: 0).map { String(decoding: $0, as: UTF8.self) }
        }

        /// Runs the tool with `--json`, and expects that all its output is strict JSON and that one
        /// of the strings in it contains `name`.
        private func expect(
            _ name: String, from words: [String], at location: SourceLocation = #_sourceLocation
        ) throws {
            let outcome = try Subprocess.run(
                Tool.path, words + ["--json"],
                environment: noBus.merging(["HOME": folder.path]) { $1 })
            let found = try texts(
                outcome.output + Array(outcome.errors.utf8), words[0], at: location)
            #expect(
                found.contains { Array($0.utf8).contains(Array(name.utf8)) },
                "\(words.joined(separator: " ")): \(found)", sourceLocation: location)
        }

        @Test(
            "errors and results name files, sockets and peers in strict JSON",
            arguments: unusualNames)
        func names(_ name: String) throws {
            // With a name that begins with a slash, the path leads into the folder `x`.
            if name.hasPrefix("/") { _ = unsafe mkdir(folder.path + "/x", 0o700) }
            let path = folder.file("x") + name
            // `keygen` below makes a file at `path`. `path + "2"` and the like never name a file.
            try expect(name, from: ["pubkey", path])
            let made = try Tool.run("keygen", path, "--json")
            #expect(made.status == 0, "\(made.errors)")
            _ = try texts(made.output + Array(made.errors.utf8), "keygen")
            try expect(name, from: ["keygen", path])
            try expect(
                name, from: ["connect", "unix:/nowhere", "--anyone", "--identity", path + "2"])
            if path.utf8.count < 100 {
                try expect(name, from: ["connect", "unix:" + path + "3", "--anyone"])
            }
            try expect(name, from: ["connect", name, "--anyone"])
            try expect(name, from: ["connect", "peer:" + name])
            try expect(name, from: ["connect", "service:" + name])
            try expect(
                name,
                from: ["connect", "unix:/nowhere", "--anyone", "--remember", "n", "--state", path])
            try expect(name, from: ["listen", "l2cap:any", "--anyone", "--address-type", name])
            try expect(name, from: ["ca", "init", path])
            try expect(name, from: ["ca", "list", path])
            try expect(name, from: ["outbox", path + "5", "list"])
            try expect(name, from: ["outbox", path, "drop", name])
            try expect(name, from: ["ca", "issue", folder.path, "--uri", name, "--out", path])
            try expect(name, from: ["peers", "show", name])
            try expect(name, from: ["peers", "list", "--state", path + "6"])
            try expect(name, from: ["vectors", path + "4"])
            try expect(name, from: ["scan", "--service", name])
        }

        @Test("an argument that is not UTF-8 is shown in strict JSON, with U+FFFD")
        func invalidBytes() throws {
            // The first argument is a prefix, and the others are a command. Runs the command with
            // one more argument: the prefix, followed by invalid bytes.
            let script = #"p=$1; shift; exec "$@" "$p$(printf '\377\355\240\200\300\200')""#
            let file = folder.write("file", "")
            for (prefix, words) in [
                (folder.file("x"), ["pubkey"]), (file + "/", ["keygen"]),
                ("unix:/", ["connect", "--anyone"]), ("", ["vectors"]), ("peer:", ["connect"]),
                ("", ["connect", "unix:/nowhere", "--anyone", "--identity"]),
                (folder.file("x/"), ["ca", "list"]),
            ] {
                let outcome = try Subprocess.run(
                    "sh",
                    ["-c", script, "sh", prefix, Tool.path] + words.prefix(1)
                        + (words[0] == "ca" ? ["list", "--json"] : ["--json"] + words.dropFirst()),
                    environment: noBus)
                #expect(outcome.status == 64)
                let found = try texts(
                    outcome.output + Array(outcome.errors.utf8), words.joined(separator: " "))
                #expect(found.contains { $0.contains("\u{FFFD}") }, "\(found)")
            }
        }

        @Test(
            "with --json, usage errors are objects too",
            arguments: [
                ["--json", "--bogus"], ["--bogus", "--json"], ["--json", "--peer"],
                ["--json", "--json"], ["--json", "-vq"], ["--json", "-x"],
            ])
        func usageErrors(_ options: [String]) throws {
            let outcome = try Tool.run(arguments: ["connect", "unix:x"] + options)
            #expect(outcome.status == 64)
            #expect(try texts(Array(outcome.errors.utf8), "usage").first == "error")
        }

        @Test("a word --json after -- is an operand, and errors are text")
        func operand() throws {
            let outcome = try Tool.run("connect", "unix:x", "--", "--json")
            Tool.expect(outcome, status: 64, "unexpected argument `--json`")
        }

        @Test("forward says in strict JSON which connection it cannot carry, and why")
        func forward() throws {
            let pair = try ToolPair()
            let missing = "unix:" + pair.folder.file("missing")
            let forbidden = "unix:" + pair.folder.file("forbidden")
            for (target, event, reasons) in [
                (missing, "forward-failed", ["cannot reach", "cannot connect"]),
                (forbidden, "forward-refused", ["does not allow", "is not allowed"]),
            ] {
                let local = pair.folder.file("local-\(event)")
                let common = ["--at", "unix:" + pair.folder.file(event), "--json"]
                let listener = try Tool.start(
                    ["forward", "--allow", missing, "--listen", "--peer", pair.dialerKey]
                        + ["--identity", pair.folder.file("listener")] + common, input: .keptOpen)
                _ = try listener.line(#"{"event": "listening""#)
                let dialer = try Tool.start(
                    ["forward", "unix:" + local, target, "--peer", pair.listenerKey]
                        + ["--identity", pair.folder.file("dialer")] + common, input: .keptOpen)
                _ = try dialer.line(#"{"event": "forwarding""#)
                let socket = RawSocket.dialing(local)
                let lines = [
                    try dialer.line(#"{"event": "forward-failed""#, whileServing: [listener]),
                    try listener.line(#"{"event": "\#(event)""#, whileServing: [dialer]),
                ]
                socket.close()
                for (line, reason) in zip(lines, reasons) {
                    let found = try texts(Array("\(line)\n".utf8), event)
                    #expect(found.count == 3 && found[1] == target, "\(line)")
                    #expect(found.last?.contains(reason) == true, "\(line)")
                }
                for tool in [dialer, listener] { tool.signal(SIGKILL) }
                _ = try Subprocess.wait([dialer, listener])
            }
        }

        @Test("a chat prints a peer's text in strict JSON, and replaces only invalid UTF-8")
        func chat() throws {
            let pair = try ToolPair()
            let listener = try Tool.start(
                [
                    "chat", pair.endpoint(), "--listen", "--json", "--peer", pair.dialerKey,
                    "--identity", pair.folder.file("listener"),
                ], input: .keptOpen)
            _ = try listener.line(#"{"event": "listening""#)
            let lines = Self.unusualNames.map { $0.split(separator: "\n").joined(separator: " ") }
            let dialer = try Tool.start(
                [
                    "chat", pair.endpoint(), "--peer", pair.listenerKey, "--identity",
                    pair.folder.file("dialer"),
                ],
                input: .bytes(
                    Array(lines.joined(separator: "\n").utf8) + Array("\n".utf8) + [0xFF, 0x0A]))
            _ = try dialer.line("delivered \(lines.count + 1)", whileServing: [listener])
            listener.endInput()
            let outcomes = try Subprocess.wait([listener, dialer])
            #expect(outcomes.map(\.status) == [0, 0], "\(outcomes.map(\.errors))")
            let shown = try texts(outcomes[0].output, "messages")
            #expect(shown == (lines + ["\u{FFFD}"]).flatMap { ["message", $0] })
            _ = try texts(Array(outcomes[0].errors.utf8), "events")
        }

        @Test("the URI in a peer's certificate is shown in strict JSON")
        func certificates() throws {
            let authority = try TestAuthority(in: folder)
            // OpenSSL interprets backslashes, so the backslash is doubled. Characters beyond ASCII
            // are not tried, because a certificate with such a URI is refused.
            try authority.issue(
                "odd", #"subjectAltName=URI:urn:\\u2028\"{}"# + "\n" + Self.extendedKeyUsage)
            try authority.issueDevice("plain")
            let uri = #"urn:\u2028"{}"#
            func startTool(
                _ command: String, _ name: String, _ options: [String]
            ) throws -> Subprocess {
                try Tool.start(
                    [
                        command, "unix:" + folder.file("socket"), "--json", "--certificate",
                        folder.file("\(name).pem"), "--key", folder.file("\(name).key"),
                        "--authority", authority.certificatePath,
                    ] + options)
            }
            for (options, status) in [([], Int32(0)), (["--peer-uri", "urn:other"], 77)] {
                let listener = try startTool("listen", "odd", [])
                _ = try listener.line(#"{"event": "listening""#)
                let dialer = try startTool("connect", "plain", options)
                    .wait(whileServing: [listener])
                #expect(dialer.status == status, "\(dialer.errors)")
                let found = try texts(Array(dialer.errors.utf8), "certificate")
                #expect(found.contains { $0.contains(uri) }, "\(found)")
                listener.signal(SIGTERM)
                _ = try texts(Array(try listener.wait().errors.utf8), "listener")
            }
        }

        private static let extendedKeyUsage = "extendedKeyUsage=clientAuth,serverAuth\n"
    }
}
