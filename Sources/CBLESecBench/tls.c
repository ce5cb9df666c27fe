#include "CBLESecBench.h"
#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <stdlib.h>

// The size in bytes of a BIO's buffer: enough for any flight, and for the longest message as TLS records.
static const size_t pipe_size = 1 << 17;
static const unsigned char alpn_protocols[] = "\x08" "blesec/1";

struct blesec_bench_tls {
    SSL_CTX *contexts[2];  // the client's and the server's
    SSL *ends[2];          // the client and the server of the newest connection
    void *gap;             // unused memory, so that a new connection's buffers get other addresses
};

static int choose_alpn(SSL *ssl, const unsigned char **chosen, unsigned char *length,
                       const unsigned char *offered, unsigned int count, void *unused) {
    (void)ssl;
    (void)count;
    (void)unused;
    *chosen = offered + 1;
    *length = offered[0];
    return SSL_TLSEXT_ERR_OK;
}

#ifndef SSL_OP_NO_RX_CERTIFICATE_COMPRESSION
#define SSL_OP_NO_TX_CERTIFICATE_COMPRESSION ((uint64_t)1 << 32)
#define SSL_OP_NO_RX_CERTIFICATE_COMPRESSION ((uint64_t)1 << 33)
#endif

// Makes a context with the settings of BLESecTLSEngine's TLSContext that affect a connection
// between two such contexts. OpenSSL itself verifies the certificates, without TLSContext's
// callback.
static SSL_CTX *new_context(const char *authority, const char *certificate, const char *key) {
    static const char signatures[] =
        "ed25519:ecdsa_secp256r1_sha256:ecdsa_secp384r1_sha384:ecdsa_secp521r1_sha512:ed448:"
        "rsa_pss_rsae_sha256";
    SSL_CTX *context = SSL_CTX_new(TLS_method());
    if (context == NULL) return NULL;
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET
                                     | SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_clear_options(context, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
    SSL_CTX_set_options(context, SSL_OP_NO_RX_CERTIFICATE_COMPRESSION
                                     | SSL_OP_NO_TX_CERTIFICATE_COMPRESSION);
    SSL_CTX_set_mode(context, SSL_MODE_NO_AUTO_CHAIN);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_alpn_select_cb(context, choose_alpn, NULL);
    SSL_CTX_set_security_level(context, 2);
    if (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1
        && SSL_CTX_set_ciphersuites(context,
                                    "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256") == 1
        && SSL_CTX_set1_groups_list(context, "X25519:P-256") == 1
        && SSL_CTX_set1_sigalgs_list(context, signatures) == 1
        && SSL_CTX_set1_client_sigalgs_list(context, signatures) == 1
        && SSL_CTX_set_num_tickets(context, 0) == 1
        && SSL_CTX_set_alpn_protos(context, alpn_protocols, sizeof alpn_protocols - 1) == 0
        && SSL_CTX_load_verify_file(context, authority) == 1
        && SSL_CTX_use_certificate_file(context, certificate, SSL_FILETYPE_PEM) == 1
        && SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) == 1) {
        return context;
    }
    SSL_CTX_free(context);
    return NULL;
}

static void disconnect(blesec_bench_tls *tls) {
    for (int i = 0; i < 2; i++) {
        SSL_free(tls->ends[i]);
        tls->ends[i] = NULL;
    }
}

// Connects two new ends with a pair of BIOs, and completes the handshake.
static bool connect_ends(blesec_bench_tls *tls) {
    BIO *pipes[2] = {NULL, NULL};
    disconnect(tls);
    if (BIO_new_bio_pair(&pipes[0], pipe_size, &pipes[1], pipe_size) != 1) return false;
    for (int i = 0; i < 2; i++) {
        tls->ends[i] = SSL_new(tls->contexts[i]);
        if (tls->ends[i] == NULL) return false;
        SSL_set_bio(tls->ends[i], pipes[i], pipes[i]);
    }
    SSL_set_connect_state(tls->ends[0]);
    SSL_set_accept_state(tls->ends[1]);
    for (int turn = 0; turn < 4; turn++) SSL_do_handshake(tls->ends[turn % 2]);
    return SSL_is_init_finished(tls->ends[0]) && SSL_is_init_finished(tls->ends[1]);
}

blesec_bench_tls *blesec_bench_tls_new(const char *authority, const char *const certificates[2],
                                       const char *const keys[2]) {
    blesec_bench_tls *tls = calloc(1, sizeof *tls);
    if (tls == NULL) return NULL;
    for (int i = 0; i < 2; i++) {
        tls->contexts[i] = new_context(authority, certificates[i], keys[i]);
        if (tls->contexts[i] == NULL) {
            blesec_bench_tls_free(tls);
            return NULL;
        }
    }
    return tls;
}

void blesec_bench_tls_free(blesec_bench_tls *tls) {
    if (tls == NULL) return;
    disconnect(tls);
    free(tls->gap);
    SSL_CTX_free(tls->contexts[0]);
    SSL_CTX_free(tls->contexts[1]);
    free(tls);
}

bool blesec_bench_tls_shake_hands(blesec_bench_tls *tls, int repetitions) {
    for (int i = 0; i < repetitions; i++) {
        if (!connect_ends(tls)) return false;
    }
    return true;
}

bool blesec_bench_tls_connect(blesec_bench_tls *tls, size_t gap) {
    disconnect(tls);
    free(tls->gap);
    tls->gap = malloc(gap);
    return connect_ends(tls);
}

bool blesec_bench_tls_seal_and_open(blesec_bench_tls *tls, uint8_t *message, size_t count,
                                    int repetitions) {
    if (tls->ends[0] == NULL && !connect_ends(tls)) return false;
    for (int i = 0; i < repetitions; i++) {
        if (SSL_write(tls->ends[0], message, (int)count) != (int)count) return false;
        for (size_t done = 0; done < count;) {
            int read = SSL_read(tls->ends[1], message + done, (int)(count - done));
            if (read <= 0) return false;
            done += (size_t)read;
        }
    }
    return true;
}
