// What the bench compares with: the same work, done by the same libraries from C, without any of
// ours around it.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum blesec_bench_algorithm { BLESEC_BENCH_CHACHAPOLY, BLESEC_BENCH_AESGCM };
enum blesec_bench_library { BLESEC_BENCH_SODIUM, BLESEC_BENCH_OPENSSL };

// One direction's key, with its context kept. NULL when a library lacks the cipher here.
typedef struct blesec_bench_key blesec_bench_key;
blesec_bench_key *_Nullable blesec_bench_key_new(enum blesec_bench_algorithm algorithm,
                                                 enum blesec_bench_library library,
                                                 const uint8_t *_Nonnull bytes);
void blesec_bench_key_free(blesec_bench_key *_Nullable key);

// In place; the tag of 16 bytes lies behind the `count` bytes of plaintext.
bool blesec_bench_seal(blesec_bench_key *_Nonnull key, uint8_t *_Nonnull message, size_t count,
                       uint64_t nonce);
bool blesec_bench_open(blesec_bench_key *_Nonnull key, uint8_t *_Nonnull message, size_t count,
                       uint64_t nonce);

// Seals and opens one buffer of `count` + 16 bytes over and over, with nonces from `nonce` on.
bool blesec_bench_seal_and_open(blesec_bench_key *_Nonnull sealing,
                                blesec_bench_key *_Nonnull opening, uint8_t *_Nonnull message,
                                size_t count, uint64_t nonce, int repetitions);

// Two threads that block in send and recv of a SOCK_SEQPACKET pair; one echoes what the other
// sends. Each message is a record of `count` bytes of payload: length, type, payload and, with
// `isSealed`, the tag, sealed and opened on each of its two ways with ChaCha20-Poly1305 of the
// library that is given. Returns the nanoseconds of all `repetitions`, or -1.
int64_t blesec_bench_blocking_echo(size_t count, int repetitions, bool isSealed,
                                   enum blesec_bench_library library);

// The versions of the libraries at hand, of static storage.
const char *_Nonnull blesec_bench_sodium_version(void);
const char *_Nonnull blesec_bench_openssl_version(void);
