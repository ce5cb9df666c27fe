import BLESecChannelCore
import BLESecLocking
import BLESecPrimitives
import Glibc
import TestSupport
import Testing

@testable import BLESecCredentials

/// Files that decide about trust: who may write the files, and which paths to them are accepted.
@Suite("Trusted files")
struct TrustedFileTests {
    let folder = ScratchFolder()

    /// A user who is neither root nor the user that runs the tests.
    private static let otherUser: uid_t = 65_534

    private func link(_ name: String, to target: String) throws {
        try #require(unsafe symlink(target, folder.file(name)) == 0)
    }

    private func makeFolder(_ name: String, _ mode: mode_t = 0o700) throws {
        try #require(unsafe mkdir(folder.file(name), 0o700) == 0)
        try #require(unsafe chmod(folder.file(name), mode) == 0)
    }

    /// The content of the file for a process of `user`, or the error.
    private func read(
        _ path: String, _ protection: TrustedFile.Protection = .unalterable,
        as user: uid_t = geteuid()
    ) throws -> [UInt8] {
        do throws(TrustedFile.Failure) {
            let file = try TrustedFile(path, protection, user: user)
            return file.descriptor.readAll(atMost: 100) ?? []
        } catch {
            throw error.channelError(for: path)
        }
    }

    private func refuses(
        _ path: String, _ reason: String, as user: uid_t = geteuid(),
        at location: SourceLocation = #_sourceLocation
    ) {
        let error = #expect(throws: ChannelError(.badKey, ""), sourceLocation: location) {
            try read(path, as: user)
        }
        #expect(
            error?.reason.contains(reason) == true, "\(error?.reason ?? "")",
            sourceLocation: location)
        #expect(error?.reason.hasPrefix(path) == true, sourceLocation: location)
    }

    @Test("the directory before a name that begins with a combining character is checked")
    func combiningName() throws {
        try makeFolder("open", 0o777)
        let path = folder.write("open/\u{301}deny", "x")
        refuses(path, "run `chmod go-w \(folder.file("open"))`")
        #expect(try read(folder.write("\u{301}deny", "x")) == [0x78])
    }

    @Test("a file that no other user can write is read by every path to it, including links")
    func reads() throws {
        try makeFolder("inner", 0o755)
        let path = folder.write("inner/file", "x", mode: 0o644)
        try link("link", to: "inner/file")
        try link("absolute", to: folder.file("link"))
        try link("inner/back", to: "../inner/../link")
        try link("directory", to: "inner")
        for name in [
            "inner/file", "link", "absolute", "inner/back", "directory/file", "directory/back",
            "inner/../inner/./file", "directory/../directory//file",
        ] {
            #expect(try read(folder.file(name)) == [0x78], "\(name)")
        }
        let file = try TrustedFile(folder.file("directory/back"))
        #expect(file.path == path)
    }

    @Test("a link whose target is not UTF-8 is refused")
    func invalidTarget() throws {
        // A file whose name has U+FFFD in place of the byte that is not UTF-8.
        folder.write("x\u{FFFD}", "x")
        try #require(
            unsafe symlink([0x78, CChar(truncatingIfNeeded: 0xFF), 0], folder.file("link")) == 0)
        refuses(folder.file("link"), "is not UTF-8: use a path without this link")
    }

    @Test("a relative path begins at the working directory")
    func relative() throws {
        folder.write("file", "x")
        // More `..` components than the working directory's path has, so that the path leads to the
        // root.
        let up = String(repeating: "../", count: 64)
        #expect(try read(up + folder.file("file").dropFirst()) == [0x78])
        #expect(throws: ChannelError(.noSuchFile, "")) { try read("no/such/file") }
        #expect(throws: ChannelError(.noSuchFile, "")) { try read("") }
    }

    @Test(
        "a file that others can write is refused with the remedy", arguments: [0o664, 0o646, 0o666])
    func writable(mode: UInt32) {
        let path = folder.write("file", "x", mode: mode)
        refuses(
            path,
            "can be changed by others (mode \(String(mode, radix: 8))): run `chmod go-w \(path)`")
    }

    @Test(
        "a path in a remedy is one word for a shell, and is quoted only if necessary",
        arguments: ["a b;c", "it's", "$(x)`y`", "~", "", "*", "a\\b", "\u{E4}", "-x", "'\u{301}"])
    func quoted(_ path: String) throws {
        let printed = try Subprocess.run("sh", ["-c", "printf %s \(path.shellWord)"])
        #expect(printed.output == Array((path == "-x" ? "./-x" : path).utf8))
        #expect("/tmp/a-b_c.d:1".shellWord == "/tmp/a-b_c.d:1")
    }

    @Test("the remedy for a file that others can write quotes the file's path")
    func quotedRemedy() {
        let path = folder.write("a b;c", "x", mode: 0o666)
        refuses(path, "run `chmod go-w '\(path)'`")
    }

    @Test(
        "a path through a directory that others can write is refused, and the error names the directory"
    )
    func writableAbove() throws {
        try makeFolder("open", 0o775)
        try makeFolder("open/closed")
        folder.write("open/closed/file", "x")
        let remedy = "can be changed by others (mode 775): run `chmod go-w \(folder.file("open"))`"
        refuses(folder.file("open/closed/file"), remedy)
        // A path that goes through the directory by a link, or that leaves the directory again by
        // `..`, is refused too.
        try link("link", to: "open/closed")
        refuses(folder.file("link/file"), remedy)
        try makeFolder("fine")
        folder.write("fine/file", "x")
        refuses(folder.file("open/../fine/file"), remedy)
        #expect(try read(folder.file("fine/file")) == [0x78])
    }

    @Test("a sticky directory that everyone can write, such as /tmp, is accepted")
    func sticky() throws {
        try makeFolder("sticky", 0o1777)
        folder.write("sticky/file", "x")
        #expect(try read(folder.file("sticky/file")) == [0x78])
        refuses(folder.write("sticky/open", "x", mode: 0o666), "can be changed by others")
    }

    @Test("a file, directory or link is refused unless it belongs to this user or root")
    func owners() throws {
        folder.write("file", "x", mode: 0o644)
        try #require(unsafe chmod(folder.path, 0o755) == 0)
        guard geteuid() == 0 else {
            // For the user `geteuid() + 1` the file belongs to another user who is not root.
            refuses(
                folder.file("file"), "belongs to another user (\(geteuid()))", as: geteuid() + 1)
            return
        }
        // A file of root is accepted for every user.
        #expect(try read(folder.file("file"), as: Self.otherUser) == [0x78])
        func giveAway(_ name: String) throws {
            try #require(unsafe lchown(folder.file(name), Self.otherUser, Self.otherUser) == 0)
        }
        try giveAway("file")
        refuses(folder.file("file"), "\(folder.file("file")) belongs to another user (65534)")
        #expect(try read(folder.file("file"), as: Self.otherUser) == [0x78])
        try makeFolder("theirs")
        folder.write("theirs/file", "x")
        try giveAway("theirs")
        refuses(
            folder.file("theirs/file"), "\(folder.file("theirs")) belongs to another user (65534)")
        folder.write("mine", "x")
        try link("link", to: "mine")
        try giveAway("link")
        refuses(folder.file("link"), "\(folder.file("link")) belongs to another user (65534)")
    }

    @Test(
        "a file of the user or of root is refused if others can write it; a secret file also if others can open it, unless it is root's credential for a service"
    )
    func modes() {
        func isRefused(
            owner: uid_t, _ mode: mode_t, as user: uid_t, isSecret: Bool
        ) -> Bool {
            var status = stat()
            status.st_uid = owner
            status.st_mode = S_IFREG | mode
            let protection = isSecret ? TrustedFile.Protection.secret : .unalterable
            return protection.fault("file", status, user: user) != nil
        }
        for (owner, user) in [(0, 0), (0, 1000), (1000, 1000)] as [(uid_t, uid_t)] {
            for mode in 0...0o777 as ClosedRange<mode_t> {
                #expect(
                    isRefused(owner: owner, mode, as: user, isSecret: false) == (mode & 0o022 != 0))
                // Root may let a service read a secret through its group; systemd gives a service
                // its credentials with this owner and mode.
                let isCredential = owner == 0 && user != 0 && mode & 0o037 == 0
                #expect(
                    isRefused(owner: owner, mode, as: user, isSecret: true)
                        == (mode & 0o077 != 0 && !isCredential))
            }
        }
        for (owner, user) in [(1000, 0), (1000, 1001)] as [(uid_t, uid_t)] {
            for isSecret in [true, false] {
                #expect(isRefused(owner: owner, 0o600, as: user, isSecret: isSecret))
            }
        }
    }

    @Test("a file whose status cannot be read is refused")
    func unknownStatus() {
        let status = FileDescriptor.status(of: -1)
        // Only regular passphrase files are checked, so an unknown status has to count as that of a
        // regular file.
        #expect(status.isRegularFile)
        for protection in [TrustedFile.Protection.unalterable, .secret] {
            for user in [0, 1000, geteuid()] as [uid_t] {
                #expect(protection.fault("file", status, user: user) != nil)
            }
        }
    }

    @Test(
        "circular links, dangling links, and paths that go through a file are reported as no such file"
    )
    func dead() throws {
        try link("a", to: "b")
        try link("b", to: "a")
        try link("dangling", to: "nothing")
        folder.write("file", "x")
        for name in ["a", "dangling", "file/below", "none/file"] {
            #expect(throws: ChannelError(.noSuchFile, ""), "\(name)") {
                try read(folder.file(name))
            }
        }
    }

    @Test("a link that changes while it is opened gives the trusted file or an error")
    func race() async throws {
        try makeFolder("trusted")
        try makeFolder("open", 0o777)
        folder.write("trusted/file", "x")
        folder.write("open/file", "y")
        let (path, folder) = (folder.path, folder)
        try link("link", to: "trusted")
        // Tasks share threads: with one processor, all of them share one thread. So a thread of its
        // own changes the link.
        let isOver = Locked(false)
        let swapper = try #require(BlockingThread.start())
        swapper.perform {
            var isOpen = false
            while !isOver.withLock({ $0 }) {
                isOpen.toggle()
                unsafe unlink(path + "/new")
                _ = unsafe symlink(isOpen ? "open" : "trusted", path + "/new")
                _ = unsafe rename(path + "/new", path + "/link")
            }
        }
        var refusals = 0
        // At least 2,000 attempts, and more until one of them has been refused.
        for attempt in 0..<100_000 where attempt < 2_000 || refusals == 0 {
            do {
                guard try read(folder.file("link/file")) == [0x78] else {
                    Issue.record("the file in the directory that others can write was read")
                    break
                }
            } catch {
                #expect((error as? ChannelError)?.code == .badKey)
                refusals += 1
            }
        }
        isOver.withLock { $0 = true }
        // The thread runs this closure after the closure that changes the link.
        await swapper.run {}
        #expect(refusals > 0)
    }

    /// Calls that open a file with a key, or a file that decides about trust.
    static let readers: [(name: String, read: @Sendable (String) throws -> Void)] = [
        ("identity", { _ = try IdentityFile.load($0) }),
        ("authorities", { _ = try CertificateFile.authorities($0) }),
        ("certificate", { _ = try CertificateFile.identity(certificate: $0, key: "none", now: 0) }),
        ("deny list", { _ = try DenyListFile($0) }),
        ("known peers", { _ = try KnownPeersFile($0).peers() }),
        ("known peers, changed", { try KnownPeersFile($0).bind("a", to: key(1)) }),
        ("last addresses", { _ = try LastAddressesFile($0).address(of: key(1)) }),
        ("last addresses, changed", { try LastAddressesFile($0).record("a", of: key(1)) }),
        ("device's key", { _ = try DeviceKey.subjectPublicKeyInfo($0) }),
    ]

    @Test(
        "calls that open key or trust files refuse a file, or a directory on its path, that others can write",
        arguments: readers.indices)
    func everyFile(index: Int) throws {
        let reader = Self.readers[index]
        try makeFolder("open", 0o777)
        folder.write("open/file", "x")
        for (path, reason) in [
            (folder.file("open/file"), "run `chmod go-w \(folder.file("open"))`"),
            (folder.write("file", "x", mode: 0o622), "by others (mode 622): run `chmod"),
        ] {
            let error = #expect(throws: ChannelError(.badKey, ""), "\(reader.name)") {
                try reader.read(path)
            }
            #expect(
                error?.reason.contains(reason) == true, "\(reader.name): \(error?.reason ?? "")")
        }
        #expect(folder.read("open/file") == [0x78])
    }

    @Test(
        "a state folder or an authority's directory in a directory that others can write is refused"
    )
    func directories() throws {
        try makeFolder("open", 0o777)
        try makeFolder("open/closed")
        let path = folder.file("open/closed")
        let remedy = "run `chmod go-w \(folder.file("open"))`"
        let state = #expect(throws: ChannelError(.badKey, "")) { try StateFolder(path) }
        #expect(state?.reason.contains(remedy) == true, "\(state?.reason ?? "")")
        let authority = #expect(throws: ChannelError(.badKey, "")) {
            try CertificateAuthority(path)
        }
        #expect(authority?.reason.contains(remedy) == true, "\(authority?.reason ?? "")")
        let fresh = #expect(throws: ChannelError(.badKey, "")) {
            try CertificateAuthority.create(
                folder.file("open/ca"), name: nil, days: 1, passphrase: nil, now: 0)
        }
        #expect(fresh?.reason.contains(remedy) == true, "\(fresh?.reason ?? "")")
        #expect(try Subprocess.run("ls", ["-A", folder.file("open")]).text == "closed\n")
    }
}
