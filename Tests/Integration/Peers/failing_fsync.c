// A library for LD_PRELOAD. `fsync` fails with EIO for each file or folder whose path matches the
// pattern (fnmatch) in the environment variable FSYNC_FAILS. `syncfs` fails in the same way for the
// pattern in SYNCFS_FAILS.

#define _GNU_SOURCE
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static int fails(int descriptor, const char *variable) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    const char *pattern = getenv(variable);
    if (!pattern || length < 0) return 0;
    path[length] = 0;
    return fnmatch(pattern, path, 0) == 0;
}

static int synchronize(int descriptor, const char *variable, long call) {
    if (fails(descriptor, variable)) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(call, descriptor);
}

int fsync(int descriptor) { return synchronize(descriptor, "FSYNC_FAILS", SYS_fsync); }

int syncfs(int descriptor) { return synchronize(descriptor, "SYNCFS_FAILS", SYS_syncfs); }
