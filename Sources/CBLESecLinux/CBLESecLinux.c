#define _GNU_SOURCE
#include "CBLESecLinux.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

int blesec_accept(int descriptor) {
    return accept4(descriptor, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

int blesec_peer_credentials(int descriptor, pid_t *process, uid_t *user) {
    struct ucred credentials;
    socklen_t size = sizeof credentials;
    if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0) return -1;
    *process = credentials.pid;
    *user = credentials.uid;
    return 0;
}

const char *blesec_error_text(int number) { return strerrordesc_np(number); }

int blesec_rename_new(int from_folder, const char *from, int to_folder, const char *to) {
    return renameat2(from_folder, from, to_folder, to, RENAME_NOREPLACE);
}

int blesec_birth_time(int descriptor, int64_t *seconds, uint32_t *nanoseconds) {
    struct statx status;
    if (statx(descriptor, "", AT_EMPTY_PATH, STATX_BTIME, &status) < 0) return -1;
    if (!(status.stx_mask & STATX_BTIME)) {
        errno = ENOTSUP;
        return -1;
    }
    *seconds = status.stx_btime.tv_sec;
    *nanoseconds = status.stx_btime.tv_nsec;
    return 0;
}

int blesec_synchronize(int descriptor) { return syncfs(descriptor); }
