// A library for LD_PRELOAD: `fsync` fails with EIO for each file or folder whose path matches the
// pattern (fnmatch) in the environment variable FSYNC_FAILS.

#define _GNU_SOURCE
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int fsync(int descriptor) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    const char *pattern = getenv("FSYNC_FAILS");
    if (pattern && length >= 0) {
        path[length] = 0;
        if (fnmatch(pattern, path, 0) == 0) {
            errno = EIO;
            return -1;
        }
    }
    return (int)syscall(SYS_fsync, descriptor);
}
