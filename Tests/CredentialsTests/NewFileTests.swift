import BLESecChannelCore
import BLESecLocking
import Glibc
import TestSupport
import Testing

@testable import BLESecCredentials

/// What other processes can see of a new file while it is written.
@Suite("New files")
struct NewFileTests {
    let folder = ScratchFolder()

    @Test("a new file has no other name, not even while it is written")
    func names() async throws {
        let isOver = Locked(false)
        let (begun, begin) = AsyncStream.makeStream(of: Void.self)
        folder.write("first.key", "")
        let watcher = Task.detached { [folder] in
            var names: Set<String> = []
            while !isOver.withLock({ $0 }) {
                names.formUnion(folder.names)
                begin.yield()
            }
            return names
        }
        for await _ in begun { break }
        for number in 0..<300 {
            try NewFile.create(folder.file("\(number).key"), [1, 2, 3].span)
        }
        isOver.withLock { $0 = true }
        let names = await watcher.value
        #expect(names.contains("first.key") && names.allSatisfy { $0.hasSuffix(".key") })
        #expect(folder.names.count == 301)
        #expect(folder.read("7.key") == [1, 2, 3] && folder.mode("7.key") == 0o600)
    }

    @Test("an existing file, directory or link is not replaced")
    func existing() throws {
        folder.write("file", "old")
        try #require(unsafe symlink("missing", folder.file("link")) == 0)
        try #require(unsafe mkdir(folder.file("directory"), 0o700) == 0)
        for name in ["file", "link", "directory"] {
            let error = #expect(throws: ChannelError.self) {
                try NewFile.create(folder.file(name), [1].span)
            }
            #expect(error?.code == .cannotCreate)
        }
        #expect(folder.read("file") == Array("old".utf8))
        #expect(folder.read("missing") == nil)
    }
}
