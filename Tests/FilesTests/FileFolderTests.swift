import BLESecPrimitives
import Glibc
import Testing

@testable import BLESecFiles

/// What a receiver refuses, and what it leaves behind.
@Suite("Files: the receiver's folder")
struct FileFolderTests {
    private let scratch = TemporaryFolder()

    /// The folder `in`, under this path.
    private func folder(
        _ rules: FileFolder.Rules = FileFolder.Rules(), from peer: UInt8 = 7,
        path: String = "in", now: Duration = FileFolder.calendarTime
    ) throws -> FileFolder {
        try scratch.makeFolder("in")
        return try FileFolder(scratch.path(path), from: [peer], rules, now: now)
    }

    /// A receiver that has received this offer, and has accepted it unless the rules forbid that.
    private func receiver(
        _ name: String, isFolder: Bool = false, files: UInt64 = 1, bytes: UInt64 = 0, id: UInt8 = 1,
        rules: FileFolder.Rules = FileFolder.Rules(), from peer: UInt8 = 7,
        path: String = "in", now: Duration = FileFolder.calendarTime
    ) throws -> FileReceiver {
        let receiver = FileReceiver()
        var frames: [UInt8] = []
        FileFrame.offer(
            FileFrame.Offer(
                id: [UInt8](repeating: id, count: 16), version: [UInt8](repeating: 9, count: 16),
                isFolder: isFolder, files: files, bytes: bytes, name: name)
        ).append(to: &frames)
        _ = try receiver.receive(frames)
        _ = receiver.accept(into: try folder(rules, from: peer, path: path, now: now))
        return receiver
    }

    @Test(
        "names that lead elsewhere, that are hidden or that deceive are refused",
        arguments: [
            "../x", "/tmp/x", "a/b", ".", "..", "", ".hidden", ".\u{301}x", ".blesec-partial",
            "line\nfeed", "nul\0", "x\u{202E}gpj.exe", "\u{2066}x", "a\u{2028}b", "\u{7F}",
            String(repeating: "n", count: 256), String(repeating: "é", count: 128),
        ])
    func refusesNames(name: String) throws {
        for isFolder in [false, true] {
            let receiver = try receiver(name, isFolder: isFolder)
            #expect(receiver.refusal?.problem == .badName)
        }
        #expect(FileName.parts(of: "a/\(name)", allowsHidden: false) == nil || name == "a/b")
        #expect(scratch.names == ["in"])
        #expect(scratch.names(in: "in").isEmpty)
    }

    @Test(
        "the name of the folder for incomplete files is refused, also where hidden names are allowed"
    )
    func refusesPartialFolder() throws {
        let rules = FileFolder.Rules(allowsHidden: true)
        #expect(try receiver(".hidden", rules: rules).refusal == nil)
        let name = FileName.partialFolder
        #expect(try receiver(name, rules: rules).refusal?.problem == .badName)
        #expect(FileName.parts(of: "a/\(name)", allowsHidden: true) == nil)
    }

    @Test("a refused offer leaves no folder, and the empty folders of other peers are removed")
    func leavesNoFolder() throws {
        var rules = FileFolder.Rules()
        rules.quota = 1_000
        // A process that was killed may have left this.
        let peerFolder = "in/.blesec-partial/" + HeldName.hex(sha256([9]))
        try scratch.makeFolder("in")
        for path in ["in/.blesec-partial", peerFolder] {
            try #require(unsafe mkdir(scratch.path(path), 0o700) == 0)
        }
        for isFolder in [false, true] {
            let large = try receiver("a", isFolder: isFolder, bytes: 60_000, rules: rules)
            #expect(large.refusal?.problem == .noSpace)
            #expect(scratch.names(in: "in").isEmpty)
        }
        let first = try receiver("a", bytes: 10, from: 1)
        try send("a", 10, sending: 5, to: first)
        // While another transfer uses the folders, nothing is removed.
        #expect(try receiver(".hidden", from: 2).refusal?.problem == .badName)
        #expect(scratch.names(in: "in/.blesec-partial").count == 2)
        first.close()
        // What is held for a later transfer stays.
        #expect(scratch.names(in: "in/.blesec-partial").count == 1)
        #expect(scratch.files(below: "in").count == 1)
    }

    @Test(
        "a folder that other users may change is not used for incomplete files",
        arguments: ["in/.blesec-partial", "in/.blesec-partial/peer"])
    func sharedFolder(path: String) throws {
        try scratch.makeFolder("in")
        let path = path.replacing("peer", with: HeldName.hex(sha256([7])))
        for folder in ["in/.blesec-partial", path] { unsafe mkdir(scratch.path(folder), 0o700) }
        for mode: mode_t in [0o720, 0o702] {
            try #require(unsafe chmod(scratch.path(path), mode) == 0)
            #expect(throws: FileFailure.self) { try folder() }
        }
        #expect(scratch.names(in: path).isEmpty)
        try #require(unsafe chmod(scratch.path(path), 0o700) == 0)
        _ = try folder()
    }

    @Test("a failed lock call is an error, and does not show that another process has the lock")
    func failingLock() throws {
        try scratch.makeFolder("in")
        // The value of `O_PATH`. On a descriptor that was opened with it, `flock` fails with EBADF.
        let pathFlag: Int32 = 0o10_000_000
        let folder = try Descriptor.open(scratch.path("in"), pathFlag)
        #expect(throws: FileFailure.self) { try folder.lock() }
        #expect(throws: FileFailure.self) { try folder.lockShared() }
        let first = try Descriptor.open(scratch.path("in"), O_RDONLY)
        let second = try Descriptor.open(scratch.path("in"), O_RDONLY)
        #expect(try first.lock())
        #expect(try !second.lock())
        #expect(try !second.lockShared())
    }

    @Test("the error for an unusable folder of incomplete files has the folder's path")
    func pathInError() throws {
        let peerFolder = "in/.blesec-partial/" + HeldName.hex(sha256([7]))
        try scratch.makeFolder("in")
        try #require(unsafe mkdir(scratch.path("in/.blesec-partial"), 0o700) == 0)
        try scratch.write(peerFolder, [])
        let failure = #expect(throws: FileFailure.self) { try folder() }
        #expect(failure?.text == "\(scratch.path(peerFolder)): Not a directory")
    }

    @Test("a name of an offer or a note is `o-` or `s-` with a hash; a note's may end with `.new`")
    func namesOfOffers() {
        let hash = HeldName.hex(sha256([1]))
        for name in ["o-\(hash)", "s-\(hash)", "s-\(hash).new"] {
            #expect(HeldName.isOfOfferOrNote(name))
        }
        for name in [
            "project", hash, "o-", "o-\(hash)x", "p-\(hash)", "o-\(hash.dropLast())",
            "o-\(hash.uppercased())", "o-" + String(repeating: "g", count: 32),
        ] {
            #expect(!HeldName.isOfOfferOrNote(name), "\(name)")
        }
    }

    private let offer = FileFrame.Offer(
        id: [1], version: [], isFolder: false, files: 1, bytes: 1, name: "a")

    /// The path of the folder with what the peer 7 has left of ``offer``.
    private var heldPath: String {
        let peer = HeldName.hex(sha256([7]))
        return scratch.path("in/.blesec-partial/\(peer)/\(HeldName.ofOffer(offer))")
    }

    /// The time of the last change of a file or folder, since 1970; nil if it does not exist.
    private func lastChange(_ path: String) -> Duration? {
        var status = stat()
        guard unsafe stat(path, &status) == 0 else { return nil }
        return .seconds(status.st_ctim.tv_sec) + .nanoseconds(status.st_ctim.tv_nsec)
    }

    @Test("what is held of an offer is not removed while a transfer uses it, however old it is")
    func oldButActive() throws {
        let folder = try folder()
        let held = try folder.open(offer)
        let later = try #require(lastChange(heldPath)) + FileFolder.lifetime + .nanoseconds(1)
        folder.removeOld(at: later)
        #expect(lastChange(heldPath) != nil)
        held.unlock()
        folder.removeOld(at: later)
        #expect(lastChange(heldPath) == nil)
    }

    @Test("what is held of an offer is kept for a week after the last change of a file in it")
    func oldFolder() throws {
        let folder = try folder()
        let held = try folder.open(offer)
        let file = try held.open("f", O_RDWR | O_CREAT, mode: 0o600)
        let path = "\(heldPath)/f"
        // The clock for these times advances every few milliseconds.
        repeat { try file.write([1], at: 0) } while lastChange(path) == lastChange(heldPath)
        held.unlock()
        let end = try #require(lastChange(path)) + FileFolder.lifetime
        folder.removeOld(at: end)
        #expect(lastChange(path) != nil)
        folder.removeOld(at: end + .nanoseconds(1))
        #expect(lastChange(heldPath) == nil)
    }

    @Test("an offer that comes again is continued, however old its rest is; other old rests go")
    func oldButOfferedAgain() throws {
        let first = try receiver("a", bytes: 60_000)
        try send("a", 60_000, sending: 50_000, to: first)
        first.close()
        _ = try folder().open(offer)
        let later = try #require(lastChange(heldPath)) + FileFolder.lifetime + .seconds(86_400)
        // Old rests are removed once in ten minutes for each path, so this is another path.
        let second = try receiver("a", bytes: 60_000, path: "in/.", now: later)
        #expect(lastChange(heldPath) == nil)
        try send("a", 60_000, to: second)
        #expect(second.state.held == 50_000)
    }

    @Test("a transfer whose folder is gone does not remove the folder that another transfer made")
    func otherFolder() throws {
        let folder = try folder()
        let first = try folder.open(offer)
        folder.remove(offer)
        let second = try folder.open(offer)
        folder.removeIfEmpty(offer, first)
        #expect(second.hasPath)
        folder.removeIfEmpty(offer, second)
        #expect(!second.hasPath)
    }

    @Test("only a file of the same name is replaced, and never one with a numbered name")
    func overwritesOneName() throws {
        var rules = FileFolder.Rules()
        rules.overwrites = true
        try scratch.makeFolder("in/photo")
        try scratch.write("in/photo (2)", [7])
        for (id, name) in [(UInt8(1), "photo (3)"), (2, "photo (4)")] {
            let receiver = try receiver("photo", bytes: 5, id: id, rules: rules)
            try send("photo", 5, sending: 5, to: receiver)
            try sendEnd(5, to: receiver)
            #expect(try frames(try receiver.finish()).last == .done(name))
        }
        #expect(scratch.read("in/photo (2)") == [7])
        try scratch.write("in/note", [7])
        let receiver = try receiver("note", bytes: 5, id: 3, rules: rules)
        try send("note", 5, sending: 5, to: receiver)
        try sendEnd(5, to: receiver)
        #expect(try frames(try receiver.finish()).last == .done("note"))
        #expect(scratch.read("in/note") == [1, 1, 1, 1, 1])
    }

    @Test("an offer with a stored offer's id and version, but another name, kind or size, is new")
    func otherOfferOfSameVersion() throws {
        let first = try receiver("a", bytes: 5)
        try send("a", 5, sending: 5, to: first)
        try sendEnd(5, to: first)
        #expect(try frames(try first.finish()).last == .done("a"))
        #expect(try receiver("a", bytes: 5).state.name == "a")
        #expect(try receiver("b", bytes: 5).state.name == nil)
        #expect(try receiver("a", bytes: 6).state.name == nil)
        #expect(try receiver("a", isFolder: true, bytes: 5).state.name == nil)
    }

    @Test(
        "an incomplete small file of a tree is sent again in full; the hash of a large one is answered at once"
    )
    func heldFiles() throws {
        let old = try receiver("tree", isFolder: true, files: 2, bytes: 60_010)
        try send("small", 10, sending: 5, to: old)
        old.close()
        let middle = try receiver("tree", isFolder: true, files: 2, bytes: 60_010)
        try send("large", 60_000, sending: 50_000, to: middle)
        middle.close()
        let new = try receiver("tree", isFolder: true, files: 2, bytes: 60_010)
        func answer(_ frame: FileFrame) throws -> [FileFrame] {
            var bytes: [UInt8] = []
            frame.append(to: &bytes)
            return try frames(try new.receive(bytes))
        }
        func entry(_ path: String, _ size: UInt64) -> FileEntry {
            FileEntry(path: path, size: size, seconds: 0, nanoseconds: 0, isExecutable: false)
        }
        #expect(try answer(.file(entry("large", 60_000))) == [.from(50_000)])
        let hash = sha256([UInt8](repeating: 1, count: 50_000))
        #expect(try answer(.prefix(hash)).contains(.agreed(0)))
        try sendContent(10_000, to: new)
        try sendEnd(60_000, to: new)
        #expect(try answer(.file(entry("small", 10))).contains(.from(0)))
    }

    @Test(
        "ordinary names, of up to 255 bytes, are accepted",
        arguments: ["x", "a b", "é", "写真.jpg", "x.", String(repeating: "n", count: 255)])
    func takesNames(name: String) throws {
        #expect(try receiver(name).refusal == nil)
        #expect(FileName.parts(of: "a/\(name)", allowsHidden: false) == ["a", name])
    }

    @Test("a number is inserted before the file name's extension, and the name stays short enough")
    func numbers() {
        #expect(FileName.numbered("photo.jpg", 2) == "photo (2).jpg")
        #expect(FileName.numbered("README", 2) == "README (2)")
        #expect(FileName.numbered(".profile", 3) == ".profile (3)")
        let long = String(repeating: "é", count: 125) + ".jpeg"
        let numbered = FileName.numbered(long, 12)
        #expect(numbered.utf8.count <= 255 && numbered.hasSuffix(" (12).jpeg"))
    }

    @Test("incomplete files of a peer count towards its quota, also those that are only offered")
    func quota() throws {
        var rules = FileFolder.Rules()
        rules.quota = 100_000
        let first = try receiver("a", bytes: 60_000, id: 1, rules: rules)
        #expect(first.refusal == nil)
        let second = try receiver("b", bytes: 60_000, id: 2, rules: rules)
        #expect(second.refusal?.problem == .noSpace)
        let third = try receiver("c", bytes: 30_000, id: 3, rules: rules)
        #expect(third.refusal == nil)
        let large = try receiver("d", bytes: 1 << 60, id: 4)
        #expect(large.refusal?.problem == .noSpace)
        withExtendedLifetime((first, third)) {}
    }

    @Test("folders count towards the quota, also those that occur only in a path")
    func folderQuota() throws {
        var rules = FileFolder.Rules()
        rules.quota = 100_000
        let receiver = try receiver("tree", isFolder: true, rules: rules)
        func make(_ paths: [String]) throws {
            var frames: [UInt8] = []
            for path in paths { FileFrame.folder(path).append(to: &frames) }
            _ = try receiver.receive(frames)
        }
        // The offered file and the tree count 4 KiB each, so there is room for 22 folders.
        try make([(1...20).map(String.init).joined(separator: "/"), "a", "b"])
        #expect(receiver.state.failures.count == 0)
        // A second try does not help.
        try make(["a/d/e", "a/d/e", "c", "c"])
        #expect(receiver.state.failures.listed.map(\.problem).allSatisfy { $0 == .noSpace })
        #expect(receiver.state.failures.count == 4)
    }

    /// Announces a file to a receiver, and sends `count` bytes of it.
    private func send(
        _ path: String, _ size: UInt64, seconds: UInt64 = 0, sending count: UInt64 = 0,
        to receiver: FileReceiver
    ) throws {
        var frames: [UInt8] = []
        FileFrame.file(
            FileEntry(
                path: path, size: size, seconds: seconds, nanoseconds: 0, isExecutable: false)
        ).append(to: &frames)
        _ = try receiver.receive(frames)
        try #require(count == 0 || receiver.state.failures.listed.isEmpty)
        try sendContent(count, to: receiver)
    }

    /// Sends `count` bytes of the announced file.
    private func sendContent(_ count: UInt64, to receiver: FileReceiver) throws {
        var rest = Int(count)
        while rest > 0 {
            var frames: [UInt8] = []
            FileFrame.data([UInt8](repeating: 1, count: min(rest, 50_000))).append(to: &frames)
            _ = try receiver.receive(frames)
            rest -= 50_000
        }
    }

    /// Ends a file of `size` bytes that has been sent.
    private func sendEnd(_ size: UInt64, to receiver: FileReceiver) throws {
        var end: [UInt8] = []
        FileFrame.end(sha256([UInt8](repeating: 1, count: Int(size)))).append(to: &end)
        _ = try receiver.receive(end)
    }

    @Test("trees that are received at the same time share the quota for their folders")
    func sharedFolderQuota() throws {
        var rules = FileFolder.Rules()
        rules.quota = 100_000
        let receivers = try (1...3).map {
            try receiver("tree", isFolder: true, id: $0, rules: rules)
        }
        for number in 0..<40 {
            for receiver in receivers {
                var frames: [UInt8] = []
                FileFrame.folder("\(number)").append(to: &frames)
                _ = try receiver.receive(frames)
            }
        }
        let failed = receivers.map(\.state.failures.count).reduce(0, +)
        // Each offer has a file and a tree, which count 4 KiB each.
        let mostFolders = 100_000 / 4_096 - 2 * 3
        // Some space may be reserved for a tree that cannot use all of it.
        #expect((mostFolders - 2...mostFolders).contains(120 - failed))
        #expect(
            receivers.allSatisfy { receiver in
                receiver.state.failures.listed.allSatisfy { $0.problem == .noSpace }
            })
    }

    @Test(
        "what an earlier transfer has left counts in addition to new files, and is removed if space is short"
    )
    func restOfTree() throws {
        var rules = FileFolder.Rules()
        rules.quota = 100_000
        let first = try receiver("tree", isFolder: true, bytes: 60_000, rules: rules)
        try send("a", 60_000, sending: 60_000, to: first)
        first.close()
        // The same file continues.
        let second = try receiver("tree", isFolder: true, bytes: 60_000, rules: rules)
        try send("a", 60_000, to: second)
        #expect(second.state.failures.count == 0 && second.state.held == 60_000)
        second.close()
        let third = try receiver("tree", isFolder: true, bytes: 60_000, rules: rules)
        try send("b", 60_000, to: third)
        #expect(third.state.failures.listed.map(\.problem) == [.noSpace])
        _ = try third.finish()
        #expect(scratch.files(below: "in").isEmpty)
        third.close()
        let fourth = try receiver("tree", isFolder: true, bytes: 60_000, rules: rules)
        try send("b", 60_000, sending: 60_000, to: fourth)
        #expect(fourth.state.failures.count == 0 && fourth.state.received == 60_000)
    }

    @Test("an earlier transfer's incomplete file is removed, and the file that it has stored stays")
    func restAmongFiles() throws {
        var rules = FileFolder.Rules()
        rules.quota = 200_000
        let old = try receiver("tree", isFolder: true, files: 2, bytes: 110_000, rules: rules)
        try store("kept", 10_000, in: old)
        try send("old", 100_000, sending: 100_000, to: old)
        old.close()
        for attempt in 1...2 {
            let new = try receiver("tree", isFolder: true, files: 11, bytes: 110_000, rules: rules)
            try send("kept", 10_000, to: new)
            #expect(new.state.received == 10_000, "\(attempt)")
            for number in 1...10 {
                let (failed, received) = (new.state.failures.count, new.state.received)
                try send("\(number)", 10_000, to: new)
                // The first attempt has stored some of the files.
                guard new.state.failures.count == failed, new.state.received == received else {
                    continue
                }
                try sendContent(10_000, to: new)
                try sendEnd(10_000, to: new)
            }
            #expect((new.state.failures.count == 0) == (attempt == 2))
            if attempt == 1 { _ = try new.finish() }
            new.close()
        }
    }

    @Test("in a tree, a file and the older version that it replaces do not both count")
    func replaced() throws {
        var rules = FileFolder.Rules()
        rules.quota = 100_000
        let old = try receiver("tree", isFolder: true, bytes: 60_000, rules: rules)
        try store("a", 60_000, in: old)
        old.close()
        let new = try receiver("tree", isFolder: true, bytes: 60_000, rules: rules)
        try send("a", 60_000, seconds: 100, sending: 60_000, to: new)
        #expect(new.state.failures.listed.isEmpty && new.state.received == 60_000)
    }

    /// Sends a whole file of a tree, and waits until it is in its place.
    private func store(_ path: String, _ size: UInt64, in receiver: FileReceiver) throws {
        try send(path, size, sending: size, to: receiver)
        try sendEnd(size, to: receiver)
        for _ in 0..<5 { _ = receiver.tick() }
        #expect(receiver.state.ended > 0 && receiver.state.failures.count == 0)
    }

    /// The frames in a receiver's answers.
    private func frames(_ answers: [UInt8]) throws -> [FileFrame] {
        var reader = FileFrameReader()
        reader.append(answers)
        var frames: [FileFrame] = []
        while let frame = try reader.next(where: { _ in true }) { frames.append(frame) }
        return frames
    }

    /// Sends frames to a receiver, and returns its answers.
    private func answers(
        of receiver: FileReceiver, to sent: FileFrame...
    ) throws -> [FileFrame] {
        var bytes: [UInt8] = []
        for frame in sent { frame.append(to: &bytes) }
        return try frames(try receiver.receive(bytes) + receiver.tick())
    }

    /// Ends the only file of a tree, and then the tree.
    private func finish(_ content: [UInt8], of receiver: FileReceiver) throws {
        _ = try answers(of: receiver, to: .end(sha256(content)))
        #expect(try frames(try receiver.finish()).last == .done("tree"))
        #expect(scratch.read("in/tree/a") == content)
    }

    @Test(
        "the bytes of a stored file are compared if its time may be rounded, and are sent again if they differ",
        arguments: [true, false])
    func roundedTime(areSame: Bool) throws {
        let old = try receiver("tree", isFolder: true, bytes: 60_000)
        try store("a", 60_000, in: old)
        old.close()
        let new = try receiver("tree", isFolder: true, bytes: 60_000)
        let content = [UInt8](repeating: areSame ? 1 : 2, count: 60_000)
        let entry = FileEntry(
            path: "a", size: 60_000, seconds: 1, nanoseconds: 500_000_000, isExecutable: false)
        #expect(try answers(of: new, to: .file(entry)) == [.from(60_000)])
        let expected: FileFrame = areSame ? .agreed(0) : .restart(0)
        #expect(try answers(of: new, to: .prefix(sha256(content))).contains(expected))
        if !areSame { _ = try answers(of: new, to: .again, .data(content)) }
        try finish(content, of: new)
        var status = stat()
        #expect(unsafe stat(scratch.path("in/tree/a"), &status) == 0)
        #expect(status.st_mtim.tv_sec == 1 && status.st_mtim.tv_nsec == 500_000_000)
    }

    @Test("a small stored file whose time may be rounded is sent again")
    func smallFile() throws {
        let old = try receiver("tree", isFolder: true, bytes: 100)
        try store("a", 100, in: old)
        old.close()
        let new = try receiver("tree", isFolder: true, bytes: 100)
        let entry = FileEntry(
            path: "a", size: 100, seconds: 1, nanoseconds: 0, isExecutable: false)
        #expect(try answers(of: new, to: .file(entry)) == [.from(0)])
        let content = [UInt8](repeating: 2, count: 100)
        _ = try answers(of: new, to: .data(content))
        try finish(content, of: new)
    }

    @Test(
        "a stored file with another mode keeps its bytes, and gets the offered mode",
        arguments: [true, false])
    func mode(isExecutable: Bool) throws {
        let old = try receiver("tree", isFolder: true, bytes: 60_000)
        try store("a", 60_000, in: old)
        old.close()
        let stored = try #require(
            scratch.files(below: "in").first { $0.hasSuffix("/\(HeldName.tree)/a") })
        try #require(unsafe chmod(scratch.path(stored), isExecutable ? 0o644 : 0o755) == 0)
        let new = try receiver("tree", isFolder: true, bytes: 60_000)
        let entry = FileEntry(
            path: "a", size: 60_000, seconds: 0, nanoseconds: 0, isExecutable: isExecutable)
        #expect(try answers(of: new, to: .file(entry)) == [.from(60_000)])
        let content = [UInt8](repeating: 1, count: 60_000)
        #expect(try answers(of: new, to: .prefix(sha256(content))).contains(.agreed(0)))
        try finish(content, of: new)
        var status = stat()
        #expect(unsafe stat(scratch.path("in/tree/a"), &status) == 0)
        #expect(status.st_mode & 0o777 == (isExecutable ? 0o755 : 0o644))
    }

    @Test(
        "a stored tree that is sent again is received anew only if it was changed meanwhile",
        arguments: ["nothing", "removed", "changed", "replaced by a folder"])
    func storedTree(change: String) throws {
        let first = try receiver("tree", isFolder: true, files: 2, bytes: 200)
        try store("sub/a", 100, in: first)
        try store("sub/b", 100, in: first)
        _ = try first.finish()
        #expect(first.state.name == "tree")
        let path = scratch.path("in/tree/sub/b")
        if change == "changed" {
            try scratch.write("in/tree/sub/b", [1])
        } else if change != "nothing" {
            try #require(unsafe unlink(path) == 0)
            if change != "removed" { try scratch.makeFolder("in/tree/sub/b") }
        }
        let second = try receiver("tree", isFolder: true, files: 2, bytes: 200)
        for path in ["sub/a", "sub/b"] {
            let entry = FileEntry(
                path: path, size: 100, seconds: 0, nanoseconds: 0, isExecutable: false)
            let expected: FileFrame = change == "nothing" ? .have : .from(0)
            #expect(try answers(of: second, to: .file(entry)).first == expected)
            if change == "nothing" { continue }
            try sendContent(100, to: second)
            try sendEnd(100, to: second)
        }
        let name = change == "nothing" ? "tree" : "tree (2)"
        #expect(try frames(try second.finish()).last == .done(name))
        #expect(scratch.read("in/\(name)/sub/b") == [UInt8](repeating: 1, count: 100))
    }

    @Test("what an earlier transfer has left of another version of a file is removed")
    func restOfFile() throws {
        var rules = FileFolder.Rules()
        rules.quota = 100_000
        for seconds in [UInt64(1), 2] {
            let receiver = try receiver("a", bytes: 60_000, rules: rules)
            try send("a", 60_000, seconds: seconds, sending: 60_000, to: receiver)
            #expect(receiver.state.failures.count == 0 && receiver.state.held == 0)
            receiver.close()
            #expect(scratch.files(below: "in").count == 1)
        }
        // What is left is more than the quota allows; the offer alone is not.
        rules.quota = 20_000
        #expect(try receiver("a", bytes: 10_000, rules: rules).refusal == nil)
    }

    @Test("what is held of a file is removed if the sender finds that the file has changed")
    func restOfChangedFile() throws {
        let old = try receiver("a", bytes: 80_000)
        try send("a", 80_000, sending: 60_000, to: old)
        old.close()
        let new = try receiver("a", bytes: 80_000)
        try send("a", 80_000, to: new)
        #expect(new.state.held == 60_000)
        _ = try answers(of: new, to: .skip(.changed))
        #expect(new.state.failures.listed.map(\.problem) == [.changed])
        new.close()
        #expect(scratch.names(in: "in").isEmpty)
    }

    @Test("a held file that is a second name of a stored file is not written to")
    func secondName() throws {
        let old = try receiver("a", bytes: 10)
        try send("a", 10, sending: 5, to: old)
        old.close()
        let held = try #require(scratch.files(below: "in").first)
        // A process that ended between the two steps of a rename leaves this.
        try #require(unsafe Glibc.link(scratch.path(held), scratch.path("in/x")) == 0)
        let new = try receiver("a", bytes: 10)
        let entry = FileEntry(path: "a", size: 10, seconds: 0, nanoseconds: 0, isExecutable: false)
        #expect(try answers(of: new, to: .file(entry)) == [.from(0)])
        _ = try answers(of: new, to: .data([UInt8](repeating: 2, count: 10)))
        #expect(scratch.read("in/x") == [1, 1, 1, 1, 1])
        #expect(scratch.read(held) == [UInt8](repeating: 2, count: 10))
    }

    @Test("two files of a tree that are the same file for the file system are refused")
    func sameFile() throws {
        let old = try receiver("tree", isFolder: true, files: 2, bytes: 20)
        try store("a", 10, in: old)
        old.close()
        // A hard link, as a stand-in for a second spelling of a name where the file system ignores
        // the case of letters.
        let stored = try #require(scratch.files(below: "in").first { $0.hasSuffix("/tree/a") })
        let other = scratch.path(String(stored.dropLast()) + "A")
        try #require(unsafe Glibc.link(scratch.path(stored), other) == 0)
        let new = try receiver("tree", isFolder: true, files: 2, bytes: 20)
        try send("a", 10, to: new)
        #expect(new.state.failures.count == 0 && new.state.received == 10)
        try send("A", 10, to: new)
        #expect(new.state.failures.listed.map(\.problem) == [.badName])
        #expect(new.state.failures.listed.map(\.path) == ["A"])
    }

    @Test("a path of a tree is a file or a folder, and not both")
    func fileAndFolder() throws {
        let receiver = try receiver("tree", isFolder: true)
        try send("a", 0, to: receiver)
        var frames: [UInt8] = []
        FileFrame.folder("a").append(to: &frames)
        FileFrame.folder("a/b").append(to: &frames)
        _ = try receiver.receive(frames)
        #expect(receiver.state.failures.listed.map(\.problem) == [.badName, .badName])
    }

    @Test("a shortened text has whole code points and at most the given number of bytes")
    func shortened() {
        #expect(FileName.shortened("abc", toBytes: 3) == "abc")
        #expect(FileName.shortened("éé", toBytes: 3) == "é")
        #expect(FileName.shortened("e\u{301}\u{301}", toBytes: 4) == "e\u{301}")
        #expect(FileName.shortened("é", toBytes: 1).isEmpty)
    }

    @Test("an offer needs space in addition to what the transfers of other peers still need")
    func space() throws {
        var status = statvfs()
        #expect(unsafe statvfs("/tmp", &status) == 0)
        let largeSize = UInt64(status.f_bavail) * UInt64(status.f_frsize) / 10 * 6
        do {
            let first = try receiver("a", bytes: largeSize, from: 1)
            #expect(first.refusal == nil)
            #expect(try receiver("b", bytes: largeSize, from: 2).refusal?.problem == .noSpace)
            // A refused offer reserves no space.
            let small = try receiver("c", bytes: largeSize / 10, from: 3)
            #expect(small.refusal == nil)
            withExtendedLifetime((first, small)) {}
        }
        #expect(try receiver("b", bytes: largeSize, from: 2).refusal == nil)
    }

    @Test("a transfer leaves at least 16 MiB of the file system free")
    func reserve() throws {
        func free() -> UInt64 {
            var status = statvfs()
            #expect(unsafe statvfs("/tmp", &status) == 0)
            return UInt64(status.f_bavail) * UInt64(status.f_frsize)
        }
        // Other programs may change the free space meanwhile; then the outcome does not count.
        for _ in 0..<100 {
            let before = free()
            try #require(before > 64 << 20)
            let receiver = try receiver("a", bytes: before - 12 << 20)
            defer { receiver.close() }
            guard (before - 1 << 20...before + 1 << 20).contains(free()) else { continue }
            #expect(receiver.refusal?.problem == .noSpace)
            return
        }
        Issue.record("the free space changes all the time")
    }

    @Test("one offer is not received twice at the same time")
    func active() throws {
        let first = try receiver("a", bytes: 10)
        #expect(try receiver("a", bytes: 10).refusal?.problem == .isActive)
        withExtendedLifetime(first) {}
        #expect(first.refusal == nil)
    }

    @Test("a sender that announces a file of another size than it has offered breaks the rules")
    func limits() throws {
        for size in [UInt64(9), 11, FileFrame.greatestSizeOrTime] {
            let receiver = try receiver("a", bytes: 10)
            var frames: [UInt8] = []
            FileFrame.file(
                FileEntry(path: "a", size: size, seconds: 0, nanoseconds: 0, isExecutable: false)
            ).append(to: &frames)
            #expect(throws: FileViolation.self) { _ = try receiver.receive(frames) }
        }
    }

    @Test("a sender that announces more than 256 files that have not ended breaks the rules")
    func announcedFiles() throws {
        let receiver = try receiver("tree", isFolder: true, files: 300, bytes: 300)
        for number in 1...256 { try send("\(number)", 1, to: receiver) }
        #expect(throws: FileViolation.self) { try send("257", 1, to: receiver) }
    }

    @Test("a symbolic link among the incomplete files is not followed")
    func links() throws {
        let receiver = try receiver("a", isFolder: true, bytes: 3)
        let peerFolder = try #require(
            scratch.names(in: "in/.blesec-partial").first.map { "in/.blesec-partial/\($0)" })
        let offer = try #require(scratch.names(in: peerFolder).first { $0.hasPrefix("o-") })
        try scratch.write("outside", [])
        try scratch.link("\(peerFolder)/\(offer)/tree/sub", to: "..")
        var frames: [UInt8] = []
        FileFrame.file(
            FileEntry(path: "sub/x", size: 3, seconds: 0, nanoseconds: 0, isExecutable: false)
        ).append(to: &frames)
        _ = try receiver.receive(frames)
        #expect(receiver.state.failures.count == 1)
        #expect(scratch.names == ["in", "outside"])
        #expect(!scratch.files(below: "in").contains { $0.hasSuffix("/x") })
    }
}
