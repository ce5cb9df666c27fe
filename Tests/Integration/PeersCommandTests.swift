import BLESec
import BLESecChannelCore
import BLESecDelivery
import BLESecStore
import Glibc
import TestSupport
import Testing

extension Integration {
    /// `blesec peers`, with a state folder that the tool or a person has written.
    @Suite struct PeersCommandTests {
        private let folder = ScratchFolder()
        private var state: String { folder.file("state") }
        private var stores: String { folder.file("stores") }

        init() throws { try #require(unsafe mkdir(state, 0o700) == 0) }

        private static func key(_ number: UInt8) -> Fingerprint {
            Fingerprint(subjectPublicKeyInfo: [number])
        }

        private let lamp = Self.key(1)
        private let door = Self.key(2)
        private static let address = "l2cap:AA:BB:CC:DD:EE:FF/0x80"

        /// Writes the two files: lamp with a comment and an address, and door with neither.
        private func remember() {
            write("# my peers\nlamp \(lamp) in the hall\n\ndoor \(door)\n")
            write(addresses: "\(lamp) \(Self.address)%20random\n")
        }

        private func write(_ names: String) { folder.write("state/known_peers", names) }
        private func write(addresses: String) { folder.write("state/last_addresses", addresses) }
        private var names: String { text("known_peers") }
        private var addresses: String { text("last_addresses") }
        private func text(_ file: String) -> String {
            String(decoding: folder.read("state/\(file)") ?? [], as: UTF8.self)
        }

        private func run(_ words: String...) throws -> Subprocess.Outcome {
            try Tool.run(arguments: ["peers", words[0], "--state", state] + words.dropFirst())
        }

        /// Makes a store with messages of these lengths. Messages 1 to `sentThrough` may have been
        /// sent.
        private func makeStore(
            _ directory: String, own: UInt8 = 9, peer: Fingerprint, lengths: [Int],
            sentThrough: UInt64 = 0
        ) throws {
            let store = try PeerConnection.Store.open(
                in: directory, own: Self.key(own), peer: peer
            ).endpoint
            var changes = lengths.enumerated().map { index, length in
                StoreChange.message(
                    .init(id: UInt64(index + 1), bytes: [UInt8](repeating: 1, count: length)))
            }
            changes.append(.mayHaveLeft(through: sentThrough))
            try store.commit(changes)
            store.close()
        }

        private func outbox(_ directory: String) throws -> String {
            try Tool.run("outbox", directory, "list").text
        }

        // MARK: - Showing

        @Test("list prints each peer on a line, and show describes one peer")
        func listAndShow() throws {
            remember()
            let listed = try run("list")
            #expect(listed.status == 0 && listed.errors == "", "\(listed.errors)")
            #expect(listed.text == "lamp \(lamp) \(Self.address) random\ndoor \(door)\n")
            let json = """
                {"name": "lamp", "fingerprint": "\(lamp)", "address": "\(Self.address)", \
                "address-type": "random", "comment": "in the hall"}

                """
            #expect(
                try run("list", "--json").text == json + """
                    {"name": "door", "fingerprint": "\(door)", "address": null, "address-type": \
                    null, "comment": null}

                    """)
            let shown = try run("show", "lamp")
            #expect(
                shown.text == """
                    name: lamp
                    fingerprint: \(lamp)
                    address: \(Self.address) random
                    comment: in the hall

                    """, "\(shown.errors)")
            #expect(try run("show", "lamp", "--json").text == json)
            #expect(try run("show", "door").text == "name: door\nfingerprint: \(door)\n")
        }

        @Test("if nobody is remembered, list says so on standard error, and succeeds")
        func nobody() throws {
            let environment = ["XDG_STATE_HOME": folder.file("none")]
            let missing = try Subprocess.run(
                Tool.path, ["peers", "list"], environment: environment)
            write("# nobody yet\n")
            for outcome in [missing, try run("list")] {
                #expect(outcome.status == 0 && outcome.output == [])
                #expect(outcome.errors == "nobody is remembered\n")
            }
            let json = try run("list", "--json")
            #expect(json.status == 0 && json.output == [])
            #expect(json.errors == "{\"event\": \"nobody\"}\n")
            let shown = try Subprocess.run(
                Tool.path, ["peers", "show", "lamp"], environment: environment)
            Tool.expect(shown, status: 68, "nobody called `lamp` is remembered\n")
            #expect(folder.mode("none") == nil)
            // A folder that the command line names has to exist.
            Tool.expect(
                try Tool.run("peers", "list", "--state", folder.file("none")), status: 66,
                "none: no such file")
        }

        @Test("for an unknown name the exit status is 68, and the error suggests a similar name")
        func unknownName() throws {
            remember()
            for words in [
                ["show", "lmap"], ["rename", "lmap", "x"], ["forget", "lmap", "--yes"],
            ] {
                Tool.expect(
                    try Tool.run(arguments: ["peers"] + words + ["--state", state]), status: 68,
                    "nobody called `lmap` is remembered in \(state): did you mean `lamp`?\n")
            }
            Tool.expect(try run("show", "window"), status: 68, "is remembered in \(state)\n")
            Tool.expect(try run("shwo", "lamp"), status: 64, "did you mean `show`?")
            Tool.expect(try run("show"), status: 64, "NAME is missing")
            Tool.expect(try run("rename", "lamp"), status: 64, "NEW is missing")
            Tool.expect(try run("show", ""), status: 64, "NAME is empty")
            Tool.expect(try run("list", "lamp"), status: 64, "unexpected argument `lamp`")
        }

        @Test("a peer whose name stands on several lines is one peer, with all comments")
        func repeatedName() throws {
            write("lamp \(lamp) one\ndesk \(lamp)\nlamp \(lamp)\n%6Camp \(lamp) two\n")
            #expect(try run("list").text == "lamp \(lamp)\ndesk \(lamp)\n")
            #expect(try run("show", "lamp").text.hasSuffix("comment: one; two\n"))
            #expect(try run("rename", "lamp", "hall").status == 0)
            #expect(
                names == "hall \(lamp) one\ndesk \(lamp)\nhall \(lamp)\nhall \(lamp) two\n")
            #expect(try run("forget", "hall", "--yes").status == 0)
            #expect(names == "desk \(lamp)\n")
        }

        private static let unusualNames = [
            "two words", "a\nb", "\u{1B}[2J", "100%", "#hash", "Zoë", "\u{202E}x", "-x", "a`b",
            "tab\t", " ", "\u{301}x", "\u{2028}", String(repeating: "n", count: 255),
        ]

        @Test(
            "a peer is found by its name and by what list prints for it, and control characters are escaped",
            arguments: unusualNames)
        func unusualName(_ name: String) throws {
            remember()
            #expect(try run("rename", "lamp", "--", name).status == 0)
            #expect(names.hasSuffix(" \(lamp) in the hall\n\ndoor \(door)\n"))
            #expect(names.utf8.allSatisfy { (0x20...0x7E).contains($0) || $0 == 0x0A })
            let listed = try run("list").text
            let line = try #require(listed.split(separator: "\n").first)
            #expect(listed.filter { $0 == "\n" }.count == 2)
            let fields = line.split(separator: " ")
            #expect(fields.count == 4 && fields[1] == lamp.description, "\(line)")
            let printedName = String(fields[0])
            #expect(
                printedName == "Zoë" || name == printedName || printedName.contains("%"))
            let question = try forgetAtTerminal("-- '\(printedName)'", ["n\n"])
            #expect(question.text.contains("nothing was removed"))
            for text in [listed, try run("show", "--", name).text, question.text] {
                let isPlain = text.replacing("\r\n", with: "\n").unicodeScalars.allSatisfy {
                    $0 == "\n"
                        || ![.control, .format, .lineSeparator].contains(
                            $0.properties.generalCategory)
                }
                #expect(isPlain, "\(text)")
            }
            let same = try run("show", "--json", "--", name).text
            let json = try run("show", "--json", "--", printedName)
            #expect(json.status == 0 && json.text == same)
            #expect(try run("rename", "--", printedName, "lamp").status == 0)
            #expect(names == "# my peers\nlamp \(lamp) in the hall\n\ndoor \(door)\n")
        }

        @Test(
            "an operand that is one peer's name, and also what list prints for another peer, is refused"
        )
        func ambiguousOperand() throws {
            write("a%2520b \(lamp)\na%20b \(door)\n")
            for words in [["show", "a%20b"], ["forget", "--yes", "a%20b"]] {
                Tool.expect(
                    try Tool.run(arguments: ["peers"] + words + ["--state", state]), status: 64,
                    "`a%20b` is the name of one peer, and what `blesec peers list` prints for "
                        + "another; write `a%2520b` or `a b`")
            }
            #expect(try run("show", "a%2520b", "--json").text.contains("\"a%20b\""))
            #expect(try run("show", "a b").text.contains(door.description))
        }

        @Test("a public address, and a text that is no address, are shown without a type")
        func addressWithoutType() throws {
            write("lamp \(lamp)\ndoor \(door)\n")
            write(addresses: "\(lamp) unix:/a%20b%20public\n\(door) by%1Bhand\n")
            #expect(
                try run("list").text
                    == "lamp \(lamp) unix:/a b\ndoor \(door) by\\u{1B}hand\n")
            #expect(
                try run("show", "door", "--json").text.contains(
                    #""address": "by\u001bhand", "address-type": null"#))
            #expect(
                try run("show", "lamp", "--json").text.contains(
                    #""address": "unix:/a b", "address-type": null"#))
        }

        @Test("a malformed file, and a file that others may change, stop every command")
        func badFiles() throws {
            let commands = [
                ["list"], ["show", "lamp"], ["rename", "lamp", "x"], ["forget", "lamp", "--yes"],
            ]
            func expect(_ reason: String, at location: SourceLocation = #_sourceLocation) throws {
                for words in commands {
                    let outcome = try Tool.run(arguments: ["peers"] + words + ["--state", state])
                    Tool.expect(outcome, status: 65, reason, at: location)
                }
            }
            write("lamp \(lamp)\ndoor SHA256:short\n")
            try expect("\(state)/known_peers, line 2: a fingerprint")
            #expect(names == "lamp \(lamp)\ndoor SHA256:short\n")
            write("lamp \(lamp)\n")
            write(addresses: "nonsense\n")
            try expect("\(state)/last_addresses, line 1: a line has a fingerprint")
            remember()
            unsafe chmod(folder.file("state/known_peers"), 0o620)
            try expect("run `chmod go-w ")
            unsafe chmod(folder.file("state/known_peers"), 0o600)
            unsafe chmod(state, 0o750)
            try expect("is open to others")
            #expect(names.contains("lamp \(lamp) in the hall\n"))
        }

        // MARK: - Renaming

        @Test(
            "rename keeps the comment, the address and the rest of the file")
        func renamed() throws {
            remember()
            let outcome = try run("rename", "lamp", "desk lamp")
            #expect(outcome.status == 0 && outcome.text == "`lamp` is now `desk lamp`\n")
            #expect(names == "# my peers\ndesk%20lamp \(lamp) in the hall\n\ndoor \(door)\n")
            #expect(addresses == "\(lamp) \(Self.address)%20random\n")
            #expect(
                try run("rename", "desk%20lamp", "lamp", "--json").text
                    == "{\"renamed\": \"desk lamp\", \"name\": \"lamp\", "
                    + "\"fingerprint\": \"\(lamp)\"}\n")
            #expect(try run("rename", "lamp", "lamp").status == 0)
        }

        @Test("rename refuses the name of another key, and a name that is too long")
        func renameRefused() throws {
            remember()
            let before = names
            Tool.expect(
                try run("rename", "lamp", "door"), status: 77,
                "door is known with \(door) in \(state)/known_peers, and lamp with \(lamp)")
            Tool.expect(
                try run("rename", "lamp", String(repeating: "n", count: 256)), status: 64,
                "a name to remember has 1 to 255 bytes")
            Tool.expect(try run("rename", "lamp", ""), status: 64, "NEW is empty")
            #expect(names == before)
        }

        /// The texts of keys: a fingerprint, and the base64 of a public key.
        private static let keyTexts = [
            key(3).description, "CQAA\(String(repeating: "A", count: 39))=",
        ]

        @Test("a key is refused as the name of a peer", arguments: keyTexts)
        func keyAsName(_ text: String) throws {
            remember()
            let before = names
            for words in [
                ["peers", "rename", "lamp", text],
                ["connect", "unix:/nowhere", "--anyone", "--remember", text],
                ["pair", "unix:/nowhere", "--listen", "--name", text],
            ] {
                let outcome = try Tool.run(arguments: words + ["--state", state])
                Tool.expect(outcome, status: 64, "`\(text)` is a key, and peer:NAME would mean ")
            }
            #expect(names == before)
        }

        @Test(
            "a stored name that is a key can be shown, renamed and forgotten", arguments: keyTexts)
        func storedKeyAsName(_ text: String) throws {
            write("\(text) \(lamp)\n")
            #expect(try run("show", text).text.hasPrefix("name: \(text)\n"))
            let renamed = try run("rename", text, "lamp")
            #expect(renamed.status == 0, "\(renamed.errors)")
            #expect(names == "lamp \(lamp)\n")
            write("\(text) \(lamp)\n")
            let forgotten = try run("forget", text, "--yes")
            #expect(forgotten.status == 0, "\(forgotten.errors)")
            #expect(names == "")
        }

        @Test("if processes rename different peers to one name at the same time, one succeeds")
        func concurrentRenames() throws {
            write((1...6).map { "peer\($0) \(Self.key(UInt8($0)))\n" }.joined())
            let processes = try (1...6).map {
                try Tool.start(["peers", "rename", "peer\($0)", "lamp", "--state", state])
            }
            let outcomes = try Subprocess.wait(processes)
            #expect(outcomes.map(\.status).sorted() == [0, 77, 77, 77, 77, 77])
            #expect(names.split(separator: "\n").count == 6)
            // Processes that rename to different names at once all succeed.
            let others = try outcomes.indices.filter { outcomes[$0].status != 0 }.map {
                try Tool.start([
                    "peers", "rename", "peer\($0 + 1)", "new\($0 + 1)", "--state", state,
                ])
            }
            #expect(try Subprocess.wait(others).allSatisfy { $0.status == 0 })
            #expect(!names.contains("peer") && names.split(separator: "\n").count == 6)
        }

        // MARK: - Forgetting

        @Test("forget removes the name and the last address, and nothing else")
        func forgotten() throws {
            remember()
            let outcome = try run("forget", "lamp", "--yes")
            #expect(outcome.status == 0 && outcome.errors == "", "\(outcome.errors)")
            #expect(outcome.text == "removed `lamp` and its last address\n")
            #expect(names == "# my peers\n\ndoor \(door)\n" && addresses == "")
            Tool.expect(try run("forget", "lamp", "--yes"), status: 68, "nobody called `lamp`")
            #expect(
                try run("forget", "door", "--yes", "--json").text
                    == "{\"forgotten\": \"door\", \"fingerprint\": \"\(door)\", "
                    + "\"address-removed\": false, \"unfinished\": [], \"dropped\": 0, "
                    + "\"bytes\": 0}\n")
            #expect(names == "# my peers\n\n")
        }

        @Test("forget keeps the last address of a key that has another name")
        func keyWithOtherName() throws {
            remember()
            write("lamp \(lamp)\ndesk \(lamp)\n")
            #expect(
                try forgetAtTerminal("lamp", ["y\n"]).text.contains(
                    "The key stays known as `desk`, and its last address stays.\r\n"))
            #expect(names == "desk \(lamp)\n" && addresses.hasPrefix(lamp.description))
            #expect(try run("forget", "desk", "--yes").status == 0)
            #expect(addresses == "")
        }

        @Test("an unfinished pairing under the name is removed with the name")
        func unfinishedPairing() throws {
            remember()
            let file = KnownPeersFile(folder.file("state/known_peers"))
            for (name, key) in [("lamp", lamp), ("door", door), ("new", Self.key(3))] {
                try file.keepPending(
                    .init(
                        name: name, key: key, transcript: [UInt8](repeating: 1, count: 32),
                        isVerified: true))
            }
            write("lamp \(lamp)\nold \(door)\n")
            let question = try forgetAtTerminal("lamp", ["y\n"]).text
            #expect(
                question.contains("  the unfinished pairing as `lamp` with the key \(lamp)\r\n"))
            // The pairing `door` has the key of `old`, but another name, and stays.
            #expect(try !forgetAtTerminal("old", ["y\n"]).text.contains("pairing"))
            #expect(try file.pendingPeers().map(\.name) == ["door", "new"])
            write("lamp \(lamp)\n")
            folder.write("state/known_peers.pending", "nonsense\n")
            Tool.expect(
                try run("forget", "lamp", "--yes"), status: 65,
                "known_peers.pending, line 1: this line is not")
            #expect(names == "lamp \(lamp)\n")
        }

        @Test("forget removes all unfinished pairings under a name, also if no peer has the name")
        func unfinishedPairingsUnderName() throws {
            remember()
            let file = KnownPeersFile(folder.file("state/known_peers"))
            // Two other devices have begun to pair as lamp, and one as phone; none has finished.
            for (name, key) in [
                ("lamp", Self.key(3)), ("lamp", Self.key(5)), ("phone", Self.key(4)),
            ] {
                try file.keepPending(
                    .init(
                        name: name, key: key, transcript: [UInt8](repeating: 1, count: 32),
                        isVerified: true))
            }
            let question = try forgetAtTerminal("lamp", ["y\n"]).text
            for key in [Self.key(3), Self.key(5)] {
                #expect(
                    question.contains("  the unfinished pairing as `lamp` with the key \(key)\r\n"))
            }
            #expect(
                question.contains(
                    "removed `lamp` and its last address and its unfinished pairing with "
                        + "\(Self.key(3)) and its unfinished pairing with \(Self.key(5))\r\n"))
            #expect(names == "# my peers\n\ndoor \(door)\n")
            #expect(try file.pendingPeers().map(\.name) == ["phone"])
            #expect(
                try forgetAtTerminal("phone", ["n\n"]).text.contains(
                    "  the unfinished pairing as `phone` with the key \(Self.key(4))\r\n"))
            #expect(
                try run("forget", "phone", "--yes", "--json").text
                    == "{\"forgotten\": \"phone\", \"fingerprint\": \"\(Self.key(4))\", "
                    + "\"address-removed\": false, \"unfinished\": [\"\(Self.key(4))\"], "
                    + "\"dropped\": 0, \"bytes\": 0}\n")
            #expect(try file.pendingPeers().isEmpty)
            #expect(names == "# my peers\n\ndoor \(door)\n")
            Tool.expect(try run("forget", "phone", "--yes"), status: 68, "nobody called `phone`")
        }

        @Test("forget --store drops the peer's messages that have not left, and no others")
        func droppedMessages() throws {
            remember()
            try makeStore(stores, peer: lamp, lengths: [100, 20, 3], sentThrough: 1)
            try makeStore(stores, own: 8, peer: lamp, lengths: [7])
            try makeStore(stores, peer: door, lengths: [50])
            try makeStore(folder.file("more"), peer: lamp, lengths: [1])
            try makeStore(folder.file("other"), peer: door, lengths: [1])
            let outcome = try run(
                "forget", "lamp", "--yes", "--store", stores, "--store", stores, "--store",
                folder.file("more"), "--store", folder.file("other"))
            #expect(outcome.status == 0, "\(outcome.errors)")
            #expect(
                outcome.text
                    == "removed `lamp` and its last address, and dropped 4 messages with 31 bytes\n"
            )
            #expect(
                outcome.errors
                    == "1 message with 100 bytes may have arrived, and cannot be dropped from "
                    + "\(stores)\n")
            let rest = try outbox(stores)
            #expect(rest.contains("for \(lamp)\n1: 100 bytes, may have arrived\n1 message with"))
            #expect(rest.contains("for \(lamp)\nnothing waits\n"))
            #expect(rest.contains("for \(door)\n1: 50 bytes, queued\n"))
            #expect(try outbox(folder.file("more")).hasSuffix("nothing waits\n"))
            #expect(names == "# my peers\n\ndoor \(door)\n")
            let json = try run("forget", "door", "--yes", "--json", "--store", stores)
            #expect(json.text.hasSuffix("\"dropped\": 1, \"bytes\": 50}\n"), "\(json.errors)")
        }

        @Test("if a store is in use, is damaged or does not exist, forget removes nothing")
        func unusableStore() throws {
            remember()
            let before = (names, addresses)
            try makeStore(stores, peer: lamp, lengths: [100])
            try makeStore(folder.file("bad"), peer: door, lengths: [1])
            let used = try PeerConnection.Store.open(
                in: folder.file("bad"), own: Self.key(9), peer: door)
            func expect(_ status: Int32, _ directory: String, _ reason: String) throws {
                Tool.expect(
                    try run("forget", "lamp", "--yes", "--store", stores, "--store", directory),
                    status: status, reason)
            }
            try expect(74, folder.file("bad"), "is in use by another process")
            used.endpoint.close()
            for name in try Subprocess.run("ls", [folder.file("bad")]).text.split(separator: "\n") {
                folder.write("bad/\(name)", "no database")
            }
            try expect(74, folder.file("bad"), "is damaged")
            try expect(66, folder.file("none"), "none: no such file")
            try expect(66, state, "there is no store in \(state)")
            #expect((names, addresses) == before)
            #expect(try outbox(stores).contains("1: 100 bytes, queued"))
        }

        @Test("if a file stays locked, the name stays, and the same command works later")
        func lockedFile() throws {
            remember()
            try makeStore(stores, peer: lamp, lengths: [100])
            for file in ["last_addresses", "known_peers"] {
                let lock = try Subprocess(
                    "flock", [folder.file("state/\(file)"), "sh", "-c", "echo held >&2; cat"],
                    input: .keptOpen)
                _ = try lock.line("held")
                Tool.expect(
                    try run("forget", "lamp", "--yes", "--store", stores), status: 75,
                    "\(file) is locked by another process")
                #expect(names.contains("lamp \(lamp) in the hall\n"))
                // The last address is removed before the name.
                #expect(addresses.isEmpty == (file == "known_peers"))
                lock.endInput()
                _ = try lock.wait()
            }
            let again = try run("forget", "lamp", "--yes", "--store", stores)
            #expect(again.text == "removed `lamp`, and dropped 0 messages with 0 bytes\n")
            #expect(names == "# my peers\n\ndoor \(door)\n")
        }

        @Test("a renamed peer is found by its new name, and a forgotten name can get another key")
        func renamedAndForgottenPeer() throws {
            let pair = try ToolPair()
            let options = ["--state", pair.folder.file("state")]
            let listener = try pair.listen(["--keep"])
            let first = try pair.connect(["--remember", "lamp"] + options)
                .wait(whileServing: [listener])
            #expect(first.status == 0, "\(first.errors)")
            let renamed = try Tool.run(arguments: ["peers", "rename", "lamp", "hall"] + options)
            #expect(renamed.status == 0, "\(renamed.errors)")
            func connect(_ peer: String) throws -> Subprocess.Outcome {
                try Subprocess(
                    Tool.path,
                    ["connect", "peer:" + peer, "--identity", pair.folder.file("dialer")] + options,
                    environment: ["DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/nonexistent/bus"]
                ).wait(whileServing: [listener])
            }
            let second = try connect("hall")
            #expect(second.status == 0, "\(second.errors)")
            Tool.expect(try connect("lamp"), status: 68, "nobody called `lamp` is remembered")
            let forgotten = try Tool.run(arguments: ["peers", "forget", "hall", "--yes"] + options)
            #expect(forgotten.text == "removed `hall` and its last address\n")
            listener.signal(SIGTERM)
            _ = try listener.wait()
            // A listener with a key of its own, at the same address.
            let other = try Tool.start(["listen", pair.endpoint(), "--anyone", "--timeout", "20"])
            _ = try other.line("listening on ")
            let third = try pair.connect(
                ["--remember", "hall"] + options, trust: ["--anyone"]
            ).wait(whileServing: [other])
            #expect(third.status == 0, "\(third.errors)")
            _ = try other.wait()
            let listed = try Tool.run(arguments: ["peers", "list"] + options).text
            #expect(listed.hasPrefix("hall SHA256:") && !listed.contains(pair.listenerKey))
        }

        @Test(
            "a running listener refuses a peer that was forgotten or renamed, and does not remember it again",
            arguments: [["forget", "anna", "--yes"], ["rename", "anna", "other"]])
        func forgottenByListener(_ words: [String]) throws {
            let pair = try ToolPair()
            let options = ["--state", pair.folder.file("state")]
            // The first listener remembers the dialer; the second one knows the name already.
            for trust in [["--peer", pair.dialerKey], []] {
                let listener = try pair.listen(
                    ["--remember", "anna", "--keep"] + options, trust: trust)
                let first = try pair.connect().wait(whileServing: [listener])
                #expect(first.status == 0, "\(first.errors)")
                guard trust.isEmpty else {
                    listener.signal(SIGTERM)
                    _ = try listener.wait()
                    continue
                }
                let changed = try Tool.run(arguments: ["peers"] + words + options)
                #expect(changed.status == 0, "\(changed.errors)")
                let before = pair.folder.read("state/known_peers")
                let second = try pair.connect(input: .bytes(Array("secret".utf8)))
                    .wait(whileServing: [listener])
                #expect(second.status == 69, "\(second.errors)")
                let line = try listener.line("blesec: no channel with ")
                #expect(line.contains("`anna` was the name of \(pair.dialerKey), and has been"))
                listener.signal(SIGTERM)
                #expect(try listener.wait().output == [])
                #expect(pair.folder.read("state/known_peers") == before)
            }
        }

        @Test(
            "a listener refuses peers while its --remember name has another key, and after that name is forgotten"
        )
        func forgottenNameOfOtherCommand() throws {
            let pair = try ToolPair()
            let state = pair.folder.file("state")
            let listener = try pair.listen(
                ["--remember", "anna", "--keep", "--state", state], trust: ["--anyone"])
            // Another command binds the name.
            try #require(unsafe mkdir(state, 0o700) == 0 || errno == EEXIST)
            pair.folder.write("state/known_peers", "anna \(pair.listenerKey)\n")
            let named = try pair.connect().wait(whileServing: [listener])
            #expect(named.status == 69, "\(named.errors)")
            let forgotten = try Tool.run("peers", "forget", "anna", "--yes", "--state", state)
            #expect(forgotten.status == 0, "\(forgotten.errors)")
            let unnamed = try pair.connect().wait(whileServing: [listener])
            #expect(unnamed.status == 69, "\(unnamed.errors)")
            listener.signal(SIGTERM)
            let outcome = try listener.wait()
            #expect(outcome.output == [])
            for words in ["`anna` is the name of ", "`anna` was the name of "] {
                #expect(outcome.errors.contains(words), "\(outcome.errors)")
            }
        }

        @Test("a peer that proves no key cannot be remembered")
        func withoutKey() throws {
            let pair = try ToolPair()
            let `protocol` = ["--protocol", "Noise_NN_25519_ChaChaPoly_SHA256"]
            let listener = try pair.listen(
                ["--remember", "anna", "--state", pair.folder.file("state")] + `protocol`,
                trust: ["--anyone"])
            let dialer = try pair.connect(
                `protocol`, trust: ["--anyone"], input: .bytes(Array("secret".utf8)))
            let outcomes = try Subprocess.wait([listener, dialer])
            #expect(outcomes[0].status == 77, "\(outcomes[0].errors)")
            #expect(outcomes[0].errors.contains("cannot be remembered as `anna`"))
            #expect(outcomes[0].output == [])
        }

        @Test(
            "a chat that has lost a forgotten peer takes no more lines from this peer, and does not remember it again",
            arguments: [false, true])
        func forgottenByDialer(isKnown: Bool) throws {
            let pair = try ToolPair()
            let options = ["--state", pair.folder.file("state")]
            if isKnown {
                try #require(unsafe mkdir(pair.folder.file("state"), 0o700) == 0)
                pair.folder.write("state/known_peers", "lamp \(pair.listenerKey)\n")
            }
            func listen() throws -> Subprocess {
                let listener = try Tool.start(
                    [
                        "chat", pair.endpoint(), "--listen", "--identity",
                        pair.folder.file("listener"), "--peer", pair.dialerKey,
                    ], input: .keptOpen)
                _ = try listener.line("listening on ")
                return listener
            }
            let first = try listen()
            let dialer = try Tool.start(
                [
                    "chat", pair.endpoint(), "--remember", "lamp", "--identity",
                    pair.folder.file("dialer"), "--peer", pair.listenerKey,
                ] + options, input: .keptOpen, within: 40)
            _ = try dialer.line("channel ready: ", whileServing: [first])
            let forgotten = try Tool.run(arguments: ["peers", "forget", "lamp", "--yes"] + options)
            #expect(forgotten.status == 0, "\(forgotten.errors)")
            first.signal(SIGKILL)
            _ = try first.wait()
            let second = try listen()
            second.send(Array("secret\n".utf8))
            // The trust policy refuses the peer, and the chat goes on looking for one.
            let reason = "`lamp` was the name of \(pair.listenerKey), and has been forgotten"
            _ = try dialer.line("no channel: \(reason)", whileServing: [second])
            dialer.signal(SIGKILL)
            let outcome = try dialer.wait(whileServing: [second])
            #expect(outcome.output == [], "\(outcome.text)")
            #expect(pair.folder.read("state/known_peers") == [])
            second.signal(SIGKILL)
            _ = try second.wait()
        }

        // MARK: - The question

        @Test("the question shows all that will be removed, and only a yes removes it")
        func question() throws {
            remember()
            try makeStore(stores, peer: lamp, lengths: [100, 20, 3], sentThrough: 1)
            try makeStore(folder.file("other"), peer: door, lengths: [1])
            let before = (names, addresses)
            let words = "lamp --store '\(stores)' --store '\(folder.file("other"))'"
            // An answer other than yes or no repeats the question; control-D (0x04) is the end of
            // the input.
            for answers in [["n\n"], ["\n", "maybe\n", "NO\n"], ["\u{4}"]] {
                let refused = try forgetAtTerminal(words, answers)
                #expect(refused.status == 0)
                #expect(
                    refused.text.hasSuffix("nothing was removed\r\nstatus 0\r\n"), "\(refused.text)"
                )
                #expect((names, addresses) == before)
            }
            let outcome = try forgetAtTerminal(words, ["yes\n"])
            #expect(outcome.status == 0)
            let description = """
                This will be removed from \(state):
                  the name `lamp` of the key \(lamp)
                  its comment `in the hall`
                  the last address of the key, \(Self.address) random
                This will be dropped from \(stores):
                  2 messages with 23 bytes, which the peer will not get
                1 message with 100 bytes may have arrived, and cannot be dropped from \(stores)
                Nothing waits for the key in \(folder.file("other")).
                Remove this? [y/n]
                """
            #expect(outcome.text.replacing("\r\n", with: "\n").hasPrefix(description))
            #expect(outcome.text.contains("removed `lamp` and its last address, and dropped 2 "))
            #expect(names == "# my peers\n\ndoor \(door)\n" && addresses == "")
            #expect(try outbox(stores).contains("\n1 message with 100 bytes in all: 0 messages"))
        }

        @Test("without a terminal and without --yes, forget is refused, whatever is piped into it")
        func noTerminal() throws {
            remember()
            let before = (names, addresses)
            let outcome = try Subprocess.run(
                "setsid", ["-w", Tool.path, "peers", "forget", "lamp", "--state", state],
                input: .bytes(Array("y\n".utf8)))
            Tool.expect(
                outcome, status: 66,
                "there is no terminal to ask: use --yes to forget without a question")
            #expect((names, addresses) == before)
        }

        @Test("input typed before the question is no answer")
        func typedAhead() throws {
            remember()
            let go = folder.file("go")
            let script = try startForget(
                "lamp", setup: "echo ready; until [ -e '\(go)' ]; do sleep 0.02; done; ")
            _ = try script.output(containing: "ready")
            script.send(Array("y\n".utf8))
            // The terminal echoes what has arrived.
            _ = try script.output(containing: "y\r\n", after: "ready\r\n".utf8.count)
            folder.write("go", "")
            _ = try script.output(containing: "[y/n] ")
            script.send(Array("n\n".utf8))
            #expect(try script.wait().text.contains("nothing was removed"))
            #expect(names.contains("lamp \(lamp) in the hall\n"))
        }

        @Test("input typed while a stopped terminal does not show the question is no answer")
        func stoppedTerminal() throws {
            remember()
            let terminal = StoppedTerminal(folder)
            let setup = terminal.command.map { "'\($0)' " }.joined()
            let script = try startForget("lamp", setup: setup)
            script.send([StoppedTerminal.controlS])
            try terminal.waitForQuestion(whileServing: [script])
            script.send(Array("y\n".utf8) + [StoppedTerminal.controlQ])
            _ = try script.output(containing: "[y/n] ")
            script.send(Array("n\n".utf8))
            #expect(try script.wait().text.contains("nothing was removed"))
            #expect(names.contains("lamp \(lamp) in the hall\n"))
        }

        @Test("an interrupted question removes nothing")
        func interruptedQuestion() throws {
            remember()
            let before = (names, addresses)
            // Control-C. The trap keeps the shell running, which then prints the status.
            let outcome = try forgetAtTerminal("lamp", ["\u{3}"], setup: "trap : INT; ")
            #expect(outcome.text.contains("status 130"), "\(outcome.text)")
            #expect((names, addresses) == before)
        }

        @Test("a peer that gets another key during the question keeps its name")
        func changedMeanwhile() throws {
            remember()
            let script = try startForget("lamp")
            _ = try script.output(containing: "[y/n] ")
            write("lamp \(door)\n")
            script.send(Array("y\n".utf8))
            let outcome = try script.wait()
            #expect(outcome.text.contains("`lamp` has got another key meanwhile, \(door), and is"))
            #expect(outcome.text.hasSuffix("status 77\r\n") && names == "lamp \(door)\n")
            // Another process may also have forgotten the peer.
            let second = try startForget("lamp")
            _ = try second.output(containing: "[y/n] ")
            write("")
            second.send(Array("y\n".utf8))
            #expect(try second.wait().text.hasSuffix("status 0\r\n"))
        }

        /// Starts a shell at a terminal of its own. The shell runs the commands `setup`, and then
        /// `blesec peers forget`.
        private func startForget(_ arguments: String, setup: String = "") throws -> Subprocess {
            try Subprocess(
                "script",
                [
                    "-qec",
                    "\(setup)'\(Tool.path)' peers forget --state '\(state)' \(arguments); s=$?; "
                        + "echo status $s; exit $s", "/dev/null",
                ], input: .keptOpen)
        }

        /// Runs `blesec peers forget` as ``startForget(_:setup:)`` does, and types the next answer
        /// at each question. The outcome's status is the tool's; the last line of the output shows
        /// it, too.
        private func forgetAtTerminal(
            _ arguments: String, _ answers: [String], setup: String = ""
        ) throws -> Subprocess.Outcome {
            let script = try startForget(arguments, setup: setup)
            var seen = 0
            for answer in answers {
                seen = try script.output(containing: "[y/n] ", after: seen)
                script.send(Array(answer.utf8))
            }
            return try script.wait()
        }
    }
}
