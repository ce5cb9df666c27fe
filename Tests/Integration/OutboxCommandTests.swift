import BLESec
import BLESecChannelCore
import BLESecDelivery
import BLESecStore
import Glibc
import TestSupport
import Testing

extension Integration {
    /// `blesec outbox` with stores that the tests make, and with the store of a transfer.
    @Suite struct OutboxCommandTests {
        private let folder = ScratchFolder()
        private var directory: String { folder.file("stores") }

        private static func key(_ number: UInt8) -> Fingerprint {
            Fingerprint(subjectPublicKeyInfo: [number])
        }

        private func open(own: UInt8 = 1, peer: UInt8 = 2) throws -> PeerConnection.Store {
            try .open(in: directory, own: Self.key(own), peer: Self.key(peer))
        }

        /// Makes a store with messages of these lengths. Messages 1 to `sentThrough` may
        /// have been sent.
        private func make(
            own: UInt8 = 1, peer: UInt8 = 2, lengths: [Int], sentThrough: UInt64
        ) throws {
            let store = try open(own: own, peer: peer).endpoint
            var changes = lengths.enumerated().map { index, length in
                StoreChange.message(
                    .init(id: UInt64(index + 1), bytes: [UInt8](repeating: 1, count: length)))
            }
            changes.append(.mayHaveLeft(through: sentThrough))
            try store.commit(changes)
            store.close()
        }

        private func run(_ arguments: String...) throws -> Subprocess.Outcome {
            try Tool.run(arguments: ["outbox", directory] + arguments)
        }

        @Test("list shows what waits in each store, and drop removes what is queued")
        func listAndDrop() throws {
            try make(lengths: [100, 0, 30_000, 7], sentThrough: 1)
            let title = "store of \(Self.key(1)) for \(Self.key(2))"
            let listed = try run("list")
            #expect(listed.status == 0, "\(listed.errors)")
            #expect(
                listed.text == """
                    \(title)
                    1: 100 bytes, may have arrived
                    2: 0 bytes, queued
                    3: 30000 bytes, queued
                    4: 7 bytes, queued
                    4 messages with 30107 bytes in all: 3 messages with 30007 bytes queued, 1 \
                    message with 100 bytes that may have arrived

                    """)
            let dropped = try run("drop", "3", "2", "3")
            #expect(dropped.status == 0, "\(dropped.errors)")
            #expect(dropped.text == "dropped 2 messages with 30000 bytes\n")
            #expect(
                try run("list").text == """
                    \(title)
                    1: 100 bytes, may have arrived
                    4: 7 bytes, queued
                    2 messages with 107 bytes in all: 1 message with 7 bytes queued, 1 message with \
                    100 bytes that may have arrived

                    """)
            let json = try run("list", "--json").text
            #expect(
                json == """
                    {"stores": [{"own": "\(Self.key(1))", "peer": "\(Self.key(2))", "messages": \
                    [{"number": 1, "bytes": 100, "state": "may have arrived"}, {"number": 4, \
                    "bytes": 7, "state": "queued"}], "all": {"count": 2, "bytes": 107}, "queued": \
                    {"count": 1, "bytes": 7}, "may-have-arrived": {"count": 1, "bytes": 100}}]}

                    """)
            let last = try run("drop", "4", "--json").text
            #expect(last == "{\"dropped\": [4], \"bytes\": 7}\n")
            let fates = try #require(try open().endpoint.claim()).fates
            // Fates become known in the order of the messages, and message 1 has none yet.
            #expect((1...4).allSatisfy { fates.fate(id: $0) == nil } && fates.droppedCount == 3)
        }

        @Test("for a store without messages, list says that nothing waits")
        func empty() throws {
            try make(lengths: [], sentThrough: 0)
            let outcome = try run("list")
            #expect(outcome.status == 0)
            #expect(outcome.text.hasSuffix("\nnothing waits\n"))
            #expect(
                try run("list", "--json").text.contains("\"messages\": [], \"all\": {\"count\": 0,")
            )
        }

        @Test("drop refuses messages that may have arrived or do not wait, and wrong arguments")
        func refused() throws {
            try make(lengths: [1, 2, 3], sentThrough: 2)
            let store = try open().endpoint
            try store.commit([.retired(through: 1), .message(.init(id: 4, bytes: nil))])
            store.close()
            let before = try run("list").text
            Tool.expect(
                try run("drop", "2"), status: 65,
                "message 2 may have arrived, so it cannot be dropped; connect to the peer")
            // If one message cannot be dropped, none is dropped.
            Tool.expect(try run("drop", "3", "2"), status: 65, "message 2 may have arrived")
            // A confirmed message, an end, a number without a message, and the greatest number.
            for number in ["1", "4", "5", "9223372036854775807"] {
                Tool.expect(
                    try run("drop", number), status: 65,
                    "message \(number) does not wait in the store; `blesec outbox DIR list`")
            }
            for text in ["0", "-1", "+3", "3x", "0x3", "three", "9223372036854775808", "٣", "3 "] {
                Tool.expect(
                    try run("drop", "--", text), status: 64,
                    "NUMBER is a number from 1 to 9223372036854775807, and not `\(text)`")
            }
            Tool.expect(try run("drop", ""), status: 64, "NUMBER is empty")
            Tool.expect(
                try run("drop"), status: 64, "NUMBER is missing; see `blesec outbox --help`")
            Tool.expect(try run(), status: 64, "list|drop is missing; see `blesec outbox --help`")
            Tool.expect(try run("list", "3"), status: 64, "unexpected argument `3`")
            Tool.expect(try run("lst"), status: 64, "is list or drop, and not `lst`")
            Tool.expect(try run("list", "--peer", "me"), status: 65, "")
            #expect(try run("list").text == before)
        }

        @Test(
            "a missing directory, a file in its place, a directory without a store, and one that is open to others are refused"
        )
        func directories() throws {
            Tool.expect(try run("list"), status: 66, "\(directory): no such file")
            folder.write("stores", "text")
            Tool.expect(try run("list"), status: 65, "is no directory")
            unsafe unlink(directory)
            _ = unsafe mkdir(directory, 0o700)
            folder.write("stores/other.sqlite", "text")
            for words in [["list"], ["drop", "1"]] {
                Tool.expect(
                    try Tool.run(arguments: ["outbox", directory] + words), status: 66,
                    "there is no store in \(directory); give the directory that --store had")
            }
            unsafe chmod(directory, 0o755)
            Tool.expect(try run("list"), status: 65, "is open to others")
        }

        @Test(
            "with several stores, drop needs the peer's key; with two stores for that peer, also this side's key"
        )
        func several() throws {
            try make(lengths: [1], sentThrough: 0)
            try make(peer: 3, lengths: [2], sentThrough: 0)
            let listed = try run("list").text.split(separator: "\n\n")
            #expect(listed.count == 2)
            Tool.expect(
                try run("drop", "1"), status: 64, "has 2 stores; choose one with --peer KEY")
            let peer = Self.key(3).description
            Tool.expect(
                try run("drop", "1", "--peer", Self.key(9).description), status: 66,
                "is for that key")
            try make(own: 4, peer: 3, lengths: [3], sentThrough: 0)
            Tool.expect(
                try run("drop", "1", "--peer", peer), status: 64,
                "has 2 stores; choose one with --own KEY")
            let dropped = try run("drop", "1", "--peer", peer, "--own", Self.key(4).description)
            #expect(dropped.text == "dropped 1 message with 3 bytes\n")
            let listedAgain = try run("list", "--peer", peer).text
            #expect(
                listedAgain.contains("store of \(Self.key(1)) for \(peer)\n1: 2 bytes, queued\n"))
            #expect(listedAgain.contains("store of \(Self.key(4)) for \(peer)\nnothing waits\n"))
            #expect(!listedAgain.contains(Self.key(2).description))
        }

        @Test("a store that is in use or damaged is reported, and list shows the other stores")
        func unusable() throws {
            try make(lengths: [1], sentThrough: 0)
            try make(peer: 3, lengths: [2], sentThrough: 0)
            let usedStore = try open(peer: 3)
            let listed = try run("list")
            #expect(listed.status == 74)
            #expect(listed.text.contains("1: 1 byte, queued"))
            #expect(!listed.text.contains("1: 2 bytes, queued"))
            #expect(listed.errors.contains("is in use by another process or connection; end that"))
            Tool.expect(
                try run("drop", "1", "--peer", Self.key(3).description), status: 74, "is in use")
            let chosen = try run("drop", "1", "--peer", Self.key(2).description)
            #expect(chosen.status == 0, "\(chosen.errors)")
            usedStore.endpoint.close()
            // The keys of a damaged store cannot be read, so it may be the store that a command
            // asks for.
            let names = folder.storeFileNames.filter { $0.hasSuffix(".sqlite") }
            try #require(names.count == 2)
            for name in names { folder.write("stores/" + name, "no database") }
            let damaged = try run("list")
            #expect(damaged.status == 74 && damaged.text.isEmpty)
            #expect(damaged.errors.split(separator: "\n").count == 2)
            Tool.expect(
                try run("drop", "1", "--peer", Self.key(2).description), status: 74,
                "is damaged: file is not a database; put back a copy of all its files")
            folder.write("stores/" + names[0], "")
            unsafe unlink(folder.file("stores/" + names[1]))
            Tool.expect(try run("drop", "1"), status: 74, "is damaged")
        }

        @Test("a transfer from which a message was dropped ends with an error that says so")
        func transfer() throws {
            let pair = try ToolPair()
            let data = (1...3).flatMap { piece in
                String(repeating: "piece \(piece), ", count: 10_000).utf8.prefix(1 << 16)
            }
            pair.folder.write("data", data)
            let stores = pair.folder.file("dialer-stores")
            let sending = [
                "--persist", "--store", stores, "--input", pair.folder.file("data"),
            ]
            // Nobody listens yet.
            let early = try pair.connect(sending + ["--timeout", "5"]).wait()
            #expect(early.status == 75, "\(early.errors)")
            let listed = try Tool.run("outbox", stores, "list").text
            #expect(listed.contains("3 messages with 196608 bytes in all"), "\(listed)")
            let dropped = try Tool.run("outbox", stores, "drop", "2")
            #expect(dropped.status == 0, "\(dropped.errors)")
            // What was dropped is in none of the store's files.
            for (piece, status) in [(1, Int32(0)), (2, 1), (3, 0)] {
                let found = try Subprocess.run("grep", ["-rqaF", "piece \(piece),", stores])
                #expect(found.status == status, "piece \(piece)")
            }
            let listener = try pair.listen(
                ["--persist", "--store", pair.folder.file("listener-stores")],
                output: pair.folder.file("received"), within: 60)
            let dialer = try pair.connect(sending, within: 60)
            let outcomes = try Subprocess.wait([listener, dialer])
            #expect(outcomes.map(\.status) == [0, 76], "\(outcomes.map(\.errors))")
            #expect(
                outcomes[1].errors.hasSuffix(
                    "blesec: 1 piece is missing, since `blesec outbox` dropped what had not been "
                        + "sent\n"))
            let expected = Array(data[..<(1 << 16)] + data[(2 << 16)...])
            #expect(pair.folder.read("received") == expected)
        }

        @Test(
            "a listener whose store was replaced by an older copy exits with 0 only if nothing is missing"
        )
        func olderCopy() throws {
            let pair = try ToolPair()
            let folder = pair.folder
            let (received, fifo) = (folder.file("received"), folder.file("fifo"))
            let arguments = ["--persist", "--store", folder.file("store"), "--output", received]
            #expect(unsafe mkfifo(fifo, 0o600) == 0)
            let input = unsafe Glibc.open(fifo, O_RDWR | O_CLOEXEC)
            func send(_ text: String) throws {
                #expect(unsafe write(input, text, text.utf8.count) == text.utf8.count)
            }
            func awaitReceived(_ text: String) throws {
                for _ in 0..<1_000 where folder.read("received") != Array(text.utf8) {
                    usleep(20_000)
                }
                #expect(folder.read("received") == Array(text.utf8))
            }
            var listener = try pair.listen(arguments, within: 60)
            let dialer = try pair.connect(["--persist"], input: .file(fifo), within: 60)
            try send("one ")
            try awaitReceived("one ")
            listener.signal(SIGKILL)
            _ = try listener.wait()
            let copied = try Subprocess.run(
                "cp", ["-a", folder.file("store"), folder.file("older-copy")])
            #expect(copied.status == 0, "\(copied.errors)")
            listener = try pair.listen(arguments, within: 60)
            try send("two ")
            try awaitReceived("one two ")
            // Within this time, the dialer usually learns that `two` has arrived.
            usleep(500_000)
            listener.signal(SIGKILL)
            _ = try listener.wait()
            #expect(try Subprocess.run("rm", ["-r", folder.file("store")]).status == 0)
            let moved = try Subprocess.run(
                "mv", [folder.file("older-copy"), folder.file("store")])
            #expect(moved.status == 0, "\(moved.errors)")
            listener = try pair.listen(arguments, within: 60)
            try send("three ")
            close(input)
            let outcome = try listener.wait(whileServing: [dialer])
            if outcome.status == 0 {
                // The dialer did not learn that `two` had arrived, and so has sent it again.
                #expect(folder.read("received") == Array("one two three ".utf8))
            } else {
                #expect(outcome.status == 76)
                #expect(
                    outcome.errors.contains("the store was an older copy: "), "\(outcome.errors)")
            }
            dialer.signal(SIGTERM)
            _ = try dialer.wait()
        }
    }
}

extension ScratchFolder {
    /// The names of the files in the folder `stores`.
    fileprivate var storeFileNames: [String] {
        guard let directory = unsafe opendir(file("stores")) else { return [] }
        defer { unsafe closedir(directory) }
        var names: [String] = []
        while let entry = unsafe readdir(directory) {
            names.append(
                unsafe withUnsafePointer(to: &entry.pointee.d_name) {
                    unsafe String(cString: UnsafeRawPointer($0).assumingMemoryBound(to: CChar.self))
                })
        }
        return names.sorted()
    }
}
