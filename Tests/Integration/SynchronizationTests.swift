import Glibc
import TestSupport
import Testing

extension Integration {
    /// The tool on a system where some files or folders cannot be synchronized to the disk.
    @Suite struct SynchronizationTests {
        private static let source = #filePath.replacing(
            "SynchronizationTests.swift", with: "Peers/failing_fsync.c")

        private let pair: ToolPair
        /// A library in which `fsync` fails for some paths.
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

        /// An environment in which `fsync` fails for the paths that match a pattern.
        private func environment(failing pattern: String?) -> [String: String] {
            guard let pattern else { return [:] }
            return ["LD_PRELOAD": library, "FSYNC_FAILS": pattern]
        }

        /// Sends a file or folder to a receiver that cannot synchronize the paths that match a
        /// pattern. Returns the outcomes of the receiver and of the sender.
        private func transfer(
            _ name: String, failing pattern: String?, _ options: [String] = []
        ) throws -> [Subprocess.Outcome] {
            let receiver = try Subprocess(
                Tool.path,
                [
                    "receive", pair.endpoint(), pair.folder.file("out"), "--listen", "--accept",
                    "always", "--identity", pair.folder.file("listener"), "--peer", pair.dialerKey,
                ] + options, environment: environment(failing: pattern), within: 40)
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
            "if the folder cannot be synchronized, nothing in it has a final name, until the next transfer",
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
            let failed = try transfer("file", failing: "*/out", ["--overwrite"])
            #expect(failed.map(\.status) == [73, 73], "\(failed.map(\.errors))")
            #expect(pair.folder.read("out/file") == Array("content".utf8))
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
