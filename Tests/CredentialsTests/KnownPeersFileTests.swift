import BLESecChannelCore
import BLESecCredentials
import TestSupport
import Testing

/// The trust store as a file.
@Suite struct KnownPeersFileTests {
    let folder = ScratchFolder()
    var path: String { folder.file("known_peers") }

    @Test("a bound name is found by the same store, and by another store for the same file")
    func binding() throws {
        let store = KnownPeersFile(path)
        #expect(try store.key(named: "anna") == nil)
        try store.bind("anna", to: key(1))
        #expect(try store.key(named: "anna") == key(1))
        #expect(try store.contains(key(1)))
        #expect(try store.contains(key(2)) == false)
        #expect(try KnownPeersFile(path).key(named: "anna") == key(1))
        #expect(folder.mode("known_peers") == 0o600)
        #expect(folder.names == ["known_peers"])
    }

    @Test(
        "binding a name to its key again changes nothing, and binding it to another key is refused")
    func rebinding() throws {
        let store = KnownPeersFile(path)
        try store.bind("anna", to: key(1))
        let text = folder.read("known_peers")
        try store.bind("anna", to: key(1))
        let error = #expect(throws: ChannelError(.untrusted, "")) {
            try store.bind("anna", to: key(2))
        }
        #expect(error?.reason.contains(path) == true)
        #expect(folder.read("known_peers") == text)
    }

    @Test(
        "unusual names are one word in the file, and are read back unchanged",
        arguments: [
            "two words", "#hash", "100%", "Zoë", "tab\there", "line\nfeed", "\u{1B}[31mred",
            "\u{202E}evil", String(repeating: "n", count: 255), "%41", "a b#c",
        ])
    func oddNames(_ name: String) throws {
        let store = KnownPeersFile(path)
        try store.bind("before", to: key(1))
        try store.bind(name, to: key(2))
        try store.bind("after", to: key(3))
        #expect(try KnownPeersFile(path).key(named: name) == key(2))
        #expect(try KnownPeersFile(path).peers().map(\.name) == ["before", name, "after"])
        let bytes = try #require(folder.read("known_peers"))
        #expect(bytes.allSatisfy { (0x20...0x7E).contains($0) || $0 == 0x0A })
        #expect(bytes.filter { $0 == 0x0A }.count == 3)
    }

    @Test("a name that is empty or too long is a configuration error, and nothing is written")
    func badNames() throws {
        let store = KnownPeersFile(path)
        for name in ["", String(repeating: "n", count: 256), String(repeating: "é", count: 128)] {
            #expect(throws: ChannelError(.configuration, "")) { try store.bind(name, to: key(1)) }
        }
        #expect(folder.names == [])
    }

    @Test("a new entry leaves comments, blank lines and the text after a fingerprint unchanged")
    func comments() throws {
        let text = "# my peers\n\nanna \(key(1)) met at the station\r\n\tZoë\t\(key(2))"
        folder.write("known_peers", text)
        let store = KnownPeersFile(path)
        #expect(try store.peers().map(\.name) == ["anna", "Zoë"])
        #expect(try store.peers().map(\.comment) == ["met at the station", ""])
        #expect(try store.peers().map(\.line) == [3, 4])
        try store.bind("ben", to: key(3))
        #expect(folder.read("known_peers") == Array("\(text)\nben \(key(3))\n".utf8))
    }

    @Test("removing a name removes its line and no other")
    func removal() throws {
        folder.write("known_peers", "# one\na \(key(1))\n# two\nb \(key(2)) x\nc \(key(3))\n")
        let store = KnownPeersFile(path)
        #expect(try store.remove("b"))
        #expect(try store.remove("b") == false)
        let rest = "# one\na \(key(1))\n# two\nc \(key(3))\n"
        #expect(folder.read("known_peers") == Array(rest.utf8))
        #expect(try store.contains(key(2)) == false)
    }

    @Test("a name is removed with all its lines, but only if it is still bound to the expected key")
    func conditionalRemoval() throws {
        let text = "a \(key(1))\n%61 \(key(1)) again\nb \(key(2))\n"
        folder.write("known_peers", text)
        let store = KnownPeersFile(path)
        #expect(try store.remove("a", boundTo: key(2)) == false)
        #expect(try store.remove("c", boundTo: key(1)) == false)
        #expect(folder.read("known_peers") == Array(text.utf8))
        #expect(try store.remove("a", boundTo: key(1)))
        #expect(folder.read("known_peers") == Array("b \(key(2))\n".utf8))
    }

    @Test("renaming changes the name on each of its lines, and no other byte of the file")
    func renaming() throws {
        // The comment has bytes that are not UTF-8, and the last line has no line feed.
        let before = Array("# a\n\n \ta\t\(key(1)) met a %61 ".utf8) + [0xFF, 0xFE]
        let after = Array("\r\nb \(key(2)) a\n#a\n%61 \(key(1))  two  ".utf8)
        folder.write("known_peers", before + after)
        let store = KnownPeersFile(path)
        #expect(try store.rename("a", to: "new name"))
        #expect(try store.key(named: "a") == nil)
        #expect(try store.key(named: "new name") == key(1))
        #expect(try store.peers().map(\.name) == ["new name", "b", "new name"])
        let expected =
            Array("# a\n\n \tnew%20name\t\(key(1)) met a %61 ".utf8) + [0xFF, 0xFE]
            + Array("\r\nb \(key(2)) a\n#a\nnew%20name \(key(1))  two  ".utf8)
        #expect(folder.read("known_peers") == expected)
        #expect(try store.rename("a", to: "c") == false)
        #expect(folder.read("known_peers") == expected)
        #expect(folder.names == ["known_peers"] && folder.mode("known_peers") == 0o600)
    }

    @Test("a byte order mark, and a name that is not UTF-8, are refused")
    func notUTF8() throws {
        let line = Array("a \(key(1))\n".utf8)
        for text in [[0xEF, 0xBB, 0xBF] + line, [0xEF, 0xBB, 0xBF] + Array("# a\n".utf8) + line] {
            folder.write("known_peers", text)
            #expect(throws: ChannelError(.badKey, "")) { try KnownPeersFile(path).peers() }
        }
        folder.write("known_peers", [0xFF] + line)
        #expect(throws: ChannelError(.badKey, "")) { try KnownPeersFile(path).peers() }
        folder.write("known_peers", line)
        #expect(try KnownPeersFile(path).peers().map(\.name) == ["a"])
    }

    @Test("renaming a peer forgets its incomplete pairing, unless the name stays the same")
    func renamingPending() throws {
        let store = KnownPeersFile(path)
        try store.bind("a", to: key(1))
        try store.keepPending(
            TrustPolicy.PendingPeer(
                name: "a", key: key(2),
                transcript: [UInt8](repeating: 7, count: TrustPolicy.PendingPeer.transcriptLength),
                isVerified: true))
        #expect(try store.rename("a", to: "a"))
        #expect(try store.pendingPeers().map(\.name) == ["a"])
        #expect(try store.rename("a", to: "b"))
        #expect(try store.pendingPeers().isEmpty)
    }

    @Test("if the file of incomplete pairings is malformed, no name is changed or removed")
    func malformedPending() throws {
        let store = KnownPeersFile(path)
        try store.bind("a", to: key(1))
        folder.write("known_peers.pending", "nonsense\n")
        #expect(throws: ChannelError(.badKey, "")) { try store.rename("a", to: "b") }
        #expect(throws: ChannelError(.badKey, "")) { try store.remove("a") }
        #expect(folder.read("known_peers") == Array("a \(key(1))\n".utf8))
    }

    @Test(
        "a plain name is renamed to one with unusual characters, and back",
        arguments: ["a b", "#x", "100%", "Zoë", "line\nfeed", "\u{1B}[31m", "\u{308}", "e\u{301}"])
    func renamingOddNames(_ name: String) throws {
        let store = KnownPeersFile(path)
        try store.bind("plain", to: key(1))
        #expect(try store.rename("plain", to: name))
        #expect(try KnownPeersFile(path).peers().map(\.name) == [name])
        #expect(try store.rename(name, to: "plain"))
        #expect(folder.read("known_peers") == Array("plain \(key(1))\n".utf8))
        // The name without percent-encoding, as a person may have written it by hand.
        guard !name.contains(where: { $0.isWhitespace || $0 == "%" }), name != "#x" else { return }
        folder.write("known_peers", "\(name) \(key(1)) \u{308}c\n")
        #expect(try store.rename(name, to: "plain"))
        #expect(folder.read("known_peers") == Array("plain \(key(1)) \u{308}c\n".utf8))
    }

    @Test(
        "renaming to a name with another key, to an invalid name, or to a longer name in a full file is refused"
    )
    func refusedRenaming() throws {
        let text = "a \(key(1)) one\nb \(key(2)) two\nc \(key(1)) three\n"
        folder.write("known_peers", text)
        let store = KnownPeersFile(path)
        let bound = #expect(throws: ChannelError(.untrusted, "")) {
            try store.rename("a", to: "b")
        }
        #expect(bound?.reason.contains("b is known with \(key(2)) in \(path)") == true)
        for name in ["", String(repeating: "n", count: 256)] {
            #expect(throws: ChannelError(.configuration, "")) { try store.rename("a", to: name) }
        }
        #expect(try store.rename("a", to: "a"))
        #expect(folder.read("known_peers") == Array(text.utf8))
        // If the new name already has the same key, both lines stay.
        #expect(try store.rename("a", to: "c"))
        #expect(try store.peers().map(\.name) == ["c", "b", "c"])
        #expect(try store.peers().map(\.comment) == ["one", "two", "three"])
        let line = "a \(key(1))\n"
        let rest = (1 << 20) - line.utf8.count
        let full = line + "#" + String(repeating: "x", count: rest - 1)
        folder.write("known_peers", full)
        #expect(throws: ChannelError(.limitExceeded, "")) { try store.rename("a", to: "aa") }
        #expect(folder.read("known_peers") == Array(full.utf8))
        #expect(try store.rename("a", to: "z"))
    }

    @Test("if the file is missing, removing or renaming a name does not create the file")
    func nothingToChange() throws {
        let store = KnownPeersFile(path)
        #expect(try store.remove("anna") == false)
        #expect(try store.rename("anna", to: "ben") == false)
        #expect(folder.names == [])
    }

    @Test("a blank before a combining character separates words")
    func combining() throws {
        folder.write("known_peers", "#\u{308}\na \(key(1)) \u{308}c\nb \u{308}c \(key(1))\n")
        let error = #expect(throws: ChannelError(.badKey, "")) { try KnownPeersFile(path).peers() }
        #expect(error?.reason.hasPrefix("\(path), line 3: a fingerprint") == true)
    }

    @Test("the next call sees a change that another program made to the file")
    func rereading() throws {
        let store = KnownPeersFile(path)
        try store.bind("anna", to: key(1))
        #expect(try store.contains(key(2)) == false)
        folder.write("known_peers", "anna \(key(1))\nben \(key(2))\n")
        #expect(try store.contains(key(2)))
        try #require(try Subprocess.run("rm", [path]).status == 0)
        #expect(try store.contains(key(1)) == false)
    }

    @Test(
        "the error for a malformed or contradicting line names the file and the line number",
        arguments: [
            ("anna", "a fingerprint"), ("anna SHA256:short", "a fingerprint"),
            ("anna MD5:abc", "a fingerprint"), ("a%4 KEY", "a name"), ("a%ZZ KEY", "a name"),
            ("%FF KEY", "a name"), ("first OTHER", "first has another key"),
        ])
    func malformed(_ line: String, _ reason: String) throws {
        let text = line.replacing("KEY", with: "\(key(1))").replacing("OTHER", with: "\(key(2))")
        folder.write("known_peers", "# comment\nfirst \(key(1))\n\(text)\nlast \(key(3))\n")
        let store = KnownPeersFile(path)
        for attempt in [
            { _ = try store.key(named: "first") }, { _ = try store.contains(key(3)) },
            { try store.bind("new", to: key(4)) }, { _ = try store.remove("first") },
            { _ = try store.rename("first", to: "second") },
        ] as [() throws -> Void] {
            let error = #expect(throws: ChannelError(.badKey, ""), performing: attempt)
            #expect(error?.reason.hasPrefix("\(path), line 3: \(reason)") == true)
        }
        #expect(folder.names == ["known_peers"])
    }

    @Test("a file that others can change, a file that is too long, and a directory are refused")
    func refusals() throws {
        folder.write("known_peers", "anna \(key(1))\n", mode: 0o620)
        let store = KnownPeersFile(path)
        let shared = #expect(throws: ChannelError(.badKey, "")) { try store.contains(key(1)) }
        #expect(shared?.reason.contains("run `chmod go-w \(path)`") == true)
        folder.write("known_peers", String(repeating: "#\n", count: 1 << 20))
        #expect(throws: ChannelError(.limitExceeded, "")) { try store.contains(key(1)) }
        #expect(throws: ChannelError(.badKey, "")) {
            try KnownPeersFile(folder.path).contains(key(1))
        }
        #expect(throws: ChannelError(.cannotCreate, "")) {
            try KnownPeersFile(folder.file("no/peers")).bind("anna", to: key(1))
        }
    }

    @Test("a full file takes no more entries, and stays unchanged")
    func full() throws {
        let line = "# \(String(repeating: "x", count: 1_021))\n"
        folder.write("known_peers", String(repeating: line, count: 1_024))
        let store = KnownPeersFile(path)
        #expect(throws: ChannelError(.limitExceeded, "")) { try store.bind("anna", to: key(1)) }
        #expect(folder.read("known_peers")?.count == 1 << 20)
    }

    @Test("stores that write the same file at the same time lose no line")
    func concurrency() async throws {
        let path = path
        try await withThrowingTaskGroup(of: Void.self) { group in
            for writer in 0..<8 {
                group.addTask {
                    let store = KnownPeersFile(path)
                    for index in 0..<10 {
                        try store.bind("peer-\(writer)-\(index)", to: key(UInt8(writer)))
                    }
                }
            }
            try await group.waitForAll()
        }
        #expect(try KnownPeersFile(path).peers().count == 80)
        #expect(folder.names == ["known_peers"])
    }

    @Test("stores that bind, rename and remove in the same file at the same time lose no change")
    func concurrentChanges() async throws {
        let path = path
        try await withThrowingTaskGroup(of: Void.self) { group in
            for writer in 0..<8 {
                group.addTask {
                    let store = KnownPeersFile(path)
                    for index in 0..<6 {
                        let name = "peer-\(writer)-\(index)"
                        try store.bind(name, to: key(UInt8(writer)))
                        #expect(try store.rename(name, to: "new-" + name))
                        if index % 2 == 0 { #expect(try store.remove("new-" + name)) }
                    }
                }
            }
            try await group.waitForAll()
        }
        let names = try KnownPeersFile(path).peers().map(\.name)
        let expected = (0..<8).flatMap { writer in
            [1, 3, 5].map { "new-peer-\(writer)-\($0)" }
        }
        #expect(names.sorted() == expected)
        #expect(folder.names == ["known_peers"])
    }

    @Test("if several stores give different keys the same name at the same time, one succeeds")
    func concurrentRenaming() async throws {
        let path = path
        for writer in 0..<8 { try KnownPeersFile(path).bind("\(writer)", to: key(UInt8(writer))) }
        let winners = await withTaskGroup(of: Bool.self) { group in
            for writer in 0..<8 {
                group.addTask {
                    (try? KnownPeersFile(path).rename("\(writer)", to: "lamp")) ?? false
                }
            }
            return await group.reduce(into: 0) { $0 += $1 ? 1 : 0 }
        }
        #expect(winners == 1)
        let names = try KnownPeersFile(path).peers().map(\.name)
        #expect(names.count == 8 && names.count { $0 == "lamp" } == 1)
    }

    @Test("a file behind a symbolic link is changed, and the link stays a link")
    func symbolicLink() throws {
        folder.write("real", "anna \(key(1))\n")
        try #require(try Subprocess.run("ln", ["-s", "real", path]).status == 0)
        try KnownPeersFile(path).bind("ben", to: key(2))
        #expect(folder.read("real") == Array("anna \(key(1))\nben \(key(2))\n".utf8))
        #expect(try Subprocess.run("readlink", [path]).text == "real\n")
    }

    @Test(
        "if another process keeps the file locked, writing ends with an error, and reading succeeds"
    )
    func stuckLock() throws {
        try KnownPeersFile(path).bind("anna", to: key(1))
        let holder = try Subprocess(
            "flock", [path, "sh", "-c", "echo locked >&2; cat"], input: .keptOpen)
        _ = try holder.line("locked")
        #expect(throws: ChannelError(.timedOut, "")) {
            try KnownPeersFile(path).bind("ben", to: key(2))
        }
        #expect(throws: ChannelError(.timedOut, "")) {
            try KnownPeersFile(path).rename("anna", to: "ben")
        }
        #expect(try KnownPeersFile(path).key(named: "anna") == key(1))
        // The program that holds the lock ends when `holder` is released.
        withExtendedLifetime(holder) {}
    }
}

/// The fingerprint of a made-up key, which is different for each number.
func key(_ number: UInt8) -> Fingerprint { Fingerprint(subjectPublicKeyInfo: [number]) }
