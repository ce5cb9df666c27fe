import BLESec
import BLESecChannelCore
import BLESecDelivery
import BLESecStore
import Glibc
import TestSupport
import Testing

extension Integration {
    /// Stores that the tool may read but not write.
    @Suite struct ReadOnlyStoreTests {
        private let pair: ToolPair
        private var directory: String { pair.folder.file("stores") }

        init() throws { pair = try ToolPair() }

        private func run(_ arguments: [String]) throws -> Subprocess.Outcome {
            try Tool.runBoundByPermissions(arguments)
        }

        /// Makes the listener's store with a message, and returns it, still open, with its path.
        private func make() throws -> (store: any EndpointStore, path: String) {
            let store = try PeerConnection.Store.open(
                in: directory, own: Fingerprint(parsing: pair.listenerKey),
                peer: Fingerprint(parsing: pair.dialerKey)
            ).endpoint
            try store.commit([
                .epoch(Identifier(high: 1, low: 1), keeping: []),
                .message(.init(id: 1, bytes: [1, 2, 3])),
            ])
            let names = try Subprocess.run("ls", [directory]).text.split(separator: "\n")
            let name = try #require(names.first { $0.hasSuffix(".sqlite") })
            return (store, "\(directory)/\(name)")
        }

        private func setModes(
            file fileMode: mode_t, directory directoryMode: mode_t, _ paths: [String]
        ) {
            for path in paths { unsafe chmod(path, fileMode) }
            unsafe chmod(directory, directoryMode)
        }

        private func listen() throws -> Subprocess.Outcome {
            try run([
                "listen", pair.endpoint(), "--persist", "--store", directory, "--identity",
                pair.folder.file("listener"), "--peer", pair.dialerKey, "--timeout", "5",
            ])
        }

        /// The modes of a store's files and directory, and whether a process that had opened the
        /// store was killed.
        struct Case: Sendable {
            var file: mode_t
            var directory: mode_t
            var processWasKilled: Bool
        }

        @Test(
            "a store that cannot be written is not opened, the error says so, and the store does not change",
            arguments: [
                Case(file: 0o400, directory: 0o700, processWasKilled: false),
                Case(file: 0o600, directory: 0o500, processWasKilled: false),
                Case(file: 0o400, directory: 0o500, processWasKilled: false),
                Case(file: 0o400, directory: 0o700, processWasKilled: true),
                Case(file: 0o400, directory: 0o500, processWasKilled: true),
            ])
        func readOnly(_ state: Case) throws {
            let (store, path) = try make()
            var paths = [path]
            if state.processWasKilled {
                // What a killed process leaves: the message is in SQLite's write-ahead log alone.
                for name in [path, path + "-wal"] {
                    let copied = try Subprocess.run("cp", ["-p", name, name + ".copy"])
                    try #require(copied.status == 0)
                }
                store.close()
                for name in [path, path + "-wal"] {
                    try #require(try Subprocess.run("mv", [name + ".copy", name]).status == 0)
                }
                paths.append(path + "-wal")
            } else {
                store.close()
            }
            let before = try Subprocess.run("sha256sum", paths).text
            setModes(file: state.file, directory: state.directory, paths)
            for outcome in [
                try listen(), try run(["outbox", directory, "list"]),
                try run(["outbox", directory, "drop", "1"]),
            ] {
                #expect(outcome.status == 74)
                let error = outcome.errors.split(separator: "\n").last ?? ""
                #expect(
                    error.hasPrefix("blesec: the store \(path) cannot be written: "), "\(error)")
                #expect(error.hasSuffix("needs to be able to write its files and its directory"))
            }
            #expect(try Subprocess.run("sha256sum", paths).text == before)
            setModes(file: 0o600, directory: 0o700, paths)
            let listed = try run(["outbox", directory, "list"])
            #expect(listed.text.contains("\n1: 3 bytes, queued\n"), "\(listed.errors)")
        }

        @Test("a store is not made in a directory that cannot be written")
        func notMade() throws {
            _ = unsafe mkdir(directory, 0o500)
            let outcome = try listen()
            #expect(outcome.status == 74)
            #expect(outcome.errors.hasSuffix(" cannot be made: Permission denied\n"))
        }
    }
}
