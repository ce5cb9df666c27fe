internal import BLESecDelivery
internal import BLESecLocking
internal import CBLESecSQLite
internal import Glibc

/// The state of one endpoint in an SQLite database.
final class SQLiteStore: EndpointStore {
    /// The state when the store was opened; nil once the store is claimed.
    private let stored: Locked<StoredEndpoint?>
    /// The text forms of the keys that the store belongs to.
    let keys: (own: String, peer: String)
    /// Nil once the store is closed.
    let database: Locked<Database?>
    private let path: String

    /// The version of the tables; the database's `user_version`.
    static let version: UInt64 = 3
    /// Marks a database as a store of blesec, in its `application_id`: "BLSd".
    private static let applicationID: UInt64 = 0x424C_5364

    /// In `endpoint`, `left_through` is the number of the last message that may have been given to a
    /// link; `decided` and `taken` are those of ``Fates``.
    private static let tables = """
        CREATE TABLE endpoint (
            own TEXT NOT NULL, peer TEXT NOT NULL, epoch BLOB NOT NULL, first INTEGER NOT NULL,
            next_id INTEGER NOT NULL, left_through INTEGER NOT NULL, seen_token BLOB NOT NULL,
            seen_epoch BLOB NOT NULL, peer_token BLOB NOT NULL, peer_epoch BLOB NOT NULL,
            confirmed INTEGER NOT NULL, has_finished INTEGER NOT NULL,
            peer_end_epoch BLOB NOT NULL, decided INTEGER NOT NULL, taken INTEGER NOT NULL,
            sent_note BLOB NOT NULL, confirmed_note BLOB NOT NULL,
            \(addedColumns.joined(separator: ", ")));
        CREATE TABLE message (id INTEGER PRIMARY KEY, bytes BLOB);
        CREATE TABLE own_identifier (position INTEGER PRIMARY KEY, identifier BLOB NOT NULL);
        CREATE TABLE past_epoch (position INTEGER PRIMARY KEY, identifier BLOB NOT NULL);
        CREATE TABLE unknown (first INTEGER PRIMARY KEY, last INTEGER NOT NULL);
        \(droppedTable)
        """
    /// The table that version 2 has added: the messages that were dropped before they were sent. A
    /// new version was necessary, because a program for version 1 would report them as confirmed.
    private static let droppedTable =
        "CREATE TABLE dropped (first INTEGER PRIMARY KEY, last INTEGER NOT NULL)"
    /// The columns that version 3 has added to `endpoint`. A new version was necessary, because a
    /// program for an earlier version would not set them.
    private static let addedColumns = [
        "was_rolled_back INTEGER NOT NULL DEFAULT 0", "was_interrupted INTEGER NOT NULL DEFAULT 0",
    ]

    // MARK: - Opening

    /// Makes the tables in an empty database. The file at `path` must not have the store's name:
    /// the caller gives it that name after this function has returned, when the tables are durable.
    static func make(at path: String, own: String, peer: String) throws(Database.Failure) {
        let database = try Database(path)
        let none = Database.Value.blob(Identifier.none.bytes)
        try database.run("PRAGMA synchronous = FULL")
        try database.transaction { () throws(Database.Failure) in
            for table in tables.split(separator: ";") { try database.run(String(table)) }
            try database.run(
                """
                INSERT INTO endpoint
                    VALUES (?, ?, ?, 1, 1, 0, ?, ?, ?, ?, 0, 0, ?, 0, 0, x'', x'', 0, 0)
                """,
                .text(own), .text(peer), none, none, none, none, none, none)
            try database.run("PRAGMA application_id = \(applicationID)")
            try database.run("PRAGMA user_version = \(version)")
        }
    }

    /// Opens an existing database, and locks it. The database must belong to `expectedKeys`, unless
    /// these are nil.
    init(
        at path: String, keys expectedKeys: (own: String, peer: String)? = nil
    ) throws(StoreFailure) {
        self.path = path
        do throws(Database.Failure) {
            let database = try Database(path)
            try Self.configure(database)
            let version = try Self.check(database)
            // In one transaction: if the store is refused, its tables keep their earlier version.
            let (keys, endpoint) = try database.transaction { () throws(Database.Failure) in
                try Self.convert(database, from: version)
                let keys = try Self.keys(database)
                if let expectedKeys, keys != expectedKeys {
                    throw .damaged("it belongs to other keys")
                }
                return (keys, try Self.load(database))
            }
            self.keys = keys
            stored = Locked(endpoint)
            self.database = Locked(database)
        } catch {
            throw StoreFailure(error.explanation(for: path))
        }
    }

    /// Locks the database until it is closed, and makes commits durable. Deleted messages are
    /// overwritten with zeros, which is also the default of Debian's SQLite. Overwriting reduces
    /// the rate of messages of up to 1 KiB by a tenth at most, and the rate of messages of 64 KiB
    /// by up to two fifths.
    private static func configure(_ database: Database) throws(Database.Failure) {
        try database.run("PRAGMA locking_mode = EXCLUSIVE")
        try database.run("PRAGMA journal_mode = WAL")
        try database.run("PRAGMA synchronous = FULL")
        try database.run("PRAGMA secure_delete = ON")
    }

    /// Checks that the file is a sound database of blesec, and returns the version of its tables.
    private static func check(_ database: Database) throws(Database.Failure) -> UInt64 {
        func number(_ pragma: String) throws(Database.Failure) -> UInt64? {
            try database.run("PRAGMA \(pragma)").first?.first?.number
        }
        guard try number("application_id") == applicationID else {
            throw .damaged("it is no database of blesec")
        }
        let version = try number("user_version") ?? 0
        guard version <= Self.version else { throw .newer(version) }
        guard version > 0 else { throw .damaged("it has no version") }
        let report = try database.run("PRAGMA integrity_check(1)").first?.first?.text
        guard report == "ok" else { throw .damaged(report ?? "it cannot be checked") }
        return version
    }

    /// Converts the tables to this version. Throws if the database cannot be written.
    private static func convert(
        _ database: Database, from version: UInt64
    ) throws(Database.Failure) {
        // The next two statements fail if the database cannot be written. Without them, only the
        // commit of the first message would fail. A row is inserted and deleted because SQLite
        // writes nothing for an update that changes nothing.
        try database.run("INSERT INTO unknown VALUES (0, 0)")
        try database.run("DELETE FROM unknown WHERE first = 0")
        guard version < Self.version else { return }
        if version == 1 { try database.run(droppedTable) }
        for column in addedColumns {
            try database.run("ALTER TABLE endpoint ADD COLUMN \(column)")
        }
        try database.run("PRAGMA user_version = \(Self.version)")
    }

    private static func keys(
        _ database: Database
    ) throws(Database.Failure) -> (own: String, peer: String) {
        let rows = try database.run("SELECT own, peer FROM endpoint")
        guard rows.count == 1, let own = rows[0][0].text, let peer = rows[0][1].text else {
            throw .damaged("it does not have exactly one endpoint")
        }
        return (own, peer)
    }

    private static func load(_ database: Database) throws(Database.Failure) -> StoredEndpoint {
        var stored = StoredEndpoint()
        let rows = try database.run(
            """
            SELECT epoch, first, next_id, left_through, seen_token, seen_epoch, peer_token,
                peer_epoch, confirmed, has_finished, peer_end_epoch, sent_note, confirmed_note,
                was_rolled_back, was_interrupted
                FROM endpoint
            """)
        guard let row = rows.first else { throw .damaged("it has no endpoint") }
        stored.epoch = try row[0].identifier
        stored.first = try row[1].requiredNumber
        stored.nextID = try row[2].requiredNumber
        stored.lastThatMayHaveLeft = try row[3].requiredNumber
        stored.seen = PeerState(token: try row[4].identifier, epoch: try row[5].identifier)
        stored.peerToken = try row[6].identifier
        stored.peerEpoch = try row[7].identifier
        stored.confirmed = try row[8].requiredNumber
        stored.hasFinished = try row[9].requiredNumber != 0
        stored.peerEndEpoch = try row[10].identifier
        stored.notes.sent = try row[11].requiredBytes
        stored.notes.confirmed = try row[12].requiredBytes
        stored.wasRolledBack = try row[13].requiredNumber != 0
        stored.wasInterrupted = try row[14].requiredNumber != 0
        let messages = try database.run("SELECT id, bytes FROM message ORDER BY id")
        for (index, row) in messages.enumerated() {
            // Only this side's end, which is the last, has no bytes.
            let isEnd = stored.hasFinished && index == messages.count - 1 && row[1] == .null
            stored.messages.append(
                .init(
                    id: try row[0].requiredNumber, bytes: isEnd ? nil : try row[1].requiredBytes))
        }
        for row in try database.run("SELECT identifier FROM own_identifier ORDER BY position") {
            stored.own.append(try row[0].identifier)
        }
        for row in try database.run("SELECT identifier FROM past_epoch ORDER BY position") {
            stored.pastEpochs.append(try row[0].identifier)
        }
        stored.fates = try fates(database)
        guard stored.hasPossibleNumbers else { throw .damaged("its numbers do not fit together") }
        guard stored.hasAllMessages else { throw .damaged("a message is missing") }
        return stored
    }

    private static func fates(_ database: Database) throws(Database.Failure) -> Fates {
        func ranges(_ table: String) throws(Database.Failure) -> [ClosedRange<UInt64>] {
            var ranges: [ClosedRange<UInt64>] = []
            for row in try database.run("SELECT first, last FROM \(table) ORDER BY first") {
                let (first, last) = (try row[0].requiredNumber, try row[1].requiredNumber)
                guard first <= last else { throw .damaged("a range of fates is reversed") }
                guard first > ranges.last?.upperBound ?? 0 else {
                    throw .damaged("ranges of fates overlap")
                }
                ranges.append(first...last)
            }
            return ranges
        }
        let rows = try database.run("SELECT decided, taken FROM endpoint")
        guard let row = rows.first else { throw .damaged("it has no endpoint") }
        return Fates(
            decided: try row[0].requiredNumber, unknown: try ranges("unknown"),
            dropped: try ranges("dropped"), taken: try row[1].requiredNumber)
    }

    // MARK: - Changes

    func commit(_ changes: [StoreChange]) throws(StoreFailure) {
        do throws(Database.Failure) {
            try database.withLock { opened throws(Database.Failure) in
                guard let database = opened else { throw .closed }
                try database.transaction { () throws(Database.Failure) in
                    for change in changes { try Self.apply(change, to: database) }
                }
            }
        } catch {
            throw StoreFailure(error.explanation(for: path))
        }
    }

    func claim() -> StoredEndpoint? { stored.withLock { $0.take() } }

    func close() { database.withLock { $0 = nil } }

    /// Moves everything from the log into the database, and empties the log.
    func emptyLog() throws(StoreFailure) {
        do throws(Database.Failure) {
            try database.withLock { opened throws(Database.Failure) in
                guard let database = opened else { throw .closed }
                let rows = try database.run("PRAGMA wal_checkpoint(TRUNCATE)")
                // The first column says whether a reader has kept the log from being emptied.
                guard rows.first?.first?.number == 0 else { throw .logInUse }
            }
        } catch {
            throw StoreFailure(error.explanation(for: path))
        }
    }

    /// Changes the database as ``StoredEndpoint/apply(_:)`` changes the state in memory.
    private static func apply(
        _ change: StoreChange, to database: Database
    ) throws(Database.Failure) {
        switch change {
        case .newestIdentifier(let identifier): try addOwn(identifier, to: database)
        case .message(let message):
            try database.run(
                "INSERT INTO message VALUES (?, ?)", .init(message.id),
                message.bytes.map { .blob($0) } ?? .null)
            try database.run(
                "UPDATE endpoint SET next_id = ?, has_finished = has_finished OR ?",
                .init(message.id + 1), .init(message.bytes == nil))
        case .mayHaveLeft(let number):
            try database.run(
                "UPDATE endpoint SET left_through = max(left_through, ?)", .init(number))
        case .retired(let number): try retire(through: number, in: database)
        case .epoch(let epoch, let kept): try begin(epoch, keeping: kept, in: database)
        case .seen(let state):
            try database.run(
                "UPDATE endpoint SET seen_token = ?, seen_epoch = ?", .init(state.token),
                .init(state.epoch))
        case .peer(let token):
            try database.run("UPDATE endpoint SET peer_token = ?", .init(token))
        case .peerEpoch(let epoch, let confirmed):
            try database.run(
                """
                INSERT INTO past_epoch (identifier) SELECT peer_epoch FROM endpoint
                    WHERE peer_epoch NOT IN (?, ?)
                """, .init(Identifier.none), .init(epoch))
            try trim("past_epoch", in: database)
            try database.run(
                "UPDATE endpoint SET peer_epoch = ?, confirmed = ?", .init(epoch), .init(confirmed))
        case .confirmed(let number):
            try database.run("UPDATE endpoint SET confirmed = ?", .init(number))
        case .peerEndConfirmed: try database.run("UPDATE endpoint SET peer_end_epoch = peer_epoch")
        case .sentNote(let note):
            try database.run("UPDATE endpoint SET sent_note = ?", .blob(note))
        case .confirmedNote(let note):
            try database.run("UPDATE endpoint SET confirmed_note = ?", .blob(note))
        case .fatesTaken(let id):
            try database.run("UPDATE endpoint SET taken = max(taken, ?)", .init(id))
        case .dropped(let ids):
            for id in ids { try database.run("DELETE FROM message WHERE id = ?", .init(id)) }
            try changeFates(in: database) { $0.drop(ids) }
        case .rolledBack:
            try database.run("UPDATE endpoint SET was_rolled_back = 1")
            try changeFates(in: database) { $0.makeDroppedUnknown() }
        case .interrupted: try database.run("UPDATE endpoint SET was_interrupted = 1")
        }
    }

    /// Reads the fates, changes them, and writes all of them again. Used for rare changes.
    private static func changeFates(
        in database: Database, _ change: (inout Fates) -> Void
    ) throws(Database.Failure) {
        let before = try fates(database)
        var fates = before
        change(&fates)
        guard fates != before else { return }
        try database.run("UPDATE endpoint SET decided = ?", .init(fates.decided))
        for (table, ranges) in [("unknown", fates.unknown), ("dropped", fates.dropped[...])] {
            try database.run("DELETE FROM \(table)")
            for range in ranges {
                try database.run(
                    "INSERT INTO \(table) VALUES (?, ?)", .init(range.lowerBound),
                    .init(range.upperBound))
            }
        }
    }

    /// Records as decided the fates of all messages up to this id, and of the messages directly
    /// after it that are in `dropped` or `unknown` already.
    private static func decide(
        through id: Database.Value, in database: Database
    ) throws(Database.Failure) {
        let rows = try database.run("SELECT max(decided, ?) FROM endpoint", id)
        var decided = rows.first?.first?.number ?? 0
        while let end = try rangeEnd(decided + 1, in: database), end > decided { decided = end }
        try database.run("UPDATE endpoint SET decided = ?", .init(decided))
    }

    /// The last id of the range in `dropped` or `unknown` that contains `id`. If no range contains
    /// `id`, the result is nil or less than `id`. The ranges of a table do not overlap, so only its
    /// last range that begins at or before `id` can contain `id`.
    private static func rangeEnd(
        _ id: UInt64, in database: Database
    ) throws(Database.Failure) -> UInt64? {
        try database.run(
            """
            SELECT max(last) FROM (
                SELECT * FROM (
                    SELECT last FROM dropped WHERE first <= ?1 ORDER BY first DESC LIMIT 1)
                UNION ALL SELECT * FROM (
                    SELECT last FROM unknown WHERE first <= ?1 ORDER BY first DESC LIMIT 1))
            """, .init(id)
        ).first?.first?.number
    }

    /// Adds an identifier as the newest, or makes it the newest if it is there already.
    private static func addOwn(
        _ identifier: Identifier, to database: Database
    ) throws(Database.Failure) {
        try database.run("DELETE FROM own_identifier WHERE identifier = ?", .init(identifier))
        try database.run(
            "INSERT INTO own_identifier (identifier) VALUES (?)", .init(identifier))
        try trim("own_identifier", in: database)
    }

    /// Keeps only the last ``StoredEndpoint/mostIdentifiers`` rows of a table.
    private static func trim(_ table: String, in database: Database) throws(Database.Failure) {
        try database.run(
            """
            DELETE FROM \(table) WHERE position <=
                (SELECT position FROM \(table) ORDER BY position DESC LIMIT 1 OFFSET ?)
            """,
            .integer(Int64(StoredEndpoint.mostIdentifiers)))
    }

    /// Removes the epoch's messages up to this number, which the peer has confirmed.
    private static func retire(
        through number: UInt64, in database: Database
    ) throws(Database.Failure) {
        let first = try database.run("SELECT first FROM endpoint").first?.first?.number ?? 0
        guard number >= first else { return }
        let rows = try database.run(
            "SELECT id, bytes IS NULL FROM message ORDER BY id LIMIT ?", .init(number - first + 1))
        if let last = rows.last?.first {
            try database.run("DELETE FROM message WHERE id <= ?", last)
        }
        // Only messages have fates. The row without bytes is this side's end.
        if let lastMessage = rows.last(where: { $0[1] == .integer(0) })?.first {
            try decide(through: lastMessage, in: database)
        }
        try database.run("UPDATE endpoint SET first = ?", .init(number + 1))
    }

    /// Begins an epoch. Messages that are not kept are removed, and their fate is unknown.
    private static func begin(
        _ epoch: Identifier, keeping kept: Set<UInt64>, in database: Database
    ) throws(Database.Failure) {
        for row in try database.run("SELECT id FROM message ORDER BY id") {
            guard let id = row[0].number, !kept.contains(id) else { continue }
            try database.run("DELETE FROM message WHERE id = ?", row[0])
            try decide(through: row[0], in: database)
            // Extends the range that ends just before the message, or begins a new range.
            try database.run("UPDATE unknown SET last = ? WHERE last = ? - 1", row[0], row[0])
            try database.run(
                """
                INSERT INTO unknown SELECT ?, ?
                    WHERE NOT EXISTS (SELECT 1 FROM unknown WHERE ? BETWEEN first AND last)
                """, row[0], row[0], row[0])
        }
        let count = try database.run("SELECT count(*) FROM unknown").first?.first?.number ?? 0
        for _ in 0..<max(0, Int(count) - Fates.mostRanges) {
            // Joins the two oldest ranges into one, which includes the ids between them.
            let rows = try database.run("SELECT first FROM unknown ORDER BY first LIMIT 2")
            let (oldest, second) = (rows[0][0], rows[1][0])
            try database.run("DELETE FROM unknown WHERE first = ?", oldest)
            try database.run("UPDATE unknown SET first = ? WHERE first = ?", oldest, second)
        }
        try database.run(
            "UPDATE endpoint SET epoch = ?, first = 1, left_through = 0", .init(epoch))
        try addOwn(epoch, to: database)
    }
}

extension StoredEndpoint {
    /// Whether an endpoint can have these numbers. Impossible numbers would stop the process later.
    fileprivate var hasPossibleNumbers: Bool {
        // The peer chooses the numbers of its own messages, so `confirmed` may have any value. This
        // side counts its messages from 1, and never reaches half of the greatest number.
        let most = Resume.greatestNumber / 2
        guard (1...most).contains(first), (1...most).contains(nextID),
            confirmed <= Resume.greatestNumber,
            lastThatMayHaveLeft < first + UInt64(messages.count)
        else { return false }
        let ids = [
            messages.last?.id, fates.unknown.last?.upperBound, fates.dropped.last?.upperBound,
            fates.decided, fates.taken,
        ]
        return ids.allSatisfy { ($0 ?? 0) < nextID }
    }

    /// Whether each id after the decided ones belongs to a message or to a range of fates. Only this
    /// side's ends have no fate, and a confirmed end leaves nothing in the store. Ends have the last
    /// ids, and an end is queued again only when the end before it is confirmed.
    fileprivate var hasAllMessages: Bool {
        let pending = messages.filter { $0.bytes != nil }.map { $0.id...$0.id }
        let ranges = (pending + fates.unknown + fates.dropped)
            .sorted { $0.lowerBound < $1.lowerBound }
        var next = fates.decided + 1
        for range in ranges where range.upperBound >= next {
            guard range.lowerBound <= next else { return false }
            next = range.upperBound + 1
        }
        guard hasFinished else { return next == nextID }
        // No end is confirmed before all messages are.
        guard pending.isEmpty || next + 1 == nextID else { return false }
        guard let last = messages.last else { return next < nextID }
        return last.bytes == nil && last.id + 1 == nextID && next <= last.id
    }
}

extension Identifier {
    fileprivate var bytes: [UInt8] {
        [high, low].flatMap { half in
            (0..<8).map { UInt8(truncatingIfNeeded: half >> (56 - 8 * $0)) }
        }
    }

    fileprivate init?(bytes: [UInt8]) {
        guard bytes.count == 16 else { return nil }
        func half(_ bytes: ArraySlice<UInt8>) -> UInt64 { bytes.reduce(0) { $0 << 8 | UInt64($1) } }
        self.init(high: half(bytes[..<8]), low: half(bytes[8...]))
    }
}

extension Database.Value {
    fileprivate init(_ identifier: Identifier) { self = .blob(identifier.bytes) }

    fileprivate var requiredNumber: UInt64 {
        get throws(Database.Failure) {
            guard let number else { throw .damaged("a number is missing") }
            return number
        }
    }

    fileprivate var requiredBytes: [UInt8] {
        get throws(Database.Failure) {
            guard let bytes else { throw .damaged("a message or a note is not a BLOB") }
            return bytes
        }
    }

    fileprivate var identifier: Identifier {
        get throws(Database.Failure) {
            guard let identifier = bytes.flatMap({ Identifier(bytes: $0) }) else {
                throw .damaged("an identifier does not have 16 bytes")
            }
            return identifier
        }
    }
}

extension Database.Failure {
    fileprivate static func damaged(_ what: String) -> Self {
        Self(code: SQLITE_CORRUPT, text: what)
    }
    fileprivate static var logInUse: Self { Self(code: SQLITE_BUSY, text: "its log is in use") }
    fileprivate static var closed: Self { Self(code: SQLITE_MISUSE, text: "it is closed") }
    fileprivate static func newer(_ version: UInt64) -> Self {
        Self(code: SQLITE_SCHEMA, text: "version \(version)")
    }

    /// What is wrong with the store at `path`, and what to do about it.
    func explanation(for path: String) -> String {
        let cause =
            systemError == 0 ? text : "\(text) (\(unsafe String(cString: strerror(systemError))))"
        switch (primaryCode, systemError) {
        case (SQLITE_BUSY, _), (SQLITE_LOCKED, _):
            return "the store \(path) is in use by another process or connection; end that first"
        case (SQLITE_FULL, _), (SQLITE_IOERR, ENOSPC), (SQLITE_IOERR, EDQUOT):
            return "the store \(path) has no room on its disk; make room, and start again"
        case (SQLITE_CANTOPEN, EMFILE), (SQLITE_CANTOPEN, ENFILE):
            return "the store \(path) cannot be opened: \(cause)"
        case (SQLITE_READONLY, _), (SQLITE_PERM, _), (SQLITE_CANTOPEN, _), (SQLITE_IOERR, EACCES),
            (SQLITE_IOERR, EPERM), (SQLITE_IOERR, EROFS):
            return
                "the store \(path) cannot be written: \(cause); its user needs to be able to write "
                + "its files and its directory"
        case (SQLITE_IOERR, _):
            return
                "the store \(path) cannot be read or written: \(cause); check its disk, and start "
                + "again"
        case (SQLITE_SCHEMA, _):
            return "the store \(path) was made by a newer blesec (\(text)); use that one"
        // SQLite reports a missing table or column with SQLITE_ERROR.
        case (SQLITE_CORRUPT, _), (SQLITE_NOTADB, _), (SQLITE_ERROR, _):
            return
                "the store \(path) is damaged: \(text); put back a copy of all its files, or move "
                + "all of them away, which loses the messages in it"
        default: return "the store \(path) failed: \(cause)"
        }
    }
}
