#pragma once
#include <openssl/ssl.h>

// TLS: most of these functions wrap a macro that Swift cannot import.

// Allows only TLS 1.3, without middlebox compatibility mode. Tickets identify a session, but do not
// contain it (SSL_OP_NO_TICKET). `longest_chain` limits the total size of the peer's certificates, in
// bytes. Compressed certificates (RFC 8879, from OpenSSL 3.2 on) are not used: OpenSSL would decompress far
// more bytes than a peer that is not proven yet has sent.
// These options have effect from OpenSSL 3.2 on, also in a program that was compiled with older headers.
#ifndef SSL_OP_NO_RX_CERTIFICATE_COMPRESSION
#define SSL_OP_NO_TX_CERTIFICATE_COMPRESSION ((uint64_t)1 << 32)
#define SSL_OP_NO_RX_CERTIFICATE_COMPRESSION ((uint64_t)1 << 33)
#endif
static inline int blesec_ssl_context_profile(SSL_CTX *context, long longest_chain) {
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_clear_options(context, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
    SSL_CTX_set_options(context, SSL_OP_NO_RX_CERTIFICATE_COMPRESSION | SSL_OP_NO_TX_CERTIFICATE_COMPRESSION);
    SSL_CTX_set_mode(context, SSL_MODE_NO_AUTO_CHAIN);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_max_cert_list(context, longest_chain);
    return SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION)
        && SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION);
}
static inline int blesec_ssl_context_groups(SSL_CTX *context, const char *names) {
    return SSL_CTX_set1_groups_list(context, names);
}
// Sets the signature algorithms. OpenSSL has a separate list for client certificates.
static inline int blesec_ssl_context_signatures(SSL_CTX *context, const char *names) {
    return SSL_CTX_set1_sigalgs_list(context, names) && SSL_CTX_set1_client_sigalgs_list(context, names);
}
static inline int blesec_ssl_context_add_intermediate(SSL_CTX *context, X509 *certificate) {
    return SSL_CTX_add1_chain_cert(context, certificate);
}
static inline void blesec_ssl_retry_verify(SSL *ssl) { SSL_set_retry_verify(ssl); }
static inline void blesec_bio_clear_retry(BIO *bio) { BIO_clear_retry_flags(bio); }
static inline void blesec_bio_set_retry_read(BIO *bio) { BIO_set_retry_read(bio); }
// Whether an error is an alert from the peer. The error's reason is then SSL_AD_REASON_OFFSET plus the alert,
// which is a byte (RFC 8446 §6). All other reasons are OpenSSL's own errors.
static inline int blesec_error_is_alert(unsigned long code) {
    return ERR_GET_LIB(code) == ERR_LIB_SSL && ERR_GET_REASON(code) >= SSL_AD_REASON_OFFSET
        && ERR_GET_REASON(code) <= SSL_AD_REASON_OFFSET + 255;
}
static inline int blesec_error_is_tls(unsigned long code) { return ERR_GET_LIB(code) == ERR_LIB_SSL; }
// The reason of an error of OpenSSL's TLS library; 0 for an error of another library.
static inline int blesec_error_reason(unsigned long code) {
    return ERR_GET_LIB(code) == ERR_LIB_SSL ? ERR_GET_REASON(code) : 0;
}
static inline int blesec_certificate_count(const STACK_OF(X509) *chain) { return sk_X509_num(chain); }
static inline X509 *blesec_certificate(const STACK_OF(X509) *chain, int index) { return sk_X509_value(chain, index); }
static inline int blesec_ssl_context_newest_version(SSL_CTX *context, int version) {
    return SSL_CTX_set_max_proto_version(context, version);
}
// Allows sessions to be resumed. Only blesec stores the sessions, not OpenSSL; a ticket is only the
// identifier by which an acceptor finds the session.
static inline void blesec_ssl_context_resume(SSL_CTX *context) {
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_BOTH | SSL_SESS_CACHE_NO_INTERNAL);
}
static inline void blesec_certificates_free(STACK_OF(X509) *chain) { sk_X509_pop_free(chain, X509_free); }
