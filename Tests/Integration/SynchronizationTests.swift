import Glibc
import TestSupport
import Testing

extension Integration {
    /// The tool on a system where some files or folders cannot be synchronized to the disk.
    @Suite struct SynchronizationTests {
        private static let source = #filePath.replacing(
            "SynchronizationTests.swift", with: "Peers/failing_fsync.c")

        private let pair: ToolPair
        /// A library in which `fsync` and `syncfs` fail for some paths.
        private let library: String

        init() throws {
            pair = try ToolPair()
            library = pair.folder.file("failing_fsync.so")
            let made = try Subprocess.run("cc", ["-shared", "-fPIC", "-o", library, Self.source])
            try #require(made.status == 0, "\(made.errors)")
            for name in ["out", "tree"] {
                try #require(unsafe mkdir(pair.folder.file(name), 0o700) == 0)
            }
            for name in ["file", "tree/file"] { pair.folder.write(name, "content") }
        }

        enum Call: String { case fsync = "FSYNC_FAILS", syncfs = "SYNCFS_FAILS" }

        /// An environment in which a call fails for the paths that match a pattern.
        private func environment(
            failing pattern: String?, _ call: Call = .fsync
        ) -> [String: String] {
            guard let pattern else { return [:] }
            return ["LD_PRELOAD": library, call.rawValue: pattern]
        }

        /// Sends a file or folder to a receiver in which a call fails for the paths that match a
        /// pattern. Returns the outcomes of the receiver and of the sender.
        private func transfer(
            _ name: String, failing pattern: String?, _ call: Call = .fsync,
            _ options: [String] = []
        ) throws -> [Subprocess.Outcome] {
            let receiver = try Subprocess(
                Tool.path,
                [
                    "receive", pair.endpoint(), pair.folder.file("out"), "--listen", "--accept",
                    "always", "--identity", pair.folder.file("listener"), "--peer", pair.dialerKey,
                ] + options, environment: environment(failing: pattern, call), within: 40)
            _ = try receiver.line("listening on ")
            let sender = try Tool.start(
                [
                    "send", pair.endpoint(), pair.folder.file(name), "--identity",
                    pair.folder.file("dialer"), "--peer", pair.listenerKey,
                ], within: 40)
            return try Subprocess.wait([receiver, sender])
        }

        /// The names in the receiving folder.
        private func received() throws -> [String] {
            try Subprocess.run("ls", ["-A", pair.folder.file("out")]).text
                .split(separator: "\n").map(String.init)
        }

        @Test("a file that cannot be synchronized is removed, and the next transfer writes it anew")
        func file() throws {
            let failed = try transfer("file", failing: "*/f-*")
            #expect(failed.map(\.status) == [73, 73], "\(failed.map(\.errors))")
            #expect(failed[0].errors.contains("Input/output error"), "\(failed[0].errors)")
            #expect(try received() == [])
            let next = try transfer("file", failing: nil)
            #expect(next.map(\.status) == [0, 0], "\(next.map(\.errors))")
            #expect(pair.folder.read("out/file") == Array("content".utf8))
        }

        @Test(
            "if the folder cannot be synchronized, what is received gets its final name only in the next transfer",
            arguments: [("file", Int32(73)), ("tree", 76)])
        func folder(_ name: String, _ status: Int32) throws {
            let failed = try transfer(name, failing: "*/out")
            #expect(failed.map(\.status) == [status, status], "\(failed.map(\.errors))")
            #expect(failed[0].errors.contains("Input/output error"), "\(failed[0].errors)")
            #expect(try received() == [".blesec-partial"])
            let next = try transfer(name, failing: nil)
            #expect(next.map(\.status) == [0, 0], "\(next.map(\.errors))")
            #expect(try received() == [name])
        }

        @Test(
            "a file that has replaced another one keeps its name if the folder cannot be synchronized"
        )
        func replaced() throws {
            pair.folder.write("out/file", "old")
            let failed = try transfer("file", failing: "*/out", .fsync, ["--overwrite"])
            #expect(failed.map(\.status) == [73, 73], "\(failed.map(\.errors))")
            #expect(pair.folder.read("out/file") == Array("content".utf8))
            // The file counts as stored only when its name is durable.
            let second = try transfer("file", failing: "*/out", .fsync, ["--overwrite"])
            #expect(second.map(\.status) != [0, 0])
            #expect(second[0].errors.contains("Input/output error"), "\(second[0].errors)")
            let third = try transfer("file", failing: nil)
            #expect(third.map(\.status) == [0, 0], "\(third.map(\.errors))")
            #expect(try received() == ["file"])
        }

        @Test(
            "if the note about a file cannot be made durable, the file gets its final name only in the next transfer",
            arguments: ["*/s-*.new", "*/.blesec-partial/" + String(repeating: "?", count: 32)])
        func note(_ pattern: String) throws {
            let failed = try transfer("file", failing: pattern)
            #expect(failed.map(\.status) == [73, 73], "\(failed.map(\.errors))")
            #expect(failed[0].errors.contains("Input/output error"), "\(failed[0].errors)")
            #expect(try received() == [".blesec-partial"])
            let next = try transfer("file", failing: nil)
            #expect(next.map(\.status) == [0, 0], "\(next.map(\.errors))")
            #expect(try received() == ["file"])
        }

        /// With `fsync`, the folder of a file that was moved into the tree cannot be synchronized;
        /// with `syncfs`, the whole tree.
        @Test(
            "if a tree cannot be synchronized, it gets its final name only in the next transfer",
            arguments: [Call.fsync, .syncfs])
        func tree(_ call: Call) throws {
            let failed = try transfer("tree", failing: "*/o-*/tree", call)
            #expect(failed.map(\.status) == [76, 76], "\(failed.map(\.errors))")
            #expect(failed[0].errors.contains("Input/output error"), "\(failed[0].errors)")
            #expect(try received() == [".blesec-partial"])
            let next = try transfer("tree", failing: nil)
            #expect(next.map(\.status) == [0, 0], "\(next.map(\.errors))")
            #expect(try received() == ["tree"])
        }

        /// The first pattern matches a new file. Such a file has no name or, on some file systems, a
        /// name that begins with a dot. The second pattern matches the file's folder.
        @Test(
            "keygen leaves no file if the file or its folder cannot be synchronized",
            arguments: ["*/keys/[#.]*", "*/keys"])
        func newFile(_ pattern: String) throws {
            try #require(unsafe mkdir(pair.folder.file("keys"), 0o700) == 0)
            let outcome = try Subprocess.run(
                Tool.path, ["keygen", pair.folder.file("keys/key")],
                environment: environment(failing: pattern))
            Tool.expect(outcome, status: 73, "cannot be created: Input/output error")
            #expect(try Subprocess.run("ls", ["-A", pair.folder.file("keys")]).text.isEmpty)
        }

        /// Renames a remembered peer while paths that match a pattern cannot be synchronized.
        /// Returns the outcome, and the new name.
        private func renamePeer(failing pattern: String) throws -> (Subprocess.Outcome, String) {
            let state = pair.folder.file("state")
            try #require(unsafe mkdir(state, 0o700) == 0)
            pair.folder.write("state/known_peers", "lamp \(pair.listenerKey)\n")
            let outcome = try Subprocess.run(
                Tool.path, ["peers", "rename", "lamp", "door", "--state", state],
                environment: environment(failing: pattern))
            let line = String(decoding: pair.folder.read("state/known_peers") ?? [], as: UTF8.self)
            return (outcome, String(line.prefix(4)))
        }

        @Test("a list whose new content cannot be synchronized keeps the old content")
        func replacedContent() throws {
            let (outcome, name) = try renamePeer(failing: "*/state/.blesec-*")
            Tool.expect(outcome, status: 73, "cannot be created: Input/output error")
            #expect(name == "lamp")
            #expect(!pair.folder.names.contains { $0.hasPrefix(".blesec-") })
        }

        @Test(
            "if the folder of a replaced list cannot be synchronized, the error says that the list is new"
        )
        func replacedName() throws {
            let (outcome, name) = try renamePeer(failing: "*/state")
            Tool.expect(outcome, status: 73, "has its new content, but may lose it")
            #expect(name == "door")
        }

        @Test(
            "a store whose directory cannot be synchronized is an error, even if the store exists")
        func store() throws {
            for _ in 0..<2 { try refuseStore() }
        }

        private func refuseStore() throws {
            let outcome = try Subprocess.run(
                Tool.path,
                [
                    "listen", pair.endpoint(), "--persist", "--store", pair.folder.file("stores"),
                    "--identity", pair.folder.file("listener"), "--peer", pair.dialerKey,
                    "--timeout", "5",
                ], environment: environment(failing: "*/stores"))
            #expect(outcome.status == 74, "\(outcome.errors)")
            #expect(
                outcome.errors.hasSuffix(" cannot be made durable: Input/output error\n"),
                "\(outcome.errors)")
        }
    }
}
