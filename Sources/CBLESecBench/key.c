#include "CBLESecBench.h"
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

struct blesec_bench_key {
    enum blesec_bench_algorithm algorithm;
    uint8_t bytes[32];
    crypto_aead_aes256gcm_state *expanded;  // the AES key schedule; NULL except with libsodium's AES
    EVP_CIPHER_CTX *context;                // NULL with libsodium
};

static bool use_openssl(blesec_bench_key *key) {
    const EVP_CIPHER *cipher = key->algorithm == BLESEC_BENCH_CHACHAPOLY ? EVP_chacha20_poly1305()
                                                                         : EVP_aes_256_gcm();
    key->context = EVP_CIPHER_CTX_new();
    return key->context != NULL
           && EVP_CipherInit_ex(key->context, cipher, NULL, key->bytes, NULL, 1) == 1;
}

static bool use_sodium(blesec_bench_key *key) {
    if (sodium_init() < 0) return false;
    if (key->algorithm == BLESEC_BENCH_CHACHAPOLY) return true;
    if (!crypto_aead_aes256gcm_is_available()) return false;
    key->expanded = aligned_alloc(16, crypto_aead_aes256gcm_statebytes());
    return key->expanded != NULL
           && crypto_aead_aes256gcm_beforenm(key->expanded, key->bytes) == 0;
}

blesec_bench_key *blesec_bench_key_new(enum blesec_bench_algorithm algorithm,
                                       enum blesec_bench_library library, const uint8_t *bytes) {
    blesec_bench_key *key = calloc(1, sizeof *key);
    if (key == NULL) return NULL;
    key->algorithm = algorithm;
    memcpy(key->bytes, bytes, sizeof key->bytes);
    if (library == BLESEC_BENCH_SODIUM ? use_sodium(key) : use_openssl(key)) return key;
    blesec_bench_key_free(key);
    return NULL;
}

void blesec_bench_key_free(blesec_bench_key *key) {
    if (key == NULL) return;
    EVP_CIPHER_CTX_free(key->context);
    free(key->expanded);
    free(key);
}

// Noise §12.3 and §12.4: four zero bytes, then the counter in the cipher's byte order.
static void write_nonce(const blesec_bench_key *key, uint8_t nonce[12], uint64_t counter) {
    memset(nonce, 0, 4);
    for (int i = 0; i < 8; i++) {
        int shift = key->algorithm == BLESEC_BENCH_CHACHAPOLY ? 8 * i : 56 - 8 * i;
        nonce[4 + i] = (uint8_t)(counter >> shift);
    }
}

bool blesec_bench_seal(blesec_bench_key *key, uint8_t *message, size_t count, uint64_t counter) {
    uint8_t nonce[12];
    write_nonce(key, nonce, counter);
    if (key->context != NULL) {
        int length = 0;
        OSSL_PARAM tag[] = {
            OSSL_PARAM_construct_octet_string(OSSL_CIPHER_PARAM_AEAD_TAG, message + count, 16),
            OSSL_PARAM_construct_end(),
        };
        return EVP_CipherInit_ex(key->context, NULL, NULL, NULL, nonce, 1) == 1
               && EVP_CipherUpdate(key->context, message, &length, message, (int)count) == 1
               && EVP_CipherFinal_ex(key->context, message + length, &length) == 1
               && EVP_CIPHER_CTX_get_params(key->context, tag) == 1;
    }
    if (key->expanded != NULL) {
        return crypto_aead_aes256gcm_encrypt_afternm(message, NULL, message, count, NULL, 0, NULL,
                                                     nonce, key->expanded) == 0;
    }
    return crypto_aead_chacha20poly1305_ietf_encrypt(message, NULL, message, count, NULL, 0, NULL,
                                                     nonce, key->bytes) == 0;
}

bool blesec_bench_open(blesec_bench_key *key, uint8_t *message, size_t count, uint64_t counter) {
    uint8_t nonce[12];
    write_nonce(key, nonce, counter);
    if (key->context != NULL) {
        int length = 0;
        OSSL_PARAM tag[] = {
            OSSL_PARAM_construct_octet_string(OSSL_CIPHER_PARAM_AEAD_TAG, message + count, 16),
            OSSL_PARAM_construct_end(),
        };
        return EVP_CipherInit_ex(key->context, NULL, NULL, NULL, nonce, 0) == 1
               && EVP_CIPHER_CTX_set_params(key->context, tag) == 1
               && EVP_CipherUpdate(key->context, message, &length, message, (int)count) == 1
               && EVP_CipherFinal_ex(key->context, message + length, &length) == 1;
    }
    if (key->expanded != NULL) {
        return crypto_aead_aes256gcm_decrypt_afternm(message, NULL, NULL, message, count + 16, NULL,
                                                     0, nonce, key->expanded) == 0;
    }
    return crypto_aead_chacha20poly1305_ietf_decrypt(message, NULL, NULL, message, count + 16, NULL,
                                                     0, nonce, key->bytes) == 0;
}

bool blesec_bench_seal_and_open(blesec_bench_key *sealing, blesec_bench_key *opening,
                                uint8_t *message, size_t count, uint64_t nonce, int repetitions) {
    for (int i = 0; i < repetitions; i++, nonce++) {
        if (!blesec_bench_seal(sealing, message, count, nonce)) return false;
        if (!blesec_bench_open(opening, message, count, nonce)) return false;
    }
    return true;
}

const char *blesec_bench_sodium_version(void) { return sodium_version_string(); }
const char *blesec_bench_openssl_version(void) { return OpenSSL_version(OPENSSL_VERSION); }
