#pragma once
#include <sqlite3.h>

// SQLITE_TRANSIENT, with which SQLite copies the bytes, is a macro that casts a number to a pointer.
// Swift does not import such macros.
static inline int blesec_bind_blob(sqlite3_stmt *statement, int index, const void *bytes, sqlite3_uint64 count) {
    return sqlite3_bind_blob64(statement, index, count ? bytes : "", count, SQLITE_TRANSIENT);
}

static inline int blesec_bind_text(sqlite3_stmt *statement, int index, const char *text) {
    return sqlite3_bind_text(statement, index, text, -1, SQLITE_TRANSIENT);
}
