import BLESecChannelCore
import BLESecCredentials
import Glibc
import TestSupport
import Testing

/// Incomplete pairings, which are stored in a file beside the file of known peers.
@Suite struct PendingPeersTests {
    let folder = ScratchFolder()
    var path: String { folder.file("known_peers") }

    private func peer(
        _ number: UInt8, name: String = "a b%\u{1B}", isVerified: Bool = true
    ) -> TrustPolicy.PendingPeer {
        TrustPolicy.PendingPeer(
            name: name, key: Fingerprint(subjectPublicKeyInfo: [number]),
            transcript: [UInt8](repeating: number, count: 32), isVerified: isVerified)
    }

    @Test("a pending peer is found by its key, replaced and forgotten, and does not count as known")
    func keeping() throws {
        let store = KnownPeersFile(path)
        #expect(try store.pendingPeer(peer(1).key) == nil)
        try store.forgetPending(peer(1).key)
        try store.keepPending(peer(1, isVerified: false))
        try store.keepPending(peer(2, name: "b"))
        try store.keepPending(peer(1))
        let other = KnownPeersFile(path)
        #expect(try other.pendingPeer(peer(1).key) == peer(1))
        #expect(try other.pendingPeers() == [peer(2, name: "b"), peer(1)])
        #expect(try other.contains(peer(1).key) == false)
        #expect(try other.key(named: "b") == nil)
        #expect(folder.mode("known_peers.pending") == 0o600)
        try other.forgetPending(peer(1).key)
        #expect(try store.pendingPeers() == [peer(2, name: "b")])
        // The description has the name and the key, and not the transcript.
        #expect(peer(1, name: "b").description == "b \(peer(1).key)")
    }

    @Test(
        "a peer is pending for 24 hours, and a line that expires more than 24 hours from now does not count"
    )
    func lifetime() throws {
        let store = KnownPeersFile(path)
        try store.keepPending(peer(1))
        let now = time(nil)
        func rewrite(_ expiry: Int) {
            let text = String(decoding: folder.read("known_peers.pending") ?? [], as: UTF8.self)
            let words = text.split(separator: " ").dropLast().joined(separator: " ")
            folder.write("known_peers.pending", "\(words) \(expiry)\n")
        }
        let written = folder.read("known_peers.pending") ?? []
        let expiry = Int(String(decoding: written, as: UTF8.self).split { " \n".contains($0) }[4])
        #expect((86_390...86_400).contains((expiry ?? 0) - now))
        rewrite(now - 1)
        #expect(try store.pendingPeers().isEmpty)
        // A clock that was set back leaves an expiry more than 24 hours ahead. The next write of the
        // file removes the line.
        rewrite(now + 1_000_000)
        #expect(try store.pendingPeers().isEmpty)
        #expect(try store.pendingPeer(peer(1).key) == nil)
        try store.keepPending(peer(2))
        let lines = String(decoding: folder.read("known_peers.pending") ?? [], as: UTF8.self)
        #expect(!lines.contains("\(now + 1_000_000)"))
        #expect(try store.pendingPeers() == [peer(2)])
    }

    @Test(
        "a malformed line is an error that names the line, and a file that others can change is refused"
    )
    func malformed() throws {
        let store = KnownPeersFile(path)
        try store.keepPending(peer(1))
        let good = String(decoding: folder.read("known_peers.pending") ?? [], as: UTF8.self)
        for bad in [
            "x\n", good.replacing("verified", with: "sure"), good + "x y\n",
            good.replacing("AQEB", with: "AQE"),
        ] {
            folder.write("known_peers.pending", bad)
            let number = bad.hasPrefix(good) ? 2 : 1
            do throws(ChannelError) {
                _ = try store.pendingPeers()
                Issue.record("\(bad) is read")
            } catch {
                #expect(error.code == .badKey)
                #expect(error.reason.contains("line \(number): "), "\(error.reason)")
            }
        }
        folder.write("known_peers.pending", good, mode: 0o666)
        #expect(throws: ChannelError(.badKey, "")) { try store.pendingPeers() }
    }

    @Test(
        "removing a name leaves no pending pairing of its key, also if the name was changed before")
    func removing() throws {
        for newName in ["b", "c"] {
            let store = KnownPeersFile(path)
            try store.bind("b", to: peer(1).key)
            try store.keepPending(peer(1, name: "b"))
            if newName != "b" { #expect(try store.rename("b", to: newName)) }
            #expect(try store.remove(newName))
            #expect(try store.pendingPeers().isEmpty)
        }
    }

    @Test("removing or renaming a name removes the pending pairings of other keys under this name")
    func otherKey() throws {
        let store = KnownPeersFile(path)
        // Key 1 is that of a device that is gone, and key 2 that of the device that now has the
        // name.
        for newName in [nil, "c"] {
            try store.keepPending(peer(1, name: "b"))
            try store.keepPending(peer(3, name: "other"))
            try store.bind("b", to: peer(2).key)
            let isChanged =
                if let newName { try store.rename("b", to: newName) } else { try store.remove("b") }
            #expect(isChanged)
            #expect(try store.pendingPeers() == [peer(3, name: "other")])
        }
    }

    @Test("a renaming that fails because the file is full does not remove the pending pairing")
    func refusedRenaming() throws {
        let store = KnownPeersFile(path)
        try store.keepPending(peer(1, name: "b"))
        let line = "b \(peer(1).key)\n#"
        let rest = (1 << 20) - line.utf8.count
        folder.write("known_peers", line + String(repeating: "x", count: rest))
        #expect(throws: ChannelError(.limitExceeded, "")) { try store.rename("b", to: "bb") }
        #expect(try store.pendingPeers() == [peer(1, name: "b")])
    }

    @Test("a name with only pending pairings is removed; a name bound to an unexpected key stays")
    func onlyPending() throws {
        let store = KnownPeersFile(path)
        for key in [nil, peer(1).key] {
            try store.keepPending(peer(1, name: "b"))
            try store.keepPending(peer(2, name: "b"))
            #expect(try store.remove("b", boundTo: key))
            #expect(try store.pendingPeers().isEmpty)
            #expect(try store.remove("b", boundTo: key) == false)
        }
        try store.keepPending(peer(1, name: "b"))
        try store.bind("b", to: peer(2).key)
        #expect(try store.remove("b", boundTo: peer(1).key) == false)
        #expect(try store.key(named: "b") == peer(2).key)
        #expect(try store.pendingPeers() == [peer(1, name: "b")])
    }
}
