import Glibc
import TestSupport
import Testing

extension Integration {
    /// What `--verbose` and `--quiet` change on standard error.
    @Suite struct VerbosityTests {
        /// What a dialer writes to standard error if its channel opens and ends without an error.
        private func dial(_ options: [String]) throws -> [String] {
            let pair = try ToolPair()
            let listener = try pair.listen()
            let words = ["connect", pair.endpoint(), "-i", pair.folder.file("dialer")]
            let dialer = try Tool.start(words + ["--peer", pair.listenerKey] + options)
            let outcome = try dialer.wait(whileServing: [listener])
            #expect(outcome.status == 0)
            return outcome.errors.split(separator: "\n").map(String.init)
        }

        @Test("--quiet reports only errors, and --verbose each step")
        func levels() throws {
            #expect(try dial(["--quiet"]) == [])
            #expect(try dial([]).count == 1)
            let verbose = try dial(["-v"])
            #expect(verbose.dropLast() == ["state: dialing", "state: handshaking"])
            #expect(verbose.last?.hasPrefix("channel ready: ") == true)
            #expect(try dial(["-v", "--json"]).first == #"{"event": "state", "state": "dialing"}"#)
        }

        @Test("--verbose given twice puts the time in front of each line")
        func times() throws {
            for options in [["-vv"], ["--verbose", "-v"]] {
                let lines = try dial(options)
                #expect(lines.count == 3, "\(lines)")
                for line in lines {
                    #expect(line.contains(/^[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3} (state|channel)/))
                }
            }
        }

        @Test("while nobody reads standard error, a listener serves peers, and ends on a signal")
        func unread() throws {
            let pair = try ToolPair()
            let (path, descriptor) = try pair.fullFIFO()
            defer { close(descriptor) }
            let words = [
                Tool.path, "listen", pair.endpoint(), "--keep", "-v", "--peer", pair.dialerKey,
                "--identity", pair.folder.file("listener"),
            ]
            let listener = try Subprocess("sh", ["-c", #"exec "$@" 2>"$0""#, path] + words)
            // Nothing says when the listener can be dialed. Until then, the dialer finds nobody.
            func dial() throws -> Subprocess.Outcome {
                try pair.connect(["--timeout", "10"]).wait(whileServing: [listener])
            }
            var dialer = try dial()
            for _ in 0..<1_000 where dialer.status == 68 { dialer = try dial() }
            #expect(dialer.status == 0, "\(dialer.errors)")
            listener.signal(SIGTERM)
            #expect(try listener.wait().status == 143)
        }

        @Test("--quiet reports an error")
        func error() throws {
            let outcome = try Tool.run("connect", "unix:/nowhere/at/all", "--anyone", "-q")
            Tool.expect(outcome, status: 68, "/nowhere/at/all")
        }
    }
}
