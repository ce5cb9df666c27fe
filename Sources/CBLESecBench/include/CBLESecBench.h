// C code that does the same work as this package, with the same libraries. The bench compares the
// package's costs with the costs of this code, and calls such a reference cost a limit.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum blesec_bench_algorithm { BLESEC_BENCH_CHACHAPOLY, BLESEC_BENCH_AESGCM };
enum blesec_bench_library { BLESEC_BENCH_SODIUM, BLESEC_BENCH_OPENSSL };

// The cipher key of one direction, with one context for all calls. blesec_bench_key_new returns NULL
// when the library lacks the cipher on this machine.
typedef struct blesec_bench_key blesec_bench_key;
blesec_bench_key *_Nullable blesec_bench_key_new(enum blesec_bench_algorithm algorithm,
                                                 enum blesec_bench_library library,
                                                 const uint8_t *_Nonnull bytes);
void blesec_bench_key_free(blesec_bench_key *_Nullable key);

// Seal or open in place; the tag of 16 bytes follows the `count` bytes of plaintext.
bool blesec_bench_seal(blesec_bench_key *_Nonnull key, uint8_t *_Nonnull message, size_t count,
                       uint64_t nonce);
bool blesec_bench_open(blesec_bench_key *_Nonnull key, uint8_t *_Nonnull message, size_t count,
                       uint64_t nonce);

// Seals and opens one buffer of `count` + 16 bytes `repetitions` times, with the nonces `nonce`,
// `nonce` + 1 and so on.
bool blesec_bench_seal_and_open(blesec_bench_key *_Nonnull sealing,
                                blesec_bench_key *_Nonnull opening, uint8_t *_Nonnull message,
                                size_t count, uint64_t nonce, int repetitions);

// Measures two threads that block in send and recv of a SOCK_SEQPACKET pair; one echoes the other's
// messages. Each message is a record: length, type and `count` bytes of payload. If `isSealed`, each
// direction is sealed with ChaCha20-Poly1305 of the given library, and a tag follows the payload.
// Returns the elapsed nanoseconds of all `repetitions` together, or -1 after a failure.
int64_t blesec_bench_blocking_echo(size_t count, int repetitions, bool isSealed,
                                   enum blesec_bench_library library);

// Like blesec_bench_blocking_echo, but one way: only the last message is echoed.
int64_t blesec_bench_blocking_stream(size_t count, int repetitions, bool isSealed,
                                     enum blesec_bench_library library);

// The work of many channels in a given time.
typedef struct blesec_bench_load {
    uint64_t bytes;           // of the payloads of all messages
    int64_t nanoseconds;      // the processor time of the thread
    uint64_t least_messages;  // the number of messages on the slowest channel
} blesec_bench_load;

// Sends messages of `size` bytes on many channels at once. A channel is an AF_UNIX stream pair. All ends
// are in one epoll loop, on a thread with its own table of descriptors. Each send has `batch` records of
// length, type, payload and tag, sealed with ChaCha20-Poly1305 of the faster library for the size.
// Each received message is copied into memory of its own. When `duration` nanoseconds are over,
// each channel sends once more, and everything is received. Returns false if anything fails.
bool blesec_bench_many_channels(size_t channels, size_t size, size_t batch, int64_t duration,
                                blesec_bench_load *_Nonnull load);

// Measures a thread that accepts `count` links on a SOCK_SEQPACKET socket, exchanges the packets of a Noise
// XX channel on each link without any encryption, and closes the links. Another thread keeps `dialers` links
// open, at most 256. Returns the first thread's processor time in nanoseconds, or -1 after a failure.
int64_t blesec_bench_accept(size_t dialers, uint64_t count);

enum blesec_bench_curve { BLESEC_BENCH_X25519, BLESEC_BENCH_X448 };
enum blesec_bench_hash {
    BLESEC_BENCH_SHA256,
    BLESEC_BENCH_SHA512,
    BLESEC_BENCH_BLAKE2S,
    BLESEC_BENCH_BLAKE2B,
};
enum blesec_bench_call_kind {
    BLESEC_BENCH_GENERATE,  // a key pair
    BLESEC_BENCH_DH,        // a Diffie-Hellman operation
    BLESEC_BENCH_HASH,      // of `count` bytes
    BLESEC_BENCH_HKDF,      // with `count` outputs, from `input` bytes of input key material
    BLESEC_BENCH_SEAL,      // `count` bytes, in place in `slot`
    BLESEC_BENCH_OPEN,      // the ciphertext of `count` bytes in `slot`
};

typedef struct blesec_bench_call {
    enum blesec_bench_call_kind kind;
    uint32_t count;
    uint32_t input;
    uint32_t slot;
    bool has_new_key;  // SEAL and OPEN: whether the key is used for the first time, so AES expands it
} blesec_bench_call;

// The primitives of a Noise suite, from the libraries that `BLESecPrimitives` uses for messages as
// short as a handshake's, with one context for all calls. blesec_bench_primitives_new returns NULL
// when the libraries lack a primitive on this machine.
typedef struct blesec_bench_primitives blesec_bench_primitives;
blesec_bench_primitives *_Nullable blesec_bench_primitives_new(
    enum blesec_bench_curve curve, enum blesec_bench_algorithm algorithm,
    enum blesec_bench_hash hash);
void blesec_bench_primitives_free(blesec_bench_primitives *_Nullable primitives);

// Performs all calls in order, `repetitions` times. Returns false if a call fails or exceeds a
// buffer.
bool blesec_bench_perform(blesec_bench_primitives *_Nonnull primitives,
                          const blesec_bench_call *_Nonnull calls, size_t count, int repetitions);

// TLS 1.3 between two ends in memory, a client and a server, with the settings of a channel.
typedef struct blesec_bench_tls blesec_bench_tls;

// Reads an authority's certificate, and each end's certificate and key, from PEM files: the
// client's at index 0, and the server's at index 1.
blesec_bench_tls *_Nullable blesec_bench_tls_new(
    const char *_Nonnull authority, const char *_Nonnull const certificates[_Nonnull 2],
    const char *_Nonnull const keys[_Nonnull 2]);
void blesec_bench_tls_free(blesec_bench_tls *_Nullable tls);

// Performs `repetitions` full handshakes. Each is over when client and server have the traffic keys.
bool blesec_bench_tls_shake_hands(blesec_bench_tls *_Nonnull tls, int repetitions);

// Makes a new connection for blesec_bench_tls_seal_and_open, and frees the earlier one. Before the
// new connection's buffers, `gap` bytes are allocated, so that the buffers get other addresses than
// those of the earlier connection.
bool blesec_bench_tls_connect(blesec_bench_tls *_Nonnull tls, size_t gap);

// Sends `count` bytes from the client to the server `repetitions` times, on the newest connection.
// Makes a connection first if there is none.
bool blesec_bench_tls_seal_and_open(blesec_bench_tls *_Nonnull tls, uint8_t *_Nonnull message,
                                    size_t count, int repetitions);

// Removes a folder and its contents.
void blesec_bench_remove(const char *_Nonnull folder);

// The versions of the linked libraries, in static storage.
const char *_Nonnull blesec_bench_sodium_version(void);
const char *_Nonnull blesec_bench_openssl_version(void);

// From now on, the heap keeps the memory that is freed, and uses it again.
void blesec_bench_keep_freed_memory(void);

// Gives the heap's free memory back to the kernel, and returns the bytes in use on the heap.
size_t blesec_bench_trimmed_heap(void);
