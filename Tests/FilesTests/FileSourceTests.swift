import Glibc
import Testing

@testable import BLESecFiles

/// What a sender notices of a source that changes, and what it leaves out.
@Suite("Files: the source")
struct FileSourceTests {
    private let scratch = TemporaryFolder()

    /// Makes a tree with the files `top`, `sub/a` and `sub/b`, and examines it.
    private func tree() throws -> FileSource {
        try scratch.makeFolder("tree/sub")
        for name in ["top", "sub/a", "sub/b"] { try scratch.write("tree/\(name)", [1, 2, 3]) }
        return try FileSource(scratch.path("tree"), sendsHidden: false)
    }

    private func file(
        _ path: String, in source: FileSource
    ) throws -> (entry: FileEntry, version: FileSource.Version) {
        for case .file(let entry, let version) in source.entries where entry.path == path {
            return (entry, version)
        }
        throw FileFailure(.other, "\(path) is not in the source")
    }

    private func rename(_ name: String, to newName: String) {
        #expect(unsafe Glibc.rename(scratch.path(name), scratch.path(newName)) == 0)
    }

    @Test(
        "a file of a tree has changed if its folder, or the whole tree, was replaced or removed",
        arguments: ["tree", "tree/sub"], [true, false])
    func replacedFolder(folder: String, isReplaced: Bool) throws {
        let source = try tree()
        let (first, second) = (try file("sub/a", in: source), try file("sub/b", in: source))
        let opened = try #require(try source.open(first.entry, first.version))
        #expect(source.isUnchanged(opened, first.entry, first.version))
        rename(folder, to: "old")
        if isReplaced {
            try scratch.makeFolder("tree/sub")
            for name in ["a", "b"] { try scratch.write("tree/sub/\(name)", [4, 5, 6]) }
        }
        #expect(!source.isUnchanged(opened, first.entry, first.version))
        #expect(try source.open(second.entry, second.version) == nil)
    }

    @Test(
        "a file of a tree has changed if its folder, or a folder above, was replaced by a symbolic link, even by one to that folder",
        arguments: ["tree/sub", "tree/sub/inner", "tree/sub/inner/innermost"])
    func linkForFolder(folder: String) throws {
        try scratch.makeFolder("tree/sub/inner/innermost")
        for name in ["a", "b"] { try scratch.write("tree/sub/inner/innermost/\(name)", [1]) }
        let source = try FileSource(scratch.path("tree"), sendsHidden: false)
        let first = try file("sub/inner/innermost/a", in: source)
        let second = try file("sub/inner/innermost/b", in: source)
        let opened = try #require(try source.open(first.entry, first.version))
        #expect(source.isUnchanged(opened, first.entry, first.version))
        rename(folder, to: "old")
        try scratch.link(folder, to: scratch.path("old"))
        #expect(!source.isUnchanged(opened, first.entry, first.version))
        #expect(try source.open(second.entry, second.version) == nil)
    }

    @Test(
        "a file that is removed or replaced before it is opened has changed",
        arguments: ["tree/top", "tree/sub/a", "single"], ["nothing", "file", "folder", "loop"])
    func replacedFile(path: String, replacement: String) throws {
        let source: FileSource
        if path == "single" {
            try scratch.write("single", [1, 2, 3])
            source = try FileSource(scratch.path("single"), sendsHidden: false)
        } else {
            source = try tree()
        }
        let found = try file(
            path == "single" ? path : String(path.dropFirst("tree/".count)), in: source)
        rename(path, to: "old")
        switch replacement {
        case "file": try scratch.write(path, [1, 2, 3])
        case "folder": try scratch.makeFolder(path)
        case "loop": try scratch.link(path, to: scratch.path(path))
        default: break
        }
        #expect(try source.open(found.entry, found.version) == nil)
    }

    @Test("a file of a tree has changed if a file is in the place of its folder")
    func fileForFolder() throws {
        let source = try tree()
        let found = try file("sub/a", in: source)
        rename("tree/sub", to: "old")
        try scratch.write("tree/sub", [])
        #expect(try source.open(found.entry, found.version) == nil)
    }

    @Test("a file that has more bytes than its size says is not sent")
    func hiddenBytes() throws {
        // The size of this file is 0, although it has content.
        let sender = FileSender(try FileSource("/proc/version", sendsHidden: false))
        #expect(sender.totalBytes == 0)
        for answer in [FileFrame.accept, .from(0)] {
            _ = sender.next()
            var bytes: [UInt8] = []
            answer.append(to: &bytes)
            try sender.receive(bytes)
        }
        _ = sender.next()
        #expect(sender.state.failures.listed.map(\.problem) == [.changed])
        #expect(sender.state.failures.listed.first?.text == "has more bytes than its size says")
    }

    @Test("a name may begin with a combining character, also after a slash")
    func combiningCharacter() throws {
        let name = "\u{301}x"
        try #require(unsafe mkdir(scratch.path(name), 0o700) == 0)
        for path in [name, "\(name)/", "\(name)/."] {
            let source = try FileSource(scratch.path(path), sendsHidden: false)
            #expect(FileName.areSame(source.offer.name, name), "\(path)")
        }
    }

    @Test("names that cannot be sent are reported; hidden names only if hidden files are sent")
    func omissions() throws {
        try scratch.makeFolder("tree")
        try scratch.write("tree/good", [1])
        try scratch.write("tree/line\nfeed", [1])
        try scratch.link("tree/link\nfeed", to: "good")
        // Names that are not UTF-8.
        for name in ["bad", ".bad"] { try makeFile(0xE9, in: "tree/\(name)") }
        for (sendsHidden, names) in [
            (false, [#"bad\xE9"#]), (true, [#".bad\xE9"#, #"bad\xE9"#]),
        ] {
            let source = try FileSource(scratch.path("tree"), sendsHidden: sendsHidden)
            #expect(source.offer.files == 1)
            #expect(source.omissions.map(\.path) == names + ["line\nfeed", "link\nfeed"])
            #expect(
                source.omissions.map(\.problem) == names.map { _ in .badName } + [.badName, .other])
            #expect(source.omissions.first?.text == "the name is not UTF-8")
        }
    }

    @Test("at most 100 names of a folder that are not UTF-8 are reported, and the others counted")
    func manyInvalidNames() throws {
        try scratch.makeFolder("tree/sub")
        for byte in UInt8(0x80)...0xE5 { try makeFile(byte, in: "tree/sub/\\") }
        let source = try FileSource(scratch.path("tree"), sendsHidden: false)
        #expect(source.omissions.count == 101)
        #expect(source.omissions.first?.path == #"sub/\x5C\x80"#)
        #expect(source.omissions.last?.path == "sub")
        #expect(source.omissions.last?.text == "2 more names are not UTF-8")
    }

    /// Makes a file whose path ends with this byte.
    private func makeFile(_ lastByte: UInt8, in path: String) throws {
        var path = Array(scratch.path(path).utf8CString.dropLast())
        path += [CChar(truncatingIfNeeded: lastByte), 0]
        let number = unsafe open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)
        try #require(number >= 0)
        close(number)
    }
}
