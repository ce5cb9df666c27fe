#define _GNU_SOURCE
#include "CBLESecBench.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { header = 3, tag = 16, buffer_size = 65536 };  // bytes; the header is a u16 length and a u8 type

// One end of the socket pair.
struct end {
    int socket;
    size_t count;  // bytes of a payload
    int repetitions;
    blesec_bench_key *sealing, *opening;  // NULL when nothing is sealed
    uint8_t *payload, *record;            // `buffer_size` bytes each
    bool isOneWay;  // only the last record is answered
    bool failed;
};

static bool send_record(struct end *end, uint64_t nonce) {
    size_t plain_size = end->count + 1;
    size_t sealed_size = plain_size + (end->sealing != NULL ? tag : 0);
    end->record[0] = (uint8_t)(sealed_size >> 8);
    end->record[1] = (uint8_t)sealed_size;
    end->record[2] = 0;
    memcpy(end->record + header, end->payload, end->count);
    if (end->sealing != NULL
        && !blesec_bench_seal(end->sealing, end->record + 2, plain_size, nonce)) {
        return false;
    }
    return send(end->socket, end->record, sealed_size + 2, MSG_NOSIGNAL)
           == (ssize_t)(sealed_size + 2);
}

static bool receive_record(struct end *end, uint64_t nonce) {
    size_t plain_size = end->count + 1;
    size_t sealed_size = plain_size + (end->opening != NULL ? tag : 0);
    if (recv(end->socket, end->record, buffer_size, 0) != (ssize_t)(sealed_size + 2)) return false;
    if (end->opening != NULL
        && !blesec_bench_open(end->opening, end->record + 2, plain_size, nonce)) {
        return false;
    }
    memcpy(end->payload, end->record + header, end->count);
    return true;
}

static void *echo(void *argument) {
    struct end *end = argument;
    for (int i = 0; i < end->repetitions && !end->failed; i++) {
        bool answers = !end->isOneWay || i + 1 == end->repetitions;
        end->failed = !receive_record(end, (uint64_t)i)
                      || (answers && !send_record(end, (uint64_t)i));
    }
    if (end->failed) shutdown(end->socket, SHUT_RDWR);
    return NULL;
}

static bool prepare(struct end *end, bool isSealed, enum blesec_bench_library library,
                    const uint8_t *sealing, const uint8_t *opening) {
    end->payload = calloc(1, buffer_size);
    end->record = calloc(1, buffer_size);
    if (end->payload == NULL || end->record == NULL) return false;
    if (!isSealed) return true;
    end->sealing = blesec_bench_key_new(BLESEC_BENCH_CHACHAPOLY, library, sealing);
    end->opening = blesec_bench_key_new(BLESEC_BENCH_CHACHAPOLY, library, opening);
    return end->sealing != NULL && end->opening != NULL;
}

static void finish(struct end *end) {
    blesec_bench_key_free(end->sealing);
    blesec_bench_key_free(end->opening);
    free(end->payload);
    free(end->record);
}

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int64_t run(struct end ends[2]) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, echo, &ends[1]) != 0) return -1;
    int64_t start = now();
    for (int i = 0; i < ends[0].repetitions && !ends[0].failed; i++) {
        bool waits = !ends[0].isOneWay || i + 1 == ends[0].repetitions;
        ends[0].failed = !send_record(&ends[0], (uint64_t)i)
                         || (waits && !receive_record(&ends[0], (uint64_t)i));
    }
    int64_t elapsed = now() - start;
    if (ends[0].failed) shutdown(ends[0].socket, SHUT_RDWR);
    pthread_join(thread, NULL);
    return ends[0].failed || ends[1].failed ? -1 : elapsed;
}

static int64_t measure(size_t count, int repetitions, bool isOneWay, bool isSealed,
                       enum blesec_bench_library library) {
    static const uint8_t request_key[32] = {1}, answer_key[32] = {2};
    if (count + header + tag > buffer_size) return -1;
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) return -1;
    struct end ends[2] = {
        {.socket = sockets[0], .count = count, .repetitions = repetitions, .isOneWay = isOneWay},
        {.socket = sockets[1], .count = count, .repetitions = repetitions, .isOneWay = isOneWay},
    };
    bool isReady = prepare(&ends[0], isSealed, library, request_key, answer_key)
                   && prepare(&ends[1], isSealed, library, answer_key, request_key);
    int64_t elapsed = isReady ? run(ends) : -1;
    finish(&ends[0]);
    finish(&ends[1]);
    close(sockets[0]);
    close(sockets[1]);
    return elapsed;
}

int64_t blesec_bench_blocking_echo(size_t count, int repetitions, bool isSealed,
                                   enum blesec_bench_library library) {
    return measure(count, repetitions, false, isSealed, library);
}

int64_t blesec_bench_blocking_stream(size_t count, int repetitions, bool isSealed,
                                     enum blesec_bench_library library) {
    return measure(count, repetitions, true, isSealed, library);
}
