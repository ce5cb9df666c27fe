import Glibc
import TestSupport
import Testing

extension Integration {
    /// The output of `--json` is strict JSON, even with unusual names in it: Python parses it in
    /// strict mode.
    @Suite struct JSONOutputTests {
        /// A Python program that checks that every line is one object without control characters,
        /// and prints all strings in the objects, each after a zero byte.
        private static let reader = """
            import json, sys, unicodedata

            def refuse(what):
                raise ValueError(what)

            def members(pairs):
                assert len({name for name, _ in pairs}) == len(pairs), "a member stands twice"
                return dict(pairs)

            def texts(value):
                if isinstance(value, str):
                    yield value
                elif isinstance(value, (list, dict)):
                    for part in value.values() if isinstance(value, dict) else value:
                        yield from texts(part)

            lines = sys.stdin.buffer.read().decode("utf-8", "strict").split("\\n")
            assert lines.pop() == "" and lines, "the last line does not end, or there is none"
            for line in lines:
                value = json.loads(line, parse_constant=refuse, object_pairs_hook=members)
                assert isinstance(value, dict), line
                odd = [c for c in line if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")]
                assert not odd, odd
                for text in texts(value):
                    sys.stdout.buffer.write(b"\\0" + text.encode("utf-8", "strict"))
            """

        private static let odd = [
            #"quote " and \ and \u0041 and \u{2028}"#, "line\nfeed\r\tand\u{1}\u{1B}[2J\u{7F}",
            "\u{85}\u{2028}\u{2029}\u{202E}\u{FEFF}\u{AD}", "\u{E0001}\u{E007F}\u{1F600}\u{FFFF}",
            String(repeating: "\u{2028}", count: 80), "/'{\u{0301}}",
        ]

        private let folder = ScratchFolder()
        private let noBus = ["DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/nonexistent/bus"]

        /// The strings in the output of a tool.
        private func texts(
            _ output: [UInt8], _ comment: String, at location: SourceLocation = #_sourceLocation
        ) throws -> [String] {
            let read = try Subprocess.run(
                "/usr/bin/python3", ["-c", Self.reader], input: .bytes(output))
            #expect(
                read.status == 0,
                "\(comment): \(read.errors): \(String(decoding: output, as: UTF8.self))",
                sourceLocation: location)
            return read.output.split(separator: 0).map { String(decoding: $0, as: UTF8.self) }
        }

        /// Expects that all output of a run is JSON, and that one of its strings contains `name`.
        private func expect(
            _ name: String, in words: [String], at location: SourceLocation = #_sourceLocation
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

        @Test("errors and results name files, sockets and peers in strict JSON", arguments: odd)
        func names(_ name: String) throws {
            // A name that begins with a slash is a file in the folder `x`.
            if name.hasPrefix("/") { _ = unsafe mkdir(folder.path + "/x", 0o700) }
            let path = folder.file("x") + name
            try expect(name, in: ["pubkey", path])
            let made = try Tool.run("keygen", path, "--json")
            #expect(made.status == 0, "\(made.errors)")
            _ = try texts(made.output + Array(made.errors.utf8), "keygen")
            try expect(name, in: ["keygen", path])
            try expect(
                name, in: ["connect", "unix:/nowhere", "--anyone", "--identity", path + "2"])
            if path.utf8.count < 100 {
                try expect(name, in: ["connect", "unix:" + path + "3", "--anyone"])
            }
            try expect(name, in: ["connect", name, "--anyone"])
            try expect(name, in: ["connect", "peer:" + name])
            try expect(name, in: ["connect", "service:" + name])
            try expect(
                name,
                in: ["connect", "unix:/nowhere", "--anyone", "--remember", "n", "--state", path])
            try expect(name, in: ["listen", "l2cap:any", "--anyone", "--address-type", name])
            try expect(name, in: ["ca", "init", path])
            try expect(name, in: ["ca", "list", path])
            try expect(name, in: ["ca", "issue", folder.path, "--uri", name, "--out", path])
            try expect(name, in: ["vectors", path + "4"])
            try expect(name, in: ["scan", "--service", name])
        }

        @Test("a path that is not UTF-8 is shown in strict JSON")
        func invalidBytes() throws {
            let script = #"p=$1; shift; exec "$@" "$p$(printf '\377\355\240\200\300\200')""#
            for (prefix, words) in [
                (folder.file("x"), ["pubkey"]), (folder.file("x/"), ["keygen"]),
                ("unix:/", ["connect", "--anyone"]), ("", ["vectors"]), ("peer:", ["connect"]),
                ("", ["connect", "unix:/nowhere", "--anyone", "--identity"]),
                (folder.file("x/"), ["ca", "list"]),
            ] {
                let outcome = try Subprocess.run(
                    "sh",
                    ["-c", script, "sh", prefix, Tool.path] + words.prefix(1)
                        + (words[0] == "ca" ? ["list", "--json"] : ["--json"] + words.dropFirst()),
                    environment: noBus)
                #expect(outcome.status != 0)
                let found = try texts(
                    outcome.output + Array(outcome.errors.utf8), words.joined(separator: " "))
                #expect(found.contains { $0.contains("\u{FFFD}") }, "\(found)")
            }
        }

        @Test("a chat prints a peer's text unchanged, in strict JSON")
        func chat() throws {
            let pair = try ToolPair()
            let listener = try Tool.start(
                [
                    "chat", pair.endpoint(), "--listen", "--json", "--peer", pair.dialerKey,
                    "--identity", pair.folder.file("listener"),
                ], input: .held)
            _ = try listener.line(#"{"event": "listening""#)
            let lines = Self.odd.map { $0.split(separator: "\n").joined(separator: " ") }
            let dialer = try Tool.start(
                [
                    "chat", pair.endpoint(), "--peer", pair.listenerKey, "--identity",
                    pair.folder.file("dialer"),
                ],
                input: .bytes(
                    Array(lines.joined(separator: "\n").utf8) + Array("\n".utf8) + [0xFF, 0x0A]))
            _ = try dialer.line("delivered \(lines.count + 1)", with: [listener])
            listener.endInput()
            let outcomes = try Subprocess.wait([listener, dialer])
            #expect(outcomes.map(\.status) == [0, 0], "\(outcomes.map(\.errors))")
            let shown = try texts(outcomes[0].output, "messages")
            #expect(shown == (lines + ["\u{FFFD}"]).flatMap { ["message", $0] })
            _ = try texts(Array(outcomes[0].errors.utf8), "events")
        }

        @Test("names in a peer's certificate are shown in strict JSON")
        func certificates() throws {
            let authority = try TestAuthority(in: folder)
            // OpenSSL interprets backslashes, so they are doubled. Characters beyond ASCII are not
            // tried: no certificate with them in its URI is accepted.
            try authority.issue("odd", #"subjectAltName=URI:urn:\\u2028\"{}"# + "\n" + Self.usage)
            try authority.issueDevice("plain")
            let uri = #"urn:\u2028"{}"#
            func tool(_ command: String, _ name: String, _ more: [String]) throws -> Subprocess {
                try Tool.start(
                    [
                        command, "unix:" + folder.file("socket"), "--json", "--certificate",
                        folder.file("\(name).pem"), "--key", folder.file("\(name).key"),
                        "--authority", authority.certificate,
                    ] + more)
            }
            for (more, status) in [([], Int32(0)), (["--peer-uri", "urn:other"], 77)] {
                let listener = try tool("listen", "odd", [])
                _ = try listener.line(#"{"event": "listening""#)
                let dialer = try tool("connect", "plain", more).wait(with: [listener])
                #expect(dialer.status == status, "\(dialer.errors)")
                let found = try texts(Array(dialer.errors.utf8), "certificate")
                #expect(found.contains { $0.contains(uri) }, "\(found)")
                listener.signal(15)
                _ = try texts(Array(try listener.wait().errors.utf8), "listener")
            }
        }

        private static let usage = "extendedKeyUsage=clientAuth,serverAuth\n"
    }
}
