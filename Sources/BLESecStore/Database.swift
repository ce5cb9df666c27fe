internal import CBLESecSQLite

/// An SQLite database that this process alone uses.
@safe final class Database {
    enum Value: Equatable {
        case null
        case integer(Int64)
        case blob([UInt8])
        case text(String)
    }

    /// An error of SQLite: the extended result code, SQLite's text, and the value of `errno` after
    /// the system call that failed; 0 if none failed.
    struct Failure: Error {
        let code: Int32
        let text: String
        var systemError: Int32 = 0

        /// The result code without its extension.
        var primaryCode: Int32 { code & 0xFF }
    }

    private let handle: OpaquePointer
    private var statements: [String: Statement] = [:]

    /// Opens the database at `path`, which must exist. No part of `path` may be a symbolic link.
    init(_ path: String) throws(Failure) {
        var opened: OpaquePointer?
        let flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW
        let code = unsafe sqlite3_open_v2(path, &opened, flags, nil)
        guard let handle = unsafe opened else {
            throw Failure(code: code, text: "there is no memory for the database")
        }
        unsafe self.handle = handle
        guard code == SQLITE_OK else { throw failure(code) }
        unsafe sqlite3_extended_result_codes(handle, 1)
        // If SQLite may not write the file, it opens the file for reading only. Later writes would
        // fail with other errors.
        guard unsafe sqlite3_db_readonly(handle, "main") == 0 else {
            throw Failure(code: SQLITE_READONLY, text: "its file is read-only")
        }
    }

    deinit {
        statements = [:]
        unsafe sqlite3_close_v2(handle)
    }

    private func failure(_ code: Int32) -> Failure {
        Failure(
            code: code, text: unsafe String(cString: sqlite3_errmsg(handle)),
            systemError: unsafe sqlite3_system_errno(handle))
    }

    /// Runs a statement, and returns its rows.
    @discardableResult
    func run(_ sql: String, _ values: Value...) throws(Failure) -> [[Value]] {
        let statement = try statement(sql)
        defer { statement.reset() }
        for (index, value) in values.enumerated() {
            try check(statement.bind(value, at: Int32(index + 1)))
        }
        var rows: [[Value]] = []
        while true {
            let code = statement.step()
            switch code {
            case SQLITE_ROW: rows.append(statement.row)
            case SQLITE_DONE: return rows
            default: throw failure(code)
            }
        }
    }

    /// Runs `body` in a transaction, which is committed and durable when this function returns. If
    /// `body` throws, the database is unchanged.
    func transaction<Result>(_ body: () throws(Failure) -> Result) throws(Failure) -> Result {
        try run("BEGIN IMMEDIATE")
        do throws(Failure) {
            let result = try body()
            try run("COMMIT")
            return result
        } catch {
            // ROLLBACK fails if SQLite has already rolled back by itself, so its error is ignored.
            _ = try? run("ROLLBACK")
            throw error
        }
    }

    private func check(_ code: Int32) throws(Failure) {
        guard code == SQLITE_OK else { throw failure(code) }
    }

    private func statement(_ sql: String) throws(Failure) -> Statement {
        if let statement = statements[sql] { return statement }
        var prepared: OpaquePointer?
        try check(unsafe sqlite3_prepare_v2(handle, sql, -1, &prepared, nil))
        guard let pointer = unsafe prepared else {
            throw Failure(code: SQLITE_MISUSE, text: "a statement without content")
        }
        let statement = unsafe Statement(pointer)
        statements[sql] = statement
        return statement
    }

    /// A prepared statement.
    @safe private final class Statement {
        private let pointer: OpaquePointer

        init(_ pointer: OpaquePointer) { unsafe self.pointer = pointer }
        deinit { unsafe sqlite3_finalize(pointer) }

        func bind(_ value: Value, at index: Int32) -> Int32 {
            switch value {
            case .null: unsafe sqlite3_bind_null(pointer, index)
            case .integer(let number): unsafe sqlite3_bind_int64(pointer, index, number)
            case .blob(let bytes):
                unsafe bytes.withUnsafeBytes {
                    unsafe blesec_bind_blob(pointer, index, $0.baseAddress, UInt64($0.count))
                }
            case .text(let text): unsafe blesec_bind_text(pointer, index, text)
            }
        }

        func step() -> Int32 { unsafe sqlite3_step(pointer) }

        func reset() {
            unsafe sqlite3_reset(pointer)
            unsafe sqlite3_clear_bindings(pointer)
        }

        var row: [Value] {
            let count = unsafe sqlite3_column_count(pointer)
            return (0..<count).map(column)
        }

        private func column(_ index: Int32) -> Value {
            switch unsafe sqlite3_column_type(pointer, index) {
            case SQLITE_INTEGER: return .integer(unsafe sqlite3_column_int64(pointer, index))
            case SQLITE_TEXT:
                guard let text = unsafe sqlite3_column_text(pointer, index) else {
                    return .text("")
                }
                return .text(unsafe String(cString: text))
            case SQLITE_BLOB:
                let count = Int(unsafe sqlite3_column_bytes(pointer, index))
                guard let bytes = unsafe sqlite3_column_blob(pointer, index) else {
                    return .blob([])
                }
                return .blob(unsafe Array(UnsafeRawBufferPointer(start: bytes, count: count)))
            default: return .null
            }
        }
    }
}

extension Database.Value {
    init(_ number: UInt64) { self = .integer(Int64(clamping: number)) }
    init(_ flag: Bool) { self = .integer(flag ? 1 : 0) }

    var number: UInt64? {
        if case .integer(let number) = self { UInt64(exactly: number) } else { nil }
    }
    var bytes: [UInt8]? { if case .blob(let bytes) = self { bytes } else { nil } }
    var text: String? { if case .text(let text) = self { text } else { nil } }
}
