import Glibc
import TestSupport
import Testing

extension Integration {
    /// What `blesec` remembers of peers, and what it does when the stored data is unusable or a
    /// peer shows another key.
    @Suite struct PeerMemoryTests {
        let pair: ToolPair
        /// A D-Bus address that does not exist, so that the tool finds no bluetoothd, even if one
        /// runs on this machine.
        let noBus = ["DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/nonexistent/bus"]

        init() throws { pair = try ToolPair() }

        /// Makes a state folder, with the contents of its two files.
        private func makeState(_ name: String, knownPeers: String, lastAddresses: String = "") {
            let status = unsafe mkdir(pair.folder.file(name), 0o700)
            precondition(status == 0, "\(name) cannot be made")
            pair.folder.write("\(name)/known_peers", knownPeers)
            pair.folder.write("\(name)/last_addresses", lastAddresses)
        }

        private func identity(_ name: String) -> [String] {
            ["--identity", pair.folder.file(name)]
        }

        /// Stores the listener with the name `lamp` and the pair's endpoint. Returns the options
        /// that name the state folder.
        private func remember() throws -> [String] {
            let state = ["--state", pair.folder.file("state")]
            let listener = try pair.listen()
            let first = try pair.connect(["--remember", "lamp"] + state)
                .wait(whileServing: [listener])
            try #require(first.status == 0, "\(first.errors)")
            _ = try listener.wait()
            return state
        }

        @Test("a peer that cannot be remembered is not dialed")
        func missingFolder() throws {
            try #require(unsafe symlink("missing", pair.folder.file("blesec")) == 0)
            makeState("loop", knownPeers: "")
            let knownPeers = pair.folder.file("loop/known_peers")
            try #require(
                unsafe unlink(knownPeers) == 0 && symlink("known_peers", knownPeers) == 0)
            let command = ["connect", pair.endpoint(), "--anyone", "--remember", "lamp"]
            let dangling = try Subprocess.run(
                Tool.path, command + identity("dialer"),
                environment: ["XDG_STATE_HOME": pair.folder.path])
            Tool.expect(dangling, status: 66, "\(pair.folder.file("blesec")): no such file")
            let unreadable = try Tool.run(
                arguments: command + identity("dialer") + ["--state", pair.folder.file("loop")])
            Tool.expect(unreadable, status: 66, "known_peers cannot be opened")
        }

        @Test(
            "a bad line in the stored peers does not stop a command that uses no stored peer",
            arguments: ["connect", "chat"])
        func badLine(command: String) throws {
            makeState("blesec", knownPeers: "lamp SHA256:short\n", lastAddresses: "nonsense\n")
            let listener: Subprocess
            if command == "chat" {
                listener = try Tool.start(
                    ["chat", pair.endpoint(), "--listen", "--peer", pair.dialerKey]
                        + identity("listener"), input: .keptOpen, within: 20)
                _ = try listener.line("listening on ")
            } else {
                listener = try pair.listen()
            }
            let dialer = try Subprocess(
                Tool.path,
                [command, pair.endpoint(), "--peer", pair.listenerKey] + identity("dialer"),
                input: .bytes(Array("all of it\n".utf8)),
                environment: ["XDG_STATE_HOME": pair.folder.path])
            if command == "chat" {
                // A chat ends when its input ends, so the listener's input ends only after the line
                // has arrived.
                _ = try listener.output("all of it".utf8.count, whileServing: [dialer])
                listener.endInput()
            }
            let outcomes = try Subprocess.wait([listener, dialer])
            #expect(outcomes.map(\.status) == [0, 0], "\(outcomes.map(\.errors))")
            #expect(outcomes[0].text.hasPrefix("all of it"))
            #expect(!outcomes[1].errors.contains("known_peers"))
        }

        @Test("if a new state folder cannot be synchronized to the disk, no peer is dialed")
        func volatileFolder() throws {
            let state = pair.folder.file("state")
            let outcome = try Tool.run(
                without: .fsync,
                ["connect", pair.endpoint(), "--remember", "lamp", "--state", state]
                    + ["--peer", pair.listenerKey] + identity("dialer"))
            Tool.expect(
                outcome, status: 73, "\(state) cannot be created: Function not implemented")
        }

        @Test(
            "without a home directory, a command that looks up a peer by name asks for --state",
            arguments: [
                ["connect", "peer:lamp"], ["connect", "unix:/nowhere", "--remember", "lamp"],
                ["chat", "peer:lamp"], ["send", "peer:lamp", "/etc/passwd"],
                ["forward", "--allow", "unix:/nowhere", "--at", "peer:lamp"],
            ])
        func noHome(_ words: [String]) throws {
            let outcome = try Subprocess.run(
                "env", ["-u", "HOME", "-u", "XDG_STATE_HOME", Tool.path] + words)
            Tool.expect(
                outcome, status: 64,
                "neither --state nor a home directory says where peers are remembered; see")
        }

        @Test(
            "a HOME that does not exist is no home directory, and is not made",
            arguments: [
                ["pair", "--name", "lamp"], ["connect", "unix:/nowhere", "--remember", "lamp"],
                ["connect", "peer:lamp"], ["peers", "list"],
            ])
        func missingHome(_ words: [String]) throws {
            let outcome = try Subprocess.run(
                Tool.path, words,
                environment: noBus.merging(["HOME": pair.folder.file("missing")]) { $1 })
            Tool.expect(outcome, status: 64, "neither --state nor a home directory says where ")
            #expect(pair.folder.mode("missing") == nil)
        }

        @Test(
            "a path in the environment that is not UTF-8 is refused, and no folder is made",
            arguments: ["XDG_STATE_HOME", "HOME"],
            [
                ["pair", "unix:/nowhere", "--listen", "--name", "lamp"],
                ["connect", "peer:lamp"], ["peers", "list"],
            ])
        func invalidBytesInEnvironment(_ name: String, _ words: [String]) throws {
            let before = pair.folder.names
            let script = #"""
                home="$3/$(printf 'x\377')" && mkdir "$home" &&
                env -u XDG_STATE_HOME "$2=$home" "$1" $4
                status=$?
                rmdir "$home"
                exit $status
                """#
            let outcome = try Subprocess.run(
                "sh",
                ["-c", script, "sh", Tool.path, name, pair.folder.path]
                    + [words.joined(separator: " ")])
            Tool.expect(
                outcome, status: 64, "the path in the variable \(name) is not UTF-8: set it to ")
            #expect(pair.folder.names == before)
        }

        @Test("a relative path in XDG_STATE_HOME is ignored")
        func relativeState() throws {
            for name in [".local", ".local/state"] {
                try #require(unsafe mkdir(pair.folder.file(name), 0o700) == 0)
            }
            makeState(".local/state/blesec", knownPeers: "lamp \(pair.listenerKey)\n")
            let outcome = try Subprocess.run(
                Tool.path, ["peers", "list"],
                environment: ["XDG_STATE_HOME": "relative", "HOME": pair.folder.path])
            #expect(outcome.text == "lamp \(pair.listenerKey)\n", "\(outcome.errors)")
        }

        @Test("without --remember nothing is stored, and no state folder is made")
        func nothingRemembered() throws {
            let listener = try pair.listen(["--keep"])
            let state = pair.folder.file("nothing")
            for words in [["connect", pair.endpoint()], ["connect", "peer:\(pair.listenerKey)"]] {
                let trust = words[1].hasPrefix("peer:") ? [] : ["--peer", pair.listenerKey]
                _ = try Subprocess(
                    Tool.path, words + identity("dialer") + trust,
                    environment: noBus.merging(["XDG_STATE_HOME": state, "HOME": state]) { $1 }
                ).wait(whileServing: [listener])
            }
            #expect(pair.folder.mode("nothing") == nil)
            listener.signal(15)
            let served = try listener.wait()
            #expect(served.errors.contains("channel complete with \(pair.dialerKey)"))
        }

        @Test("a command that uses stored peers reports a bad line before it dials")
        func badLineBeforeDial() throws {
            let folder = pair.folder.file("blesec")
            makeState("blesec", knownPeers: "# a comment\nlamp SHA256:short\n")
            // No listener exists at this endpoint: an attempt to dial would end with status 68.
            let unusedEndpoint = pair.endpoint()
            for words in [
                ["connect", unusedEndpoint, "--anyone", "--remember", "x", "--state", folder],
                ["connect", unusedEndpoint, "--anyone", "--state", folder],
                ["chat", unusedEndpoint, "--anyone", "--state", folder],
                ["connect", "peer:lamp", "--state", folder],
            ] {
                Tool.expect(
                    try Tool.run(arguments: words), status: 65, "known_peers, line 2: a fingerprint"
                )
            }
            let environment = ["XDG_STATE_HOME": pair.folder.path]
            let byName = try Subprocess.run(
                Tool.path, ["connect", "peer:lamp"], environment: environment)
            Tool.expect(byName, status: 65, "known_peers, line 2: a fingerprint")
            pair.folder.write("blesec/known_peers", "")
            pair.folder.write("blesec/last_addresses", "nonsense\n")
            let badAddress = try Subprocess.run(
                Tool.path, ["connect", unusedEndpoint, "--anyone", "--remember", "x"],
                environment: environment)
            Tool.expect(badAddress, status: 65, "last_addresses, line 1: a line has a fingerprint")
        }

        @Test(
            "a peer that is named by its key is searched for, even if the stored peers are unusable"
        )
        func keyNeedsNoStoredPeers() throws {
            makeState("blesec", knownPeers: "lamp SHA256:short\n")
            let outcome = try Subprocess.run(
                Tool.path, ["connect", "peer:\(pair.listenerKey)"] + identity("dialer"),
                environment: noBus.merging(["XDG_STATE_HOME": pair.folder.path]) { $1 })
            #expect(outcome.status == 68, "\(outcome.errors)")
            let lines = outcome.errors.split(separator: "\n")
            try #require(lines.count == 2, "\(outcome.errors)")
            #expect(lines[0].hasPrefix("what is remembered is not used: "))
            #expect(lines[1].hasPrefix("blesec: ") && lines[1].contains("bluetoothd"))
        }

        @Test(
            "if another key is at the last address and the peer is not found, the error names that key"
        )
        func changedKey() throws {
            let state = try remember()
            // Another peer now listens at the stored address. A comment moves the name to the
            // file's second line, so that the error has to give the right line.
            let file = pair.folder.file("state/known_peers")
            pair.folder.write("state/known_peers", "# a comment\nlamp \(pair.listenerKey)\n")
            let otherListener = try Tool.start(
                ["listen", pair.endpoint(), "--anyone", "--keep", "--timeout", "20"]
                    + identity("dialer"))
            _ = try otherListener.line("listening on ")
            func dial(_ words: [String], _ environment: [String: String]) throws -> String {
                let outcome = try Subprocess(
                    Tool.path, ["connect", "peer:lamp"] + state + words, environment: environment
                ).wait(whileServing: [otherListener])
                #expect(outcome.status == 77, "\(outcome.errors)")
                #expect(outcome.output == [])
                return String(try #require(outcome.errors.split(separator: "\n").last))
            }
            let keyMismatch =
                "the key of `lamp` is another one: whoever is at \(pair.endpoint()) shows "
                + "\(pair.dialerKey), and \(file), line 2, has \(pair.listenerKey). "
            let plain = try dial([], noBus)
            #expect(plain.hasPrefix("blesec: " + keyMismatch), "\(plain)")
            #expect(plain.contains("; elsewhere it was not found: bluetoothd does not run"))
            let json = try dial(["--json"], noBus)
            #expect(json.contains(#""code": "untrusted""#) && json.contains(keyMismatch), "\(json)")
            // A socket that never answers stands for the bus, so that the search times out. The
            // error's reason is still the other key.
            let bus = RawSocket.listening(at: pair.folder.file("bus"))
            let timedOut = try dial(
                ["--timeout", "4"],
                ["DBUS_SYSTEM_BUS_ADDRESS": "unix:path=\(pair.folder.file("bus"))"])
            #expect(timedOut.hasPrefix("blesec: " + keyMismatch), "\(timedOut)")
            #expect(timedOut.contains("was ready within 4 s"), "\(timedOut)")
            bus.close()
            otherListener.signal(15)
            _ = try otherListener.wait()
        }

        @Test(
            "if the peer at the last address refuses the dialer and the search fails, the error is the refusal"
        )
        func refusedThere() throws {
            let state = try remember()
            let listener = try pair.listen(["--keep"])
            let refused = try Subprocess(
                // Without --identity the tool shows a new key, and the peer refuses it.
                Tool.path, ["connect", "peer:lamp"] + state, environment: noBus
            ).wait(whileServing: [listener])
            #expect(refused.status == 69, "\(refused.errors)")
            #expect(refused.errors.contains("the peer refuses this identity; elsewhere it was "))
            listener.signal(15)
            _ = try listener.wait()
        }

        @Test(
            "listen --remember stores the peer's key under the name, and then accepts no other key")
        func listenerRemembers() throws {
            let state = ["--state", pair.folder.file("state"), "--remember", "anna"]
            for options in [["--anyone"], []] {
                let listener = try pair.listen(state, trust: options)
                let dialer = try pair.connect().wait(whileServing: [listener])
                #expect(dialer.status == 0, "\(dialer.errors)")
                #expect(try listener.wait(whileServing: []).status == 0)
                let stored = pair.folder.read("state/known_peers") ?? []
                #expect(String(decoding: stored, as: UTF8.self) == "anna \(pair.dialerKey)\n")
            }
            // Another key gets no channel, whatever the options say.
            try #require(try Tool.run("keygen", pair.folder.file("stranger")).status == 0)
            let listener = try pair.listen(state + ["--timeout", "5"], trust: ["--anyone"])
            let stranger = try Tool.start([
                "connect", pair.endpoint(), "--identity", pair.folder.file("stranger"),
                "--peer", pair.listenerKey,
            ]).wait(whileServing: [listener])
            #expect(stranger.status == 69, "\(stranger.errors)")
            _ = try listener.line("blesec: no channel with ")
            listener.signal(15)
            #expect(try listener.wait().status == 143)
        }

        @Test("listen --keep --remember serves the first peer, and refuses all others")
        func listenerKeepsFirst() throws {
            let state = ["--state", pair.folder.file("state"), "--remember", "anna"]
            let listener = try pair.listen(state + ["--keep"], trust: ["--anyone"])
            let first = try pair.connect().wait(whileServing: [listener])
            #expect(first.status == 0, "\(first.errors)")
            try #require(try Tool.run("keygen", pair.folder.file("stranger")).status == 0)
            let stranger = try Tool.start(
                [
                    "connect", pair.endpoint(), "--identity", pair.folder.file("stranger"),
                    "--peer", pair.listenerKey,
                ], input: .bytes(Array("secret".utf8))
            ).wait(whileServing: [listener])
            // Since the name has another key, the stranger is refused in spite of --anyone.
            #expect(stranger.status == 69, "\(stranger.errors)")
            let again = try pair.connect(input: .bytes(Array("more".utf8)))
                .wait(whileServing: [listener])
            #expect(again.status == 0, "\(again.errors)")
            listener.signal(15)
            let served = try listener.wait()
            #expect(served.text == "more")
        }

        @Test("a known name does not override --peer: both have to accept the peer")
        func nameAndPeer() throws {
            let state = try remember()
            let made = try Tool.run("keygen", pair.folder.file("other"))
            let line = try #require(made.text.split(separator: "\n").last)
            let other = String(line.dropFirst("fingerprint: ".count))
            let listener = try pair.listen()
            let excluded = try pair.connect(
                ["--remember", "lamp"] + state, trust: ["--peer", other],
                input: .bytes(Array("secret".utf8))
            ).wait(whileServing: [listener])
            #expect(excluded.status == 77, "\(excluded.errors)")
            #expect(excluded.errors.contains("is not among those of --peer"))
            let named = try pair.connect(
                ["--remember", "lamp"] + state,
                trust: ["--peer", other, "--peer", pair.listenerKey],
                input: .bytes(Array("hello".utf8))
            ).wait(whileServing: [listener])
            #expect(named.status == 0, "\(named.errors)")
            #expect(try listener.wait().text == "hello")
        }

        @Test(
            "peer:NAME does not go with options that say whom to accept",
            arguments: [
                ["connect", "peer:lamp"], ["chat", "peer:lamp"],
                ["send", "peer:lamp", "/etc/passwd"],
                ["forward", "tcp:127.0.0.1:1", "tcp:127.0.0.1:2", "--at", "peer:lamp"],
            ])
        func nameAndOptions(_ command: [String]) throws {
            let state = try remember()
            for options in [["--anyone"], ["--peer", pair.listenerKey]] {
                let outcome = try Tool.run(arguments: command + options + state)
                #expect(outcome.status == 64, "\(outcome.errors)")
                #expect(outcome.errors.contains("does not go with peer:KEY"), "\(outcome.errors)")
            }
        }

        @Test("--remember with the name of another peer does not go with peer:KEY")
        func nameOfAnother() throws {
            let state = try remember()
            let outcome = try Tool.run(
                arguments: ["connect", "peer:\(pair.dialerKey)", "--remember", "lamp"] + state)
            Tool.expect(
                outcome, status: 77,
                "the key that --remember names, \(pair.listenerKey), is not that of the operand")
        }

        @Test("peer:NAME also takes a name in the form that `blesec peers list` prints")
        func listedName() throws {
            makeState(
                "state", knownPeers: "desk%20lamp \(pair.listenerKey)\n",
                lastAddresses: "\(pair.listenerKey) \(pair.endpoint())%20public\n")
            let state = ["--state", pair.folder.file("state")]
            for name in ["desk%20lamp", "desk lamp"] {
                let listener = try pair.listen()
                let words = ["connect", "peer:\(name)"] + identity("dialer") + state
                let dialer = try Tool.start(words)
                let outcomes = try Subprocess.wait([dialer, listener])
                #expect(outcomes.map(\.status) == [0, 0], "\(outcomes.map(\.errors))")
            }
        }

        @Test("listen --remember stores the peer also with --persist")
        func persistentListenerRemembers() throws {
            let state = ["--state", pair.folder.file("state"), "--remember", "anna", "--persist"]
            let listener = try pair.listen(state)
            let dialer = try pair.connect(["--persist"]).wait(whileServing: [listener])
            #expect(dialer.status == 0, "\(dialer.errors)")
            #expect(try listener.wait().status == 0)
            let stored = pair.folder.read("state/known_peers") ?? []
            #expect(String(decoding: stored, as: UTF8.self) == "anna \(pair.dialerKey)\n")
        }

        @Test("if a peer cannot be stored as requested, there is no channel")
        func cannotStore() throws {
            makeState("state", knownPeers: "")
            let listener = try pair.listen()
            // Another process keeps the file locked, for longer than the tool waits.
            let lock = try Subprocess(
                "flock",
                [pair.folder.file("state/known_peers"), "sh", "-c", "echo held >&2; exec sleep 8"])
            _ = try lock.line("held")
            let dialer = try pair.connect(
                ["--remember", "lamp", "--state", pair.folder.file("state")],
                input: .bytes(Array("secret".utf8))
            ).wait(whileServing: [listener, lock])
            Tool.expect(dialer, status: 75, "known_peers is locked by another process")
            let served = try listener.wait(whileServing: [lock])
            #expect(served.status == 76 && served.output == [], "\(served.errors)")
            lock.signal(15)
        }

        @Test(
            "storing a name again with another key is an error that names the stored key and its line"
        )
        func otherKeyForName() throws {
            let state = try remember()
            let otherListener = try Tool.start([
                "listen", pair.endpoint(), "--anyone", "--timeout", "20",
            ])
            _ = try otherListener.line("listening on ")
            let refused = try pair.connect(
                ["--remember", "lamp"] + state, trust: ["--anyone"]
            ).wait(whileServing: [otherListener])
            Tool.expect(refused, status: 77, "the key of `lamp` is another one: whoever is at ")
            #expect(refused.errors.contains("known_peers, line 1, has \(pair.listenerKey)"))
            otherListener.signal(15)
            _ = try otherListener.wait()
        }

        @Test(
            "chat and forward store the name with the peer's key, and the dialed address",
            arguments: ["chat", "forward"])
        func connectionRemembers(command: String) throws {
            let words =
                command == "chat"
                ? [command, pair.endpoint()]
                : [command, "--allow", "tcp:127.0.0.1:9", "--at", pair.endpoint()]
            let listener = try Tool.start(
                words + ["--listen", "--peer", pair.dialerKey] + identity("listener"),
                input: .keptOpen)
            _ = try listener.line("listening on ")
            let dialer = try Tool.start(
                words + ["--peer", pair.listenerKey, "--remember", "lamp"] + identity("dialer")
                    + ["--state", pair.folder.file("state")], input: .keptOpen)
            _ = try dialer.line("channel ready: ", whileServing: [listener])
            let names = String(decoding: pair.folder.read("state/known_peers") ?? [], as: UTF8.self)
            #expect(names == "lamp \(pair.listenerKey)\n")
            let stored = pair.folder.read("state/last_addresses") ?? []
            let address = "\(pair.endpoint()) public".escapingBlanks()
            #expect(
                String(decoding: stored, as: UTF8.self) == "\(pair.listenerKey) \(address)\n")
            for tool in [dialer, listener] { tool.signal(SIGKILL) }
            _ = try Subprocess.wait([dialer, listener])
        }

        @Test("a socket's relative path is stored as an absolute path, even with blanks")
        func relativePath() throws {
            let state = ["--state", pair.folder.file("state")]
            let folder = pair.folder.file("a b")
            try #require(unsafe mkdir(folder, 0o700) == 0)
            let listener = try Tool.start(
                ["listen", "unix:\(folder)/so cket", "--peer", pair.dialerKey, "--keep"]
                    + identity("listener"))
            _ = try listener.line("listening on ")
            let words =
                ["connect", "unix:./so cket", "--peer", pair.listenerKey, "--remember", "lamp"]
                + identity("dialer") + state
            let remembered = try Subprocess(
                "sh", ["-c", "cd \"$1\" && shift && exec \"$@\"", "sh", folder, Tool.path] + words
            ).wait(whileServing: [listener])
            #expect(remembered.status == 0, "\(remembered.errors)")
            let stored = try #require(pair.folder.read("state/last_addresses"))
            let address = "unix:\(folder)/so cket public".escapingBlanks()
            // The last word of a stored address is its type.
            #expect(
                String(decoding: stored, as: UTF8.self) == "\(pair.listenerKey) \(address)\n")
            let byName = try Subprocess(
                Tool.path, ["connect", "peer:lamp"] + identity("dialer") + state,
                environment: noBus
            ).wait(whileServing: [listener])
            #expect(byName.status == 0, "\(byName.errors)")
            #expect(byName.errors.hasPrefix("dialing unix:\(folder)/so cket, where"))
            listener.signal(15)
            _ = try listener.wait()
        }
    }
}

extension String {
    /// The form of an address in `last_addresses`.
    fileprivate func escapingBlanks() -> String {
        split(separator: " ", omittingEmptySubsequences: false).joined(separator: "%20")
    }
}
