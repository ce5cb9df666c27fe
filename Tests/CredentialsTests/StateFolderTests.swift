import BLESecChannelCore
import BLESecCredentials
import Glibc
import TestSupport
import Testing

/// The folder in which the tool remembers peers.
@Suite struct StateFolderTests {
    let scratch = ScratchFolder()
    var path: String { scratch.file("state/blesec") }

    @Test("a missing folder and its missing parents are created with mode 700")
    func made() throws {
        #expect(throws: ChannelError(.noSuchFile, "")) { try StateFolder(path) }
        let folder = try StateFolder.make(path + "/")
        #expect(folder.path == path)
        #expect(scratch.mode("state/blesec") == 0o700)
        #expect(scratch.mode("state") == 0o700)
        try folder.knownPeers.bind("lamp", to: key(1))
        try folder.lastAddresses.record("l2cap:AA:BB:CC:DD:EE:FF/0x80 random", of: key(1))
        let reopened = try StateFolder.make(path)
        #expect(try reopened.knownPeers.key(named: "lamp") == key(1))
        #expect(
            try reopened.lastAddresses.address(of: key(1))
                == "l2cap:AA:BB:CC:DD:EE:FF/0x80 random")
        #expect(scratch.mode("state/blesec/known_peers") == 0o600)
        #expect(scratch.mode("state/blesec/last_addresses") == 0o600)
    }

    @Test("a folder that others may enter is refused, with the remedy", arguments: [0o750, 0o701])
    func openToOthers(_ mode: Int) throws {
        _ = try StateFolder.make(path)
        _ = unsafe chmod(path, mode_t(mode))
        let error = #expect(throws: ChannelError(.badKey, "")) { try StateFolder.make(path) }
        #expect(error?.reason.contains("chmod 700 \(path)") == true)
    }

    @Test("a file in place of the folder is refused")
    func noFolder() {
        scratch.write("file", "")
        #expect(throws: ChannelError(.badKey, "")) { try StateFolder.make(scratch.file("file")) }
        #expect(throws: ChannelError(.cannotCreate, "")) {
            try StateFolder.make(scratch.file("file/below"))
        }
    }

    @Test(
        "each peer's last address is stored; in a full file, the entry recorded longest ago is removed"
    )
    func addresses() throws {
        let file = LastAddressesFile(scratch.file("addresses"))
        #expect(try file.address(of: key(1)) == nil)
        try file.record("unix:/a b%", of: key(1))
        try file.record("second", of: key(2))
        try file.record("third", of: key(1))
        #expect(try file.address(of: key(1)) == "third")
        #expect(try file.address(of: key(2)) == "second")
        let lines = (0..<LastAddressesFile.maximumPeers).map { number in
            "\(Fingerprint(subjectPublicKeyInfo: [1, UInt8(number >> 8), UInt8(number & 0xFF)])) x\n"
        }
        scratch.write("addresses", "\(key(1)) old\n" + lines.joined())
        try file.record("new", of: key(3))
        #expect(try file.address(of: key(3)) == "new")
        #expect(try file.address(of: key(1)) == nil)
        let text = try #require(scratch.read("addresses"))
        #expect(text.count { $0 == UInt8(ascii: "\n") } == LastAddressesFile.maximumPeers)
    }

    @Test(
        "a peer's last address is removed, and the others stay; where there is no file, none is made"
    )
    func removedAddress() throws {
        let file = LastAddressesFile(scratch.file("addresses"))
        #expect(try file.remove(key(1)) == false)
        #expect(try file.addresses() == [:])
        #expect(scratch.names == [])
        try file.record("unix:/a b%", of: key(1))
        try file.record("second", of: key(2))
        scratch.write("addresses", (scratch.read("addresses") ?? []) + Array("\(key(1)) x\n".utf8))
        #expect(try file.addresses() == [key(1): "x", key(2): "second"])
        #expect(try file.remove(key(1)))
        #expect(try file.remove(key(1)) == false)
        #expect(scratch.read("addresses") == Array("\(key(2)) second\n".utf8))
        #expect(try file.remove(key(2)))
        #expect(scratch.read("addresses") == [])
    }

    @Test("tasks that change one file of addresses at the same time lose no change")
    func concurrentAddresses() async throws {
        let path = scratch.file("addresses")
        try await withThrowingTaskGroup(of: Void.self) { group in
            for writer in 0..<4 {
                group.addTask {
                    let file = LastAddressesFile(path)
                    for index in 0..<4 {
                        let peer = key(UInt8(writer * 4 + index))
                        try file.record("\(writer)", of: peer)
                        if index % 2 == 0 { #expect(try file.remove(peer)) }
                    }
                }
            }
            try await group.waitForAll()
        }
        let expected = (0..<4).flatMap { writer in
            [1, 3].map { (key(UInt8(writer * 4 + $0)), "\(writer)") }
        }
        #expect(
            try LastAddressesFile(path).addresses() == Dictionary(uniqueKeysWithValues: expected))
        #expect(scratch.names == ["addresses"])
    }

    @Test(
        "the error for a malformed line names the line number, and the file stays unchanged",
        arguments: ["x y", "SHA256:abc l2cap:x", "KEY", "KEY a b", "KEY %", "\u{0}\u{1}"])
    func malformed(_ line: String) {
        let text = line.replacing("KEY", with: key(1).description)
        scratch.write("addresses", "# comment\n\(text)\n")
        let file = LastAddressesFile(scratch.file("addresses"))
        let error = #expect(throws: ChannelError(.badKey, "")) { try file.address(of: key(1)) }
        #expect(error?.reason.contains("line 2") == true)
        #expect(throws: ChannelError(.badKey, "")) { try file.record("x", of: key(2)) }
        #expect(throws: ChannelError(.badKey, "")) { try file.remove(key(1)) }
        #expect(throws: ChannelError(.badKey, "")) { try file.addresses() }
        #expect(scratch.read("addresses") == Array("# comment\n\(text)\n".utf8))
    }

    @Test("a file that others may change is refused, and invalid addresses are not stored")
    func refused() {
        scratch.write("addresses", "", mode: 0o620)
        let file = LastAddressesFile(scratch.file("addresses"))
        #expect(throws: ChannelError(.badKey, "")) { try file.address(of: key(1)) }
        let fresh = LastAddressesFile(scratch.file("fresh"))
        for text in ["", String(repeating: "x", count: 256)] {
            #expect(throws: ChannelError(.configuration, "")) { try fresh.record(text, of: key(1)) }
        }
    }
}
