#define _GNU_SOURCE
#include "CBLESecBench.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    max_dialers = 256,
    max_events = 128,
    max_packet = 256,  // bytes
    wait_limit = 10000,  // milliseconds without any event, after which the run fails
};

// The packets of one link, with the sizes that a Noise XX channel has over a SOCK_SEQPACKET socket.
// The dialer sends two flights, and the listener answers each. Each side also sends its end, and
// acknowledges the other side's end. A dialer's packet of 0 bytes stands for closing the link.
static const struct packet {
    bool from_dialer;
    size_t size;
} packets[] = {
    {true, 77}, {false, 109},             // hello and XX's message 1; answer and message 2
    {true, 117}, {false, 71},             // message 3 and `ready`; `ready` and the listener's end
    {true, 20}, {true, 27}, {false, 27},  // the dialer's end; each side's acknowledgement
    {true, 0},
};
enum { packet_count = sizeof packets / sizeof *packets };

struct link {
    int socket;
    size_t next;  // the index of the next packet
};

struct run {
    size_t dialers;  // the most links that are open at the same time
    uint64_t count;  // the number of links that are opened in all
    int listening_socket;
    struct sockaddr_un address;
    socklen_t address_length;
    int64_t nanoseconds;  // the processor time of the listener's thread
    bool has_succeeded;
};

static int64_t thread_time(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

// Sends the packets of one side until the other side's turn. Returns false after a failure.
static bool send_packets(struct link *link, bool is_dialer) {
    static const uint8_t bytes[max_packet];
    while (link->next < packet_count && packets[link->next].from_dialer == is_dialer
           && packets[link->next].size > 0) {
        size_t size = packets[link->next++].size;
        if (send(link->socket, bytes, size, MSG_NOSIGNAL) != (ssize_t)size) return false;
    }
    return true;
}

// Receives one packet, and answers when it is this side's turn. Returns false after a failure.
static bool receive_packet(struct link *link, bool is_dialer) {
    uint8_t bytes[max_packet];
    ssize_t count = recv(link->socket, bytes, sizeof bytes, 0);
    if (count < 0 || (size_t)count != packets[link->next].size) return false;
    link->next++;
    return send_packets(link, is_dialer);
}

static bool watch(int epoll, struct link *link) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = link};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, link->socket, &event) == 0;
}

static bool unwatch_and_close(int epoll, struct link *link) {
    return epoll_ctl(epoll, EPOLL_CTL_DEL, link->socket, NULL) == 0 && close(link->socket) == 0;
}

// The dialers' side. Opens one link, and sends the dialer's first packet.
static bool dial(struct run *run, int epoll, struct link *link) {
    link->next = 0;
    link->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    return link->socket >= 0
           && connect(link->socket, (struct sockaddr *)&run->address, run->address_length) == 0
           && watch(epoll, link) && send_packets(link, true);
}

// Keeps `dialers` links open until `count` links have ended in all.
static bool dial_all(struct run *run, int epoll, struct link *links) {
    struct epoll_event ready[max_events];
    uint64_t begun = 0, ended = 0;
    while (begun < run->dialers && begun < run->count) {
        if (!dial(run, epoll, &links[begun++])) return false;
    }
    while (ended < run->count) {
        int count = epoll_wait(epoll, ready, max_events, wait_limit);
        if (count == 0 || (count < 0 && errno != EINTR)) return false;
        for (int i = 0; i < count; i++) {
            struct link *link = ready[i].data.ptr;
            if (!receive_packet(link, true)) return false;
            if (packets[link->next].size > 0) continue;
            if (!unwatch_and_close(epoll, link)) return false;
            ended++;
            if (begun < run->count) {
                begun++;
                if (!dial(run, epoll, link)) return false;
            }
        }
    }
    return true;
}

// The listener's side. Like the package's listener, it reads the credentials of each peer.
static bool accept_links(struct run *run, int epoll) {
    for (;;) {
        int accepted = accept4(run->listening_socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (accepted < 0) return errno == EAGAIN;
        struct ucred peer;
        socklen_t size = sizeof peer;
        struct link *link = calloc(1, sizeof *link);
        if (link == NULL) {
            close(accepted);
            return false;
        }
        link->socket = accepted;
        if (getsockopt(accepted, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0
            || !watch(epoll, link)) {
            close(accepted);
            free(link);
            return false;
        }
    }
}

static bool serve(struct run *run, int epoll) {
    struct epoll_event ready[max_events];
    struct link listening = {.socket = run->listening_socket};
    if (!watch(epoll, &listening)) return false;
    int64_t start = thread_time();
    for (uint64_t ended = 0; ended < run->count;) {
        int count = epoll_wait(epoll, ready, max_events, wait_limit);
        if (count == 0 || (count < 0 && errno != EINTR)) return false;
        for (int i = 0; i < count; i++) {
            struct link *link = ready[i].data.ptr;
            if (link == &listening) {
                if (!accept_links(run, epoll)) return false;
                continue;
            }
            if (!receive_packet(link, false)) return false;
            if (link->next < packet_count) continue;
            if (!unwatch_and_close(epoll, link)) return false;
            free(link);
            ended++;
        }
    }
    run->nanoseconds = thread_time() - start;
    return true;
}

static void *run_listener(void *argument) {
    struct run *run = argument;
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    run->has_succeeded = epoll >= 0 && serve(run, epoll);
    if (epoll >= 0) close(epoll);
    return NULL;
}

static bool run_dialers(struct run *run) {
    struct link links[max_dialers];
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    bool has_succeeded = epoll >= 0 && dial_all(run, epoll, links);
    if (epoll >= 0) close(epoll);
    return has_succeeded;
}

static bool listen_and_dial(struct run *run) {
    // The kernel chooses an abstract address.
    struct sockaddr_un any = {.sun_family = AF_UNIX};
    run->address_length = sizeof run->address;
    if (bind(run->listening_socket, (struct sockaddr *)&any, sizeof any.sun_family) != 0
        || getsockname(run->listening_socket, (struct sockaddr *)&run->address, &run->address_length) != 0
        || listen(run->listening_socket, max_dialers) != 0) {
        return false;
    }
    pthread_t listener;
    if (pthread_create(&listener, NULL, run_listener, run) != 0) return false;
    bool has_succeeded = run_dialers(run);
    return pthread_join(listener, NULL) == 0 && has_succeeded && run->has_succeeded;
}

int64_t blesec_bench_accept(size_t dialers, uint64_t count) {
    if (dialers == 0 || dialers > max_dialers) return -1;
    struct run run = {.dialers = dialers, .count = count};
    run.listening_socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (run.listening_socket < 0) return -1;
    bool has_succeeded = listen_and_dial(&run);
    close(run.listening_socket);
    return has_succeeded ? run.nanoseconds : -1;
}
