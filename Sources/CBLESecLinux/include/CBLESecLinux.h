// The parts of Linux's C interface that Swift cannot import (packed structures, macros with
// arguments, variadic functions, GNU extensions), as short functions.
#pragma once
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

// Swift cannot import epoll_event, which is packed on x86-64, so C reads and writes its fields.

static inline int blesec_epoll_control(int epoll, int operation, int descriptor, uint32_t events,
                                       uint64_t token) {
    struct epoll_event event = {.events = events, .data = {.u64 = token}};
    return epoll_ctl(epoll, operation, descriptor, &event);
}

// Waits for `nanoseconds`, or without a limit when `nanoseconds` is negative. Where the system has no
// epoll_pwait2 (Linux before 5.11, valgrind) or forbids it (seccomp filters of old container
// runtimes), the wait is rounded up to milliseconds.
static inline int blesec_epoll_wait(int epoll, struct epoll_event *_Nonnull events, int count,
                                    int64_t nanoseconds) {
    struct timespec timeout = {.tv_sec = nanoseconds / 1000000000,
                               .tv_nsec = nanoseconds % 1000000000};
    int ready = epoll_pwait2(epoll, events, count, nanoseconds < 0 ? NULL : &timeout, NULL);
    if (ready >= 0 || (errno != ENOSYS && errno != EPERM)) return ready;
    int64_t milliseconds = nanoseconds / 1000000 + (nanoseconds % 1000000 > 0);
    int wait = milliseconds > INT32_MAX ? INT32_MAX : (int)milliseconds;
    return epoll_wait(epoll, events, count, nanoseconds < 0 ? -1 : wait);
}

static inline uint32_t blesec_epoll_events(const struct epoll_event *_Nonnull event) {
    return event->events;
}

static inline uint64_t blesec_epoll_token(const struct epoll_event *_Nonnull event) {
    return event->data.u64;
}

// ioctl is variadic.
static inline int blesec_ioctl(int descriptor, unsigned long request, void *_Nullable argument) {
    return ioctl(descriptor, request, argument);
}

// TIOCOUTQ: for a Unix socket, stores the memory, in bytes, that the socket's queued data take. For a Bluetooth
// socket, stores the free bytes of the send buffer.
static inline int blesec_output_queue(int descriptor, int *_Nonnull bytes) {
    return ioctl(descriptor, TIOCOUTQ, bytes);
}

// FIONREAD: the number of received bytes that wait in a socket; for a Bluetooth socket, only the bytes of the
// first packet. -1 for an error.
static inline int blesec_input_queue(int descriptor) {
    int bytes = 0;
    return ioctl(descriptor, FIONREAD, &bytes) == 0 ? bytes : -1;
}

static inline int blesec_errno(void) { return errno; }

// Names the calling thread, with up to 15 bytes. (pthread_setname_np is a GNU extension.)
static inline void blesec_name_thread(const char *_Nonnull name) {
    prctl(PR_SET_NAME, (unsigned long)name, 0, 0, 0);
}

// accept4 with SOCK_NONBLOCK and SOCK_CLOEXEC. Swift's C library module does not show accept4.
int blesec_accept(int descriptor);

// SO_PEERCRED: the process and user at the other end of a Unix socket, as they were when that end
// called connect or listen.
int blesec_peer_credentials(int descriptor, pid_t *_Nonnull process, uid_t *_Nonnull user);

// The C library's text for an error, in static storage; NULL for an unknown error.
const char *_Nullable blesec_error_text(int number);

// renameat2 with RENAME_NOREPLACE: fails with EEXIST if `to` exists, and with EINVAL where the file system
// cannot check that.
int blesec_rename_new(int from_folder, const char *_Nonnull from, int to_folder, const char *_Nonnull to);

// statx: stores when the open file was made, in seconds and nanoseconds since 1970. Fails with ENOTSUP if the
// file system does not keep that time. Swift's C library module does not show statx.
int blesec_birth_time(int descriptor, int64_t *_Nonnull seconds, uint32_t *_Nonnull nanoseconds);

// syncfs: makes durable all that was written to the file system of the descriptor's file.
int blesec_synchronize(int descriptor);
