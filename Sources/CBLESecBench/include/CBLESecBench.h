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

// The same, but one way; the last message alone is answered, with one like it.
int64_t blesec_bench_blocking_stream(size_t count, int repetitions, bool isSealed,
                                     enum blesec_bench_library library);

enum blesec_bench_curve { BLESEC_BENCH_X25519, BLESEC_BENCH_X448 };
enum blesec_bench_hash {
    BLESEC_BENCH_SHA256,
    BLESEC_BENCH_SHA512,
    BLESEC_BENCH_BLAKE2S,
    BLESEC_BENCH_BLAKE2B,
};
enum blesec_bench_call_kind {
    BLESEC_BENCH_GENERATE,  // a key pair
    BLESEC_BENCH_MULTIPLY,  // a Diffie-Hellman product
    BLESEC_BENCH_HASH,      // of `count` bytes
    BLESEC_BENCH_HKDF,      // with `count` outputs, of `input` bytes of key material
    BLESEC_BENCH_SEAL,      // `count` bytes into `slot`
    BLESEC_BENCH_OPEN,      // what was sealed last into `slot`
};

// One call of a primitive in a handshake.
typedef struct blesec_bench_call {
    enum blesec_bench_call_kind kind;
    uint32_t count;
    uint32_t input;
    uint32_t slot;
    bool has_new_key;  // SEAL and OPEN: whether the key has not been used before
} blesec_bench_call;

// The primitives of a Noise suite, in the libraries that `BLESecPrimitives` uses for messages of a
// handshake's size, with contexts kept. NULL when they lack one here.
typedef struct blesec_bench_primitives blesec_bench_primitives;
blesec_bench_primitives *_Nullable blesec_bench_primitives_new(
    enum blesec_bench_curve curve, enum blesec_bench_algorithm algorithm,
    enum blesec_bench_hash hash);
void blesec_bench_primitives_free(blesec_bench_primitives *_Nullable primitives);

// Performs all calls in their order, so many times. False for a call that fails or is too long.
bool blesec_bench_perform(blesec_bench_primitives *_Nonnull primitives,
                          const blesec_bench_call *_Nonnull calls, size_t count, int repetitions);

// TLS 1.3 between two ends in memory, a client and a server, with the settings of a channel.
typedef struct blesec_bench_tls blesec_bench_tls;

// Reads an authority's certificate, and each end's certificate and key, from PEM files.
blesec_bench_tls *_Nullable blesec_bench_tls_new(
    const char *_Nonnull authority, const char *_Nonnull const certificates[_Nonnull 2],
    const char *_Nonnull const keys[_Nonnull 2]);
void blesec_bench_tls_free(blesec_bench_tls *_Nullable tls);

// Shakes hands from nothing to the keys on both ends, so many times.
bool blesec_bench_tls_shake_hands(blesec_bench_tls *_Nonnull tls, int repetitions);

// Sends `count` bytes from one end to the other over and over, on one connection.
bool blesec_bench_tls_seal_and_open(blesec_bench_tls *_Nonnull tls, uint8_t *_Nonnull message,
                                    size_t count, int repetitions);

// Removes a folder and all that is in it.
void blesec_bench_remove(const char *_Nonnull folder);

// The versions of the libraries at hand, of static storage.
const char *_Nonnull blesec_bench_sodium_version(void);
const char *_Nonnull blesec_bench_openssl_version(void);

// Bytes in use on the heap, after what is free has been given back to the kernel.
size_t blesec_bench_trimmed_heap(void);
