#pragma once
#include <sqlite3.h>

// With SQLITE_TRANSIENT, SQLite copies the bytes. Swift cannot import this macro, since it casts a
// number to a pointer.
static inline int blesec_bind_blob(sqlite3_stmt *statement, int index, const void *bytes, sqlite3_uint64 count) {
    // A null pointer would bind NULL instead of an empty blob.
    return sqlite3_bind_blob64(statement, index, count ? bytes : "", count, SQLITE_TRANSIENT);
}

static inline int blesec_bind_text(sqlite3_stmt *statement, int index, const char *text) {
    return sqlite3_bind_text(statement, index, text, -1, SQLITE_TRANSIENT);
}
