#define _GNU_SOURCE
#include "CBLESecBench.h"
#include <errno.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    header = 3,  // u16 length, u8 type
    tag = 16,
    inbox_size = 144 << 10,
    max_events = 128,
    wait_limit = 10000,  // milliseconds without any event, after which the run fails
};

// One end of a channel.
struct end {
    int socket;  // -1 when closed
    bool is_sender;
    blesec_bench_key *key;
    uint64_t records;  // number of records sealed or opened, which is also the next nonce
    uint8_t *rest;     // a sender's unsent bytes, or a receiver's incomplete record; NULL if none
    size_t rest_start, rest_count;
};

struct run {
    size_t channels;
    size_t size;       // the size of one message in bytes
    size_t batch;      // the number of records in one send
    size_t record;     // the size of one record in bytes
    int64_t duration;  // nanoseconds
    int epoll;
    struct end *ends;  // for each channel, the sender and then the receiver
    uint8_t *message, *outbox, *inbox;
    size_t senders;  // the number of senders that will still send
    uint64_t sent, received;  // numbers of messages
    bool is_over;  // the duration is over: each sender sends the rest of its batch, or one more batch
    bool succeeded;
    blesec_bench_load load;
};

// Frees a received message. Since the pointer is volatile, the compiler cannot know which function it
// points to, and so cannot leave out the message's allocation and copy.
static void (*volatile free_message)(void *) = free;

static int64_t now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

// Whether a failed call may succeed later.
static bool is_temporary(void) { return errno == EAGAIN || errno == EINTR; }

static bool keep_rest(struct end *end, const uint8_t *bytes, size_t count) {
    end->rest_start = 0;
    end->rest_count = count;
    if (count == 0) return true;
    end->rest = malloc(count);
    if (end->rest == NULL) return false;
    memcpy(end->rest, bytes, count);
    return true;
}

static void drop_rest(struct end *end) {
    free(end->rest);
    end->rest = NULL;
    end->rest_count = 0;
}

// Seals a batch into the outbox.
static bool seal_batch(struct run *run, struct end *end) {
    size_t sealed = 1 + run->size + tag;
    uint8_t *record = run->outbox;
    for (size_t i = 0; i < run->batch; i++, record += run->record) {
        record[0] = (uint8_t)(sealed >> 8);
        record[1] = (uint8_t)sealed;
        record[2] = 0;
        memcpy(record + header, run->message, run->size);
        if (!blesec_bench_seal(end->key, record + 2, 1 + run->size, end->records++)) return false;
    }
    run->sent += run->batch;
    return true;
}

// Sends the rest of a batch, or else a new batch, with one call.
static bool send_batch(struct run *run, struct end *end) {
    bool had_rest = end->rest != NULL;
    if (!had_rest && !seal_batch(run, end)) return false;
    const uint8_t *bytes = had_rest ? end->rest + end->rest_start : run->outbox;
    size_t count = had_rest ? end->rest_count : run->batch * run->record;
    ssize_t result = send(end->socket, bytes, count, MSG_NOSIGNAL);
    if (result < 0 && !is_temporary()) return false;
    size_t sent = result < 0 ? 0 : (size_t)result;
    if (!had_rest) {
        if (!keep_rest(end, bytes + sent, count - sent)) return false;
    } else if (sent == count) {
        drop_rest(end);
    } else {
        end->rest_start += sent;
        end->rest_count -= sent;
    }
    if (end->rest != NULL || !run->is_over) return true;
    run->senders--;
    return epoll_ctl(run->epoll, EPOLL_CTL_DEL, end->socket, NULL) == 0;
}

static bool open_record(struct run *run, struct end *end, uint8_t *record) {
    size_t sealed = 1 + run->size + tag;
    if (((size_t)record[0] << 8 | record[1]) != sealed) return false;
    if (!blesec_bench_open(end->key, record + 2, 1 + run->size, end->records++)) return false;
    uint8_t *message = malloc(run->size);
    if (message == NULL) return false;
    memcpy(message, record + header, run->size);
    bool is_correct = record[2] == 0 && message[run->size - 1] == run->message[run->size - 1];
    free_message(message);
    run->received++;
    return is_correct;
}

// Receives once, and opens all records that are complete.
static bool receive_records(struct run *run, struct end *end) {
    size_t count = end->rest_count, done = 0;
    ssize_t received = recv(end->socket, run->inbox + count, inbox_size - count, 0);
    if (received < 0) return is_temporary();
    if (received == 0) return false;
    if (count > 0) memcpy(run->inbox, end->rest, count);
    drop_rest(end);
    count += (size_t)received;
    for (; count - done >= run->record; done += run->record) {
        if (!open_record(run, end, run->inbox + done)) return false;
    }
    return keep_rest(end, run->inbox + done, count - done);
}

static bool watch(struct run *run, struct end *end) {
    struct epoll_event event = {.events = end->is_sender ? EPOLLOUT : EPOLLIN, .data.ptr = end};
    return epoll_ctl(run->epoll, EPOLL_CTL_ADD, end->socket, &event) == 0;
}

static bool watch_senders(struct run *run) {
    for (size_t i = 0; i < run->channels; i++) {
        if (!watch(run, &run->ends[2 * i])) return false;
    }
    run->senders = run->channels;
    return true;
}

// Sends on all channels until `duration` nanoseconds are over, and receives everything.
static bool work(struct run *run, int64_t duration) {
    struct epoll_event ready[max_events];
    int64_t deadline = now(CLOCK_MONOTONIC) + duration;
    run->is_over = false;
    while (run->senders > 0 || run->received < run->sent) {
        int count = epoll_wait(run->epoll, ready, max_events, wait_limit);
        if (count == 0 || (count < 0 && errno != EINTR)) return false;
        if (!run->is_over) run->is_over = now(CLOCK_MONOTONIC) >= deadline;
        for (int i = 0; i < count; i++) {
            struct end *end = ready[i].data.ptr;
            bool succeeded = end->is_sender ? send_batch(run, end) : receive_records(run, end);
            if (!succeeded) return false;
        }
    }
    return true;
}

static bool open_end(struct run *run, struct end *end) {
    static const uint8_t key[32] = {1};
    // The library that `AEAD` in BLESecPrimitives uses for a message of this size and its type byte.
    enum blesec_bench_library library = run->size + 1 < 384 ? BLESEC_BENCH_SODIUM
                                                        : BLESEC_BENCH_OPENSSL;
    end->key = blesec_bench_key_new(BLESEC_BENCH_CHACHAPOLY, library, key);
    return end->key != NULL;
}

static bool open_channel(struct run *run, struct end ends[2]) {
    int sockets[2];
    int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
    if (socketpair(AF_UNIX, type, 0, sockets) != 0) return false;
    for (int i = 0; i < 2; i++) ends[i].socket = sockets[i];
    ends[0].is_sender = true;
    return open_end(run, &ends[0]) && open_end(run, &ends[1]) && watch(run, &ends[1]);
}

static bool open_channels(struct run *run) {
    run->ends = calloc(2 * run->channels, sizeof *run->ends);
    for (size_t i = 0; run->ends != NULL && i < 2 * run->channels; i++) run->ends[i].socket = -1;
    run->message = malloc(run->size);
    run->outbox = malloc(run->batch * run->record);
    run->inbox = malloc(inbox_size);
    run->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (run->ends == NULL || run->message == NULL || run->outbox == NULL || run->inbox == NULL
        || run->epoll < 0) {
        return false;
    }
    memset(run->message, 0x5A, run->size);
    for (size_t i = 0; i < run->channels; i++) {
        if (!open_channel(run, &run->ends[2 * i])) return false;
    }
    return true;
}

static void close_channels(struct run *run) {
    for (size_t i = 0; run->ends != NULL && i < 2 * run->channels; i++) {
        struct end *end = &run->ends[i];
        if (end->socket >= 0) close(end->socket);
        blesec_bench_key_free(end->key);
        free(end->rest);
    }
    if (run->epoll >= 0) close(run->epoll);
    free(run->ends);
    free(run->message);
    free(run->outbox);
    free(run->inbox);
}

static bool measure(struct run *run) {
    // Sends one batch on each channel before the measurement: the first use of memory takes longer.
    if (!watch_senders(run) || !work(run, 0) || !watch_senders(run)) return false;
    uint64_t before = run->received;
    int64_t start = now(CLOCK_THREAD_CPUTIME_ID);
    if (!work(run, run->duration)) return false;
    run->load.nanoseconds = now(CLOCK_THREAD_CPUTIME_ID) - start;
    run->load.bytes = (run->received - before) * run->size;
    run->load.least_messages = UINT64_MAX;
    for (size_t i = 0; i < run->channels; i++) {
        // The batch that was sent before the measurement does not count.
        uint64_t messages = run->ends[2 * i + 1].records - run->batch;
        if (messages < run->load.least_messages) run->load.least_messages = messages;
    }
    return true;
}

static void *run_thread(void *argument) {
    struct run *run = argument;
    // Gives this thread its own table of descriptors, without the process's descriptors from 3 on,
    // so that RLIMIT_NOFILE applies to the descriptors of this thread alone.
    run->succeeded = close_range(3, ~0U, CLOSE_RANGE_UNSHARE) == 0 && open_channels(run)
                     && measure(run);
    close_channels(run);
    return NULL;
}

bool blesec_bench_many_channels(size_t channels, size_t size, size_t batch, int64_t duration,
                                blesec_bench_load *load) {
    // The limit of `size`: the inbox must have room for an incomplete record and a whole one, and the
    // length of a record must fit into 16 bits.
    if (channels == 0 || channels > 1 << 20 || size == 0 || size > 60000 || batch == 0
        || batch > 1024) {
        return false;
    }
    struct run run = {
        .channels = channels,
        .size = size,
        .batch = batch,
        .record = header + size + tag,
        .duration = duration,
        .epoll = -1,
    };
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_thread, &run) != 0) return false;
    if (pthread_join(thread, NULL) != 0 || !run.succeeded) return false;
    *load = run.load;
    return true;
}
