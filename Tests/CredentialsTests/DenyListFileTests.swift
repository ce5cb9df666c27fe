import BLESecChannelCore
import BLESecCredentials
import Glibc
import TestSupport
import Testing

/// A deny list in a file.
@Suite struct DenyListFileTests {
    let folder = ScratchFolder()

    @Test("each line's fingerprint is denied, and comments are ignored")
    func reading() throws {
        let path = folder.write("deny", "# stolen\n\(key(1)) a phone\n\n  \(key(2))")
        let file = try DenyListFile(path)
        #expect(file.list.contains(key(1)))
        #expect(file.list.contains(key(2)))
        #expect(file.list.contains(key(3)) == false)
    }

    @Test("a refresh reads a changed file again, and returns whether the keys have changed")
    func refreshing() throws {
        let path = folder.write("deny", "\(key(1))\n")
        let file = try DenyListFile(path)
        #expect(try file.refresh() == false)
        folder.write("deny", "\(key(1))\n\(key(2))\n")
        #expect(try file.refresh())
        #expect(file.list.contains(key(2)))
        #expect(try file.refresh() == false)
    }

    @Test("a file rewritten in place right after a reading, with the same length, is read again")
    func rewriting() throws {
        let path = folder.write("deny", "\(key(0))\n")
        let file = try DenyListFile(path)
        for number in 1...200 as ClosedRange<UInt8> {
            folder.write("deny", "\(key(number))\n")
            #expect(try file.refresh())
            #expect(file.list.contains(key(number)))
        }
    }

    @Test("after a refresh the list has the file's keys, even while another thread refreshes it")
    func concurrency() async throws {
        let path = folder.write("deny", "\(key(0))\n")
        let file = try DenyListFile(path)
        let refreshing = Task.detached { while !Task.isCancelled { try file.refresh() } }
        defer { refreshing.cancel() }
        var text = ""
        for number in 1...200 as ClosedRange<UInt8> {
            text += "\(key(number))\n"
            #expect(unsafe rename(folder.write("new", text), path) == 0)
            try file.refresh()
            #expect(file.list.contains(key(number)))
        }
        refreshing.cancel()
        try await refreshing.value
    }

    @Test(
        "a missing or invalid file is an error, and the entries that were read before stay denied")
    func failing() throws {
        #expect(throws: ChannelError(.noSuchFile, "")) { try DenyListFile(folder.file("none")) }
        let path = folder.write("deny", "\(key(1))\n")
        let file = try DenyListFile(path)
        folder.write("deny", "# fine\nnonsense\n")
        let error = #expect(throws: ChannelError(.badKey, "")) { try file.refresh() }
        #expect(error?.reason.hasPrefix("\(path), line 2: ") == true)
        #expect(file.list.contains(key(1)))
        folder.write("deny", "", mode: 0o666)
        #expect(throws: ChannelError(.badKey, "")) { try file.refresh() }
        try #require(try Subprocess.run("rm", [path]).status == 0)
        #expect(throws: ChannelError(.noSuchFile, "")) { try file.refresh() }
        #expect(file.list.contains(key(1)))
    }
}
