import BLESec
import BLESecChannelCore
import BLESecDelivery
import BLESecStore
import Glibc
import TestSupport
import Testing

extension Integration {
    /// `blesec connect --persist --store` with files, while nobody listens.
    @Suite struct PipeFileTests {
        private let pair: ToolPair
        private var folder: ScratchFolder { pair.folder }
        private var received: String { folder.file("received") }

        init() throws { pair = try ToolPair() }

        /// Runs the dialer until it ends: it refuses its arguments, or reaches its time limit and
        /// exits with 75.
        private func connect(
            _ arguments: [String], input: String = ""
        ) throws -> Subprocess.Outcome {
            try pair.connect(
                ["--persist", "--store", folder.file("store"), "--timeout", "1"] + arguments,
                input: .bytes(Array(input.utf8))
            ).wait()
        }

        /// Calls `body` with the dialer's store.
        private func withStore<Value>(_ body: (any EndpointStore) throws -> Value) throws -> Value {
            let store = try PeerConnection.Store.open(
                in: folder.file("store"), own: Fingerprint(parsing: pair.dialerKey),
                peer: Fingerprint(parsing: pair.listenerKey)
            ).endpoint
            defer { store.close() }
            return try body(store)
        }

        /// What `stat` says about the output file, such as its inode for the format `%i`.
        private func outputAttribute(_ format: String) throws -> String {
            let outcome = try Subprocess.run("stat", ["-c", format, received])
            try #require(outcome.status == 0, "\(outcome.errors)")
            return outcome.text.filter { $0 != "\n" }
        }

        @Test(
            "a store that was used with a file needs the file again; a store that was used without one refuses a file",
            arguments: ["--input", "--output"])
        func sameOptions(_ option: String) throws {
            for (note, arguments, reason) in [
                ("7 of file 1.2:3", [], "the store was used with \(option) FILE; give it again\n"),
                (
                    "no file", [option, received],
                    "the store was used without \(option); leave it out, or use another directory\n"
                ),
            ] {
                try withStore { store in
                    let bytes = Array(note.utf8)
                    try store.commit([
                        option == "--input" ? .sentNote(bytes) : .confirmedNote(bytes)
                    ])
                }
                Tool.expect(try connect(arguments), status: 65, reason)
            }
            #expect(folder.read("received") == nil)
        }

        @Test(
            "a store's note says `no file`, or has the birth time and the inode of the file")
        func notes() throws {
            let arguments = ["--output", received]
            for _ in 0..<2 {
                let outcome = try connect(arguments, input: "x")
                #expect(outcome.status == 75, "\(outcome.errors)")
            }
            let notes = try withStore { try #require($0.claim()).notes }
            #expect(notes.sent == Array("no file".utf8))
            let confirmed = String(decoding: notes.confirmed, as: UTF8.self)
            // On a file system that keeps no birth time, the note has the device instead.
            let birth = try outputAttribute("%W")
            let hasBirthTime = Int(birth) ?? 0 > 0
            let origin = hasBirthTime ? "\(birth)." : "\(try outputAttribute("%d")):"
            #expect(confirmed.hasPrefix("0 of file \(origin)"), "\(confirmed)")
            #expect(confirmed.hasSuffix(":\(try outputAttribute("%i"))"), "\(confirmed)")
        }

        @Test("a note that identifies the file by its device is still read")
        func olderNote() throws {
            folder.write("received", "")
            for (device, status) in [(try outputAttribute("%d"), Int32(75)), ("1", 65)] {
                let note = "0 of file \(device):\(try outputAttribute("%i"))"
                try withStore { try $0.commit([.confirmedNote(Array(note.utf8))]) }
                let outcome = try connect(["--output", received])
                #expect(outcome.status == status, "\(outcome.errors)")
            }
        }

        @Test("an output file that has disappeared is an error, and no empty file replaces it")
        func missingOutput() throws {
            #expect(try connect(["--output", received]).status == 75)
            #expect(unsafe unlink(received) == 0)
            Tool.expect(
                try connect(["--output", received]), status: 66,
                "\(received) cannot be written: No such file or directory")
            #expect(folder.read("received") == nil)
        }
    }
}
