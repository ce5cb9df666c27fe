#include "CBLESecBench.h"
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_KEY = 56, MAX_DIGEST = 64, MAX_BLOCK = 128, SLOTS = 32 };

struct blesec_bench_primitives {
    size_t key_length, digest_length, block_length;
    EVP_PKEY *x448;                             // NULL with X25519 (libsodium)
    EVP_MD *digest;                             // NULL with BLAKE2b (libsodium)
    EVP_MD_CTX *context;                        // NULL with BLAKE2b
    crypto_generichash_blake2b_state *blake2b;  // NULL with OpenSSL's hashes
    crypto_aead_aes256gcm_state *expanded;      // the AES key schedule; NULL with ChaCha20-Poly1305
    uint8_t private_key[MAX_KEY], peer_key[MAX_KEY], shared_secret[MAX_KEY];
    uint8_t cipher_key[32], nonce[12];
    uint8_t chaining_key[MAX_DIGEST];
    uint8_t derived[3 * MAX_DIGEST];     // the outputs of hashes and of HKDF
    uint8_t text[1024];                  // the input of hashes
    uint8_t slots[SLOTS][MAX_KEY + 16];  // messages, each with its tag
};

// Hashes. All digests use one context, which is initialized anew for each digest.

static void begin(blesec_bench_primitives *p) {
    if (p->blake2b != NULL) {
        crypto_generichash_blake2b_init(p->blake2b, NULL, 0, p->digest_length);
    } else {
        EVP_DigestInit_ex(p->context, p->digest, NULL);
    }
}

static void update(blesec_bench_primitives *p, const uint8_t *bytes, size_t count) {
    if (p->blake2b != NULL) {
        crypto_generichash_blake2b_update(p->blake2b, bytes, count);
    } else {
        EVP_DigestUpdate(p->context, bytes, count);
    }
}

static void finish(blesec_bench_primitives *p, uint8_t *output) {
    if (p->blake2b != NULL) {
        crypto_generichash_blake2b_final(p->blake2b, output, p->digest_length);
    } else {
        EVP_DigestFinal_ex(p->context, output, NULL);
    }
}

// HMAC of `first` followed by `second`. The key is a digest, and so not longer than a block.
static void hmac(blesec_bench_primitives *p, const uint8_t *key, const uint8_t *first,
                 size_t first_count, const uint8_t *second, size_t second_count, uint8_t *output) {
    uint8_t pad[MAX_BLOCK];
    memset(pad, 0x36, p->block_length);
    for (size_t i = 0; i < p->digest_length; i++) pad[i] ^= key[i];
    begin(p);
    update(p, pad, p->block_length);
    update(p, first, first_count);
    update(p, second, second_count);
    finish(p, output);
    for (size_t i = 0; i < p->block_length; i++) pad[i] ^= 0x36 ^ 0x5C;
    begin(p);
    update(p, pad, p->block_length);
    update(p, output, p->digest_length);
    finish(p, output);
}

// HKDF of Noise §4.3. No output becomes the cipher key: that key stays the same, so that OPEN can
// open what SEAL has sealed.
static void hkdf(blesec_bench_primitives *p, const blesec_bench_call *call) {
    uint8_t extracted[MAX_DIGEST];
    hmac(p, p->chaining_key, p->shared_secret, call->input, NULL, 0, extracted);
    for (size_t i = 0; i < call->count; i++) {
        uint8_t counter = (uint8_t)(i + 1);
        const uint8_t *previous = p->derived + (i == 0 ? 0 : i - 1) * p->digest_length;
        hmac(p, extracted, previous, i == 0 ? 0 : p->digest_length, &counter, 1,
             p->derived + i * p->digest_length);
    }
}

static bool generate(blesec_bench_primitives *p) {
    uint8_t private_key[MAX_KEY], public_key[MAX_KEY];
    randombytes_buf(private_key, p->key_length);
    if (p->x448 == NULL) return crypto_scalarmult_base(public_key, private_key) == 0;
    size_t count = p->key_length;
    EVP_PKEY *key = EVP_PKEY_new_raw_private_key(EVP_PKEY_X448, NULL, private_key, count);
    bool succeeded = key != NULL && EVP_PKEY_get_raw_public_key(key, public_key, &count) == 1;
    EVP_PKEY_free(key);
    return succeeded;
}

static bool diffie_hellman(blesec_bench_primitives *p) {
    if (p->x448 == NULL) {
        return crypto_scalarmult(p->shared_secret, p->private_key, p->peer_key) == 0;
    }
    size_t count = p->key_length;
    EVP_PKEY *peer = EVP_PKEY_new_raw_public_key(EVP_PKEY_X448, NULL, p->peer_key, count);
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new(p->x448, NULL);
    bool succeeded = peer != NULL && context != NULL && EVP_PKEY_derive_init(context) == 1
                && EVP_PKEY_derive_set_peer(context, peer) == 1
                && EVP_PKEY_derive(context, p->shared_secret, &count) == 1;
    EVP_PKEY_CTX_free(context);
    EVP_PKEY_free(peer);
    return succeeded;
}

// Expands the AES key if the call is the first that uses this key.
static void expand(blesec_bench_primitives *p, const blesec_bench_call *call) {
    if (p->expanded != NULL && call->has_new_key) {
        crypto_aead_aes256gcm_beforenm(p->expanded, p->cipher_key);
    }
}

static bool seal(blesec_bench_primitives *p, const blesec_bench_call *call) {
    uint8_t *message = p->slots[call->slot];
    expand(p, call);
    if (p->expanded != NULL) {
        return crypto_aead_aes256gcm_encrypt_afternm(message, NULL, message, call->count,
                                                     p->chaining_key, p->digest_length, NULL,
                                                     p->nonce, p->expanded) == 0;
    }
    return crypto_aead_chacha20poly1305_ietf_encrypt(message, NULL, message, call->count,
                                                     p->chaining_key, p->digest_length, NULL,
                                                     p->nonce, p->cipher_key) == 0;
}

static bool open_sealed(blesec_bench_primitives *p, const blesec_bench_call *call) {
    uint8_t *message = p->slots[call->slot];
    size_t count = call->count + 16;
    expand(p, call);
    if (p->expanded != NULL) {
        return crypto_aead_aes256gcm_decrypt_afternm(message, NULL, NULL, message, count,
                                                     p->chaining_key, p->digest_length, p->nonce,
                                                     p->expanded) == 0;
    }
    return crypto_aead_chacha20poly1305_ietf_decrypt(message, NULL, NULL, message, count,
                                                     p->chaining_key, p->digest_length, p->nonce,
                                                     p->cipher_key) == 0;
}

static bool perform(blesec_bench_primitives *p, const blesec_bench_call *call) {
    switch (call->kind) {
    case BLESEC_BENCH_GENERATE: return generate(p);
    case BLESEC_BENCH_DH: return diffie_hellman(p);
    case BLESEC_BENCH_HASH:
        begin(p);
        update(p, p->text, call->count);
        finish(p, p->derived);
        return true;
    case BLESEC_BENCH_HKDF: hkdf(p, call); return true;
    case BLESEC_BENCH_SEAL: return seal(p, call);
    case BLESEC_BENCH_OPEN: return open_sealed(p, call);
    }
    return false;
}

bool blesec_bench_perform(blesec_bench_primitives *p, const blesec_bench_call *calls, size_t count,
                          int repetitions) {
    for (size_t i = 0; i < count; i++) {
        const blesec_bench_call *call = &calls[i];
        bool uses_aead = call->kind == BLESEC_BENCH_SEAL || call->kind == BLESEC_BENCH_OPEN;
        // The greatest `count` for which the buffers have room.
        size_t limit = uses_aead ? MAX_KEY : call->kind == BLESEC_BENCH_HKDF ? 3 : sizeof p->text;
        if (call->slot >= SLOTS || call->count > limit || call->input > MAX_KEY) return false;
    }
    for (int i = 0; i < repetitions; i++) {
        for (size_t j = 0; j < count; j++) {
            if (!perform(p, &calls[j])) return false;
        }
    }
    return true;
}

static bool prepare_curve(blesec_bench_primitives *p, enum blesec_bench_curve curve) {
    p->key_length = curve == BLESEC_BENCH_X25519 ? 32 : 56;
    randombytes_buf(p->private_key, p->key_length);
    p->peer_key[0] = curve == BLESEC_BENCH_X25519 ? 9 : 5;  // the base point
    if (curve == BLESEC_BENCH_X25519) return true;
    p->x448 = EVP_PKEY_new_raw_private_key(EVP_PKEY_X448, NULL, p->private_key, p->key_length);
    return p->x448 != NULL;
}

static bool prepare_cipher(blesec_bench_primitives *p, enum blesec_bench_algorithm algorithm) {
    if (algorithm == BLESEC_BENCH_CHACHAPOLY) return true;
    if (!crypto_aead_aes256gcm_is_available()) return false;
    p->expanded = aligned_alloc(16, crypto_aead_aes256gcm_statebytes());
    return p->expanded != NULL
           && crypto_aead_aes256gcm_beforenm(p->expanded, p->cipher_key) == 0;
}

static bool prepare_hash(blesec_bench_primitives *p, enum blesec_bench_hash hash) {
    bool is_short = hash == BLESEC_BENCH_SHA256 || hash == BLESEC_BENCH_BLAKE2S;
    p->digest_length = is_short ? 32 : 64;
    p->block_length = is_short ? 64 : 128;
    if (hash == BLESEC_BENCH_BLAKE2B) {
        p->blake2b = aligned_alloc(64, crypto_generichash_blake2b_statebytes());
        return p->blake2b != NULL;
    }
    p->digest = EVP_MD_fetch(NULL,
                             hash == BLESEC_BENCH_SHA256   ? "SHA256"
                             : hash == BLESEC_BENCH_SHA512 ? "SHA512"
                                                           : "BLAKE2S-256",
                             NULL);
    p->context = EVP_MD_CTX_new();
    return p->digest != NULL && p->context != NULL;
}

blesec_bench_primitives *blesec_bench_primitives_new(enum blesec_bench_curve curve,
                                                     enum blesec_bench_algorithm algorithm,
                                                     enum blesec_bench_hash hash) {
    if (sodium_init() < 0) return NULL;
    blesec_bench_primitives *p = calloc(1, sizeof *p);
    if (p == NULL) return NULL;
    if (prepare_curve(p, curve) && prepare_cipher(p, algorithm) && prepare_hash(p, hash)) return p;
    blesec_bench_primitives_free(p);
    return NULL;
}

void blesec_bench_primitives_free(blesec_bench_primitives *p) {
    if (p == NULL) return;
    EVP_PKEY_free(p->x448);
    EVP_MD_CTX_free(p->context);
    EVP_MD_free(p->digest);
    free(p->blake2b);
    free(p->expanded);
    free(p);
}
