import BLESecDelivery
import BLESecLocking
import BLESecPrimitives
import Foundation
import TestSupport
import Testing

@testable import BLESecStore

/// The store's file: what it keeps, and what is refused.
struct StoreFileTests {
    private let folder = ScratchFolder()
    private var path: String { folder.file("one.sqlite") }

    private func make() throws {
        try Data().write(to: URL(fileURLWithPath: path))
        try SQLiteStore.make(at: path, own: "own", peer: "peer")
    }

    private func open() throws(StoreFailure) -> SQLiteStore {
        try SQLiteStore(at: path, keys: ("own", "peer"))
    }

    /// Why `body` fails; empty if it does not.
    private func reason(_ body: () throws(StoreFailure) -> Void) -> String {
        do throws(StoreFailure) {
            try body()
            return ""
        } catch {
            return error.reason
        }
    }

    /// A random change that fits the state.
    private static func change(
        _ stored: StoredEndpoint, using generator: inout SeededGenerator
    ) -> StoreChange {
        let identifier = Identifier(using: &generator)
        let last = stored.first + UInt64(stored.messages.count) - 1
        let number = UInt64.random(in: 0...stored.nextID, using: &generator)
        switch Int.random(in: 0..<18, using: &generator) {
        case 0: return .newestIdentifier(identifier)
        case 1...5:
            // After an end, only another end may follow, when the earlier end is confirmed.
            guard !stored.hasFinished || stored.messages.isEmpty else {
                return .confirmed(through: number)
            }
            let length = Int.random(in: 0...300, using: &generator)
            let isEnd =
                stored.hasFinished
                || (stored.nextID > 300 && Int.random(in: 0..<20, using: &generator) == 0)
            let bytes = [UInt8](repeating: 7, count: length)
            return .message(.init(id: stored.nextID, bytes: isEnd ? nil : bytes))
        case 6: return .mayHaveLeft(through: min(last, number))
        case 7, 8: return .retired(through: min(last, number))
        case 9:
            let count = Int.random(in: 0...stored.messages.count, using: &generator)
            let kept = stored.messages.enumerated()
                .filter { $0.offset >= count || $0.element.bytes == nil }.map(\.element.id)
            return .epoch(identifier, keeping: Set(kept))
        case 10: return .seen(PeerState(token: identifier, epoch: stored.epoch))
        case 11: return .peer(identifier)
        case 12:
            let isSame = Bool.random(using: &generator)
            return .peerEpoch(isSame ? stored.peerEpoch : identifier, confirmed: number)
        case 13: return .confirmed(through: number)
        case 14:
            let note = [UInt8](repeating: 1, count: Int.random(in: 0...20, using: &generator))
            return Bool.random(using: &generator) ? .sentNote(note) : .confirmedNote(note)
        case 15:
            let queued = stored.queued.filter { $0.bytes != nil }.map(\.id)
            return .dropped(Set(queued.filter { _ in Bool.random(using: &generator) }))
        case 16 where Int.random(in: 0..<8, using: &generator) == 0: return .rolledBack
        case 17 where Int.random(in: 0..<8, using: &generator) == 0: return .interrupted
        default:
            return Bool.random(using: &generator)
                ? .fatesTaken(through: min(stored.fates.decided, number)) : .peerEndConfirmed
        }
    }

    @Test("a database whose path is a symbolic link is not opened")
    func link() throws {
        try make()
        let link = folder.file("link")
        try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: path)
        _ = try Database(path)
        let failure = #expect(throws: Database.Failure.self) { _ = try Database(link) }
        #expect(failure?.primaryCode == 14, "\(String(describing: failure))")
    }

    @Test(
        "after random changes, an opened store has the state that the same changes make in memory"
    )
    func changes() throws {
        try make()
        var generator = SeededGenerator(seed: 5)
        var expected = StoredEndpoint()
        for _ in 0..<12 {
            let store = try open()
            #expect(store.claim() == expected)
            for _ in 0..<40 {
                var changes: [StoreChange] = []
                for _ in 0..<Int.random(in: 1...6, using: &generator) {
                    let change = Self.change(expected, using: &generator)
                    expected.apply(change)
                    changes.append(change)
                }
                try store.commit(changes)
            }
        }
        #expect(try open().claim() == expected)
        #expect(expected.hasFinished)
    }

    @Test(
        "beyond the limits for fates and identifiers, an opened store's state equals that in memory"
    )
    func bounds() throws {
        try make()
        var generator = SeededGenerator(seed: 6)
        var expected = StoredEndpoint()
        let store = try open()
        for id in 1...UInt64(2 * Fates.mostRanges + 500) {
            var changes: [StoreChange] = [.message(.init(id: id, bytes: [1]))]
            let epoch = Identifier(using: &generator)
            // Every second message becomes unknown, so that the ranges of unknown messages do not
            // touch.
            changes +=
                id % 2 == 0 ? [.epoch(epoch, keeping: [])] : [.retired(through: expected.first)]
            changes.append(.peerEpoch(epoch, confirmed: 0))
            for change in changes { expected.apply(change) }
            try store.commit(changes)
        }
        #expect(expected.fates.unknown.count == Fates.mostRanges)
        try #require(expected.own.count < StoredEndpoint.mostIdentifiers)
        let extra = (0..<UInt64(StoredEndpoint.mostIdentifiers)).map { _ in
            StoreChange.newestIdentifier(Identifier(using: &generator))
        }
        for change in extra { expected.apply(change) }
        try store.commit(extra)
        // An identifier that is there already becomes the newest, and displaces no other.
        let oldest = expected.own[0]
        let change = StoreChange.newestIdentifier(oldest)
        expected.apply(change)
        try store.commit([change])
        #expect(expected.own.count == StoredEndpoint.mostIdentifiers)
        #expect(expected.own.last == oldest)
        _ = consume store
        #expect(try open().claim() == expected)
    }

    @Test("a store hands over its state once, and keeps no copy")
    func claim() throws {
        try make()
        let store = try open()
        let change = StoreChange.message(.init(id: 1, bytes: [1]))
        try store.commit([change])
        // The state is that of the time when the store was opened.
        #expect(store.claim() == StoredEndpoint())
        #expect(store.claim() == nil)
    }

    @Test("a store that is open is not opened a second time")
    func inUse() throws {
        try make()
        let store = try open()
        #expect(reason { () throws(StoreFailure) in _ = try open() }.contains("is in use"))
        try store.commit([.confirmed(through: 1)])
    }

    @Test("a store of a newer version or of other keys, and a damaged database, are refused")
    func refused() throws {
        for (sql, text) in [
            ("PRAGMA user_version = 4", "newer blesec (version 4)"),
            ("PRAGMA user_version = 0", "damaged"), ("PRAGMA application_id = 1", "damaged"),
            ("UPDATE endpoint SET peer = 'other'", "other keys"),
            ("DELETE FROM endpoint", "damaged"),
            ("UPDATE endpoint SET epoch = x'00'", "16 bytes"),
            ("UPDATE endpoint SET first = -1", "damaged"),
            ("DROP TABLE message", "damaged: no such table"),
            ("DROP TABLE dropped", "damaged: no such table"),
            ("INSERT INTO dropped VALUES (2, 1)", "reversed"),
            ("INSERT INTO unknown VALUES (1, 3), (2, 2)", "overlap"),
            ("INSERT INTO unknown VALUES (1, 1)", "do not fit"),
            ("INSERT INTO dropped VALUES (1, 1)", "do not fit"),
            ("INSERT INTO message VALUES (1, x'00')", "do not fit"),
            ("UPDATE endpoint SET first = 0", "do not fit"),
            ("UPDATE endpoint SET first = 4611686018427387903", "do not fit"),
            ("UPDATE endpoint SET next_id = 0", "do not fit"),
            ("UPDATE endpoint SET next_id = 9223372036854775807", "do not fit"),
            ("UPDATE endpoint SET left_through = 1", "do not fit"),
            ("UPDATE endpoint SET confirmed = 9223372036854775807", "do not fit"),
            ("UPDATE endpoint SET decided = 1", "do not fit"),
            ("UPDATE endpoint SET taken = 1", "do not fit"),
        ] {
            try? FileManager.default.removeItem(atPath: path)
            try make()
            try Database(path).run(sql)
            let reason = reason { () throws(StoreFailure) in _ = try open() }
            #expect(reason.contains(text), "\(sql): \(reason)")
        }
        try Data("SQLite, but not really".utf8).write(to: URL(fileURLWithPath: path))
        #expect(reason { () throws(StoreFailure) in _ = try open() }.contains("damaged"))
    }

    @Test("a file whose list of free pages is wrong is refused, although no table is affected")
    func freePages() throws {
        try make()
        _ = try open()
        var bytes = try Data(contentsOf: URL(fileURLWithPath: path))
        // The header's number of free pages (SQLite's file format, 1.3.10).
        bytes.replaceSubrange(36..<40, with: [0, 0, 0, 5])
        try bytes.write(to: URL(fileURLWithPath: path))
        #expect(reason { () throws(StoreFailure) in _ = try open() }.contains("damaged"))
    }

    @Test("each commit waits until it is durable, and deleted messages are overwritten")
    func settings() throws {
        try make()
        let store = try open()
        // `synchronous` 2 is FULL, and `secure_delete` 1 is on.
        for (pragma, value) in [("synchronous", 2), ("secure_delete", 1)] {
            let found = try store.database.withLock { database in
                try database?.run("PRAGMA \(pragma)").first?.first?.number
            }
            #expect(found == UInt64(value), "\(pragma)")
        }
    }

    /// Makes a store, commits the changes, and changes the database with `sql`. Returns why the
    /// store is refused then; empty if it is opened.
    private func reason(after changes: [StoreChange], _ sql: String) throws -> String {
        try? FileManager.default.removeItem(atPath: path)
        try make()
        try open().commit(changes)
        try Database(path).run(sql)
        return reason { () throws(StoreFailure) in _ = try open() }
    }

    @Test(
        "a message or a note that is no BLOB is refused, and so is an end in a wrong place",
        arguments: [
            "UPDATE message SET bytes = 'text' WHERE id = 1",
            "UPDATE message SET bytes = 5 WHERE id = 1",
            "UPDATE message SET bytes = NULL WHERE id = 1",
            "UPDATE message SET bytes = 'text' WHERE id = 2",
            "UPDATE endpoint SET has_finished = 0",
            "UPDATE endpoint SET sent_note = 'text'", "UPDATE endpoint SET sent_note = 5",
            "UPDATE endpoint SET confirmed_note = 'text'",
        ])
    func types(sql: String) throws {
        let changes: [StoreChange] = [
            .message(.init(id: 1, bytes: [])), .message(.init(id: 2, bytes: nil)),
            .sentNote([1]), .confirmedNote([2]),
        ]
        #expect(try reason(after: changes, "SELECT 1").isEmpty)
        #expect(try reason(after: changes, sql).contains("is damaged: a message or a note"))
    }

    @Test("a store in which a message, the end or a range of fates is missing is refused")
    func missing() throws {
        // Message 1 is confirmed, and 3 is dropped. Message 5 was dropped before the rollback, so
        // its fate will be unknown.
        let messages: [StoreChange] =
            (1...UInt64(7)).map { StoreChange.message(.init(id: $0, bytes: [UInt8($0)])) }
            + [.retired(through: 1), .dropped([5]), .rolledBack, .dropped([3])]
        let finished = messages + [.message(.init(id: 8, bytes: nil))]
        let deletions = [2, 4, 6, 7].map { "DELETE FROM message WHERE id = \($0)" }
        let fates = [
            "DELETE FROM dropped", "DELETE FROM unknown", "UPDATE endpoint SET decided = 0",
        ]
        for (changes, faults) in [
            (messages, deletions + fates + ["UPDATE endpoint SET has_finished = 1"]),
            (finished, deletions + fates + ["DELETE FROM message WHERE id = 8"]),
        ] {
            #expect(try reason(after: changes, "SELECT 1").isEmpty)
            for sql in faults {
                let reason = try reason(after: changes, sql)
                #expect(reason.contains("is damaged: a message is missing"), "\(sql): \(reason)")
            }
        }
    }

    @Test("ends that were confirmed are not missing, also when the end is queued again")
    func confirmedEnds() throws {
        try make()
        let commits: [[StoreChange]] = [
            [.message(.init(id: 1, bytes: [1])), .message(.init(id: 2, bytes: nil))],
            [.mayHaveLeft(through: 2), .retired(through: 2)],
            [.message(.init(id: 3, bytes: nil))], [.retired(through: 3)],
        ]
        for changes in commits { try open().commit(changes) }
        let stored = try #require(try open().claim())
        #expect(stored.messages.isEmpty && stored.nextID == 4)
    }

    /// Makes a store of an earlier version, with these changes.
    private func make(version: UInt64, _ changes: [StoreChange]) throws {
        try? FileManager.default.removeItem(atPath: path)
        try make()
        try open().commit(changes)
        let database = try Database(path)
        if version == 1 { try database.run("DROP TABLE dropped") }
        try database.run("ALTER TABLE endpoint DROP COLUMN was_rolled_back")
        try database.run("ALTER TABLE endpoint DROP COLUMN was_interrupted")
        try database.run("PRAGMA user_version = \(version)")
    }

    @Test(
        "a store of an earlier version that is refused stays as it was",
        arguments: [1, 2] as [UInt64])
    func earlierVersionRefused(version: UInt64) throws {
        for (sql, text) in [
            ("DELETE FROM message WHERE id = 1", "a message is missing"),
            ("UPDATE message SET bytes = 'text'", "not a BLOB"),
            ("ALTER TABLE endpoint DROP COLUMN taken", "no such column"),
            ("UPDATE endpoint SET peer = 'other'", "other keys"),
        ] {
            try make(
                version: version,
                [.message(.init(id: 1, bytes: [1])), .message(.init(id: 2, bytes: [2]))])
            try Database(path).run(sql)
            let schema = "SELECT name, sql FROM sqlite_schema ORDER BY name"
            let before = try Database(path).run(schema)
            let reason = reason { () throws(StoreFailure) in _ = try open() }
            #expect(reason.contains("damaged") && reason.contains(text), "\(sql): \(reason)")
            #expect(try Database(path).run(schema) == before)
            #expect(
                try Database(path).run("PRAGMA user_version") == [[.integer(Int64(version))]])
        }
    }

    @Test(
        "a store of an earlier version is opened and brought to this version",
        arguments: [1, 2] as [UInt64])
    func earlierVersion(version: UInt64) throws {
        var expected = StoredEndpoint()
        let changes: [StoreChange] = [
            .message(.init(id: 1, bytes: [1])), .message(.init(id: 2, bytes: [2])),
            .retired(through: 1), .sentNote([3]),
        ]
        for change in changes { expected.apply(change) }
        try make(version: version, changes)
        for _ in 0..<2 { #expect(try open().claim() == expected) }
        for change in [StoreChange.dropped([2]), .interrupted, .rolledBack] {
            expected.apply(change)
            try open().commit([change])
        }
        #expect(try open().claim() == expected)
        #expect(try Database(path).run("PRAGMA user_version") == [[.integer(3)]])
    }

    @Test("dropped messages get their fates in the order of the ids; other messages keep their ids")
    func dropped() throws {
        try make()
        let store = try open()
        try store.commit((1...UInt64(6)).map { .message(.init(id: $0, bytes: [UInt8($0)])) })
        try store.commit([.mayHaveLeft(through: 2), .dropped([3, 4, 6])])
        _ = consume store
        var stored = try #require(try open().claim())
        #expect(stored.messages.map(\.id) == [1, 2, 5])
        #expect(stored.nextID == 7 && stored.first == 1)
        #expect((1...6).allSatisfy { stored.fates.fate(id: $0) == nil })
        // Message 5 now has the number 3 in the epoch, which message 3 would have had.
        try open().commit([.mayHaveLeft(through: 3), .retired(through: 2)])
        stored = try #require(try open().claim())
        let earlyFates = (1...UInt64(6)).map { stored.fates.fate(id: $0) }
        #expect(earlyFates == [.confirmed, .confirmed, .dropped, .dropped, nil, nil])
        try open().commit([.epoch(Identifier(high: 1, low: 1), keeping: [])])
        stored = try #require(try open().claim())
        let fates = (1...UInt64(6)).map { stored.fates.fate(id: $0) }
        #expect(fates == [.confirmed, .confirmed, .dropped, .dropped, .unknown, .dropped])
        var taken: [UInt64] = []
        while let next = stored.fates.take() { taken.append(next.id) }
        #expect(taken == [1, 2, 3, 4, 5, 6])
    }

    @Test(
        "messages dropped before a rollback become `unknown` in id order; ones dropped later do not"
    )
    func rollback() throws {
        try make()
        var expected = StoredEndpoint()
        /// Commits the changes, and returns the fates of the five messages.
        func fates(after changes: [StoreChange]) throws -> [Fates.Fate?] {
            try open().commit(changes)
            for change in changes { expected.apply(change) }
            let stored = try #require(try open().claim())
            #expect(stored == expected)
            return (1...UInt64(5)).map { stored.fates.fate(id: $0) }
        }
        let (first, second) = (Identifier(high: 1, low: 1), Identifier(high: 1, low: 2))
        let messages = (1...UInt64(5)).map { StoreChange.message(.init(id: $0, bytes: [1])) }
        var found = try fates(after: messages + [.dropped([2, 4])])
        #expect(found == [nil, nil, nil, nil, nil])
        found = try fates(after: [.epoch(first, keeping: [1, 3, 5]), .rolledBack])
        #expect(found == [nil, nil, nil, nil, nil])
        found = try fates(after: [.mayHaveLeft(through: 1), .retired(through: 1)])
        #expect(found == [.confirmed, .unknown, nil, nil, nil])
        found = try fates(after: [.dropped([3])])
        #expect(found == [.confirmed, .unknown, .dropped, .unknown, nil])
        found = try fates(after: [.epoch(second, keeping: [])])
        #expect(found == [.confirmed, .unknown, .dropped, .unknown, .unknown])
    }

    @Test(
        "a store that is opened again and drops messages keeps their bytes in none of its files",
        arguments: [40, 30_000])
    func overwritten(length: Int) throws {
        try make()
        let secret = Array("the bytes of a message that nobody is to read".utf8)
        let bytes = secret + [UInt8](repeating: 7, count: length) + secret
        let store = try open()
        for id in 1...UInt64(3) { try store.commit([.message(.init(id: id, bytes: bytes))]) }
        let log = try Data(contentsOf: URL(fileURLWithPath: path + "-wal"))
        #expect(log.firstRange(of: secret) != nil)
        store.close()
        try open().commit([.dropped([1, 2, 3])])
        let names = try FileManager.default.contentsOfDirectory(atPath: folder.path)
        for name in names {
            let content = try Data(contentsOf: URL(fileURLWithPath: folder.file(name)))
            #expect(content.firstRange(of: secret) == nil, "\(name)")
        }
    }

    @Test("a store that was cut at any multiple of 4 KiB is refused")
    func truncated() throws {
        try make()
        do {
            let store = try open()
            for id in 1...UInt64(20) {
                let bytes = [UInt8](repeating: UInt8(id), count: 3_000)
                try store.commit([.message(.init(id: id, bytes: bytes))])
            }
        }
        let whole = try Data(contentsOf: URL(fileURLWithPath: path))
        #expect(whole.count > 15 * 4_096)
        for length in stride(from: 0, to: whole.count, by: 4_096) {
            try? FileManager.default.removeItem(atPath: path + "-wal")
            try whole.prefix(length).write(to: URL(fileURLWithPath: path))
            let reason = reason { () throws(StoreFailure) in _ = try open() }
            #expect(!reason.isEmpty, "cut at \(length)")
        }
    }

    @Test(
        "a log that was cut at any multiple of 4 KiB gives an earlier state, never half a commit"
    )
    func truncatedLog() throws {
        try make()
        var states = [StoredEndpoint()]
        var store: SQLiteStore? = try open()
        for id in 1...UInt64(12) {
            let changes: [StoreChange] = [
                .message(.init(id: id, bytes: [UInt8](repeating: 1, count: 5_000))),
                .sentNote([UInt8(id)]),
            ]
            var state = states[states.count - 1]
            for change in changes { state.apply(change) }
            states.append(state)
            try store?.commit(changes)
        }
        // The files are copied while the store is open: a crash leaves them in this state.
        let database = try Data(contentsOf: URL(fileURLWithPath: path))
        let log = try Data(contentsOf: URL(fileURLWithPath: path + "-wal"))
        store = nil
        var seen = Set<Int>()
        for length in stride(from: 0, through: log.count, by: 4_096) {
            try database.write(to: URL(fileURLWithPath: path))
            try log.prefix(length).write(to: URL(fileURLWithPath: path + "-wal"))
            let stored = try #require(try open().claim())
            let index = try #require(states.firstIndex(of: stored), "cut at \(length)")
            seen.insert(index)
        }
        #expect(seen.count > 5)
    }

    @Test("on a full disk the commit fails, and the store keeps what was committed before")
    func full() throws {
        try make()
        var expected = StoredEndpoint()
        let store = try open()
        try store.limit(pages: 40)
        var reason = ""
        for id in 1...UInt64(100) where reason.isEmpty {
            let change = StoreChange.message(
                .init(id: id, bytes: [UInt8](repeating: 1, count: 3_000)))
            reason = self.reason { () throws(StoreFailure) in
                try store.commit([change])
                expected.apply(change)
            }
        }
        #expect(reason.contains("no room on its disk"))
        _ = consume store
        #expect(expected.messages.count > 20)
        #expect(try open().claim() == expected)
    }
}

extension SQLiteStore {
    /// Limits the database to this number of pages.
    fileprivate func limit(pages: Int) throws {
        try database.withLock { _ = try $0?.run("PRAGMA max_page_count = \(pages)") }
    }
}
