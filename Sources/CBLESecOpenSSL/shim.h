#pragma once
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <openssl/pkcs12.h>

// The parameter stores the address of its name, so the name must be a literal in C. From Swift, the
// name would be a temporary string.
static inline OSSL_PARAM blesec_openssl_tag_parameter(unsigned char *tag, size_t length) {
    return OSSL_PARAM_construct_octet_string(OSSL_CIPHER_PARAM_AEAD_TAG, tag, length);
}

// X.509: each function wraps a macro that Swift cannot import.
static inline int blesec_general_name_count(const GENERAL_NAMES *names) { return sk_GENERAL_NAME_num(names); }
static inline const ASN1_IA5STRING *blesec_general_name_uri(const GENERAL_NAMES *names, int index) {
    const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, index);
    return name->type == GEN_URI ? name->d.uniformResourceIdentifier : NULL;
}

// Whether an error means that a text contains no further PEM block.
static inline int blesec_error_is_end_of_pem(unsigned long code) {
    return ERR_GET_LIB(code) == ERR_LIB_PEM && ERR_GET_REASON(code) == PEM_R_NO_START_LINE;
}

// The entries of a revocation list. They are an OpenSSL stack, which only macros can read.
static inline int blesec_revoked_count(X509_CRL *list) { return sk_X509_REVOKED_num(X509_CRL_get_REVOKED(list)); }
static inline X509_REVOKED *blesec_revoked_entry(X509_CRL *list, int index) {
    return sk_X509_REVOKED_value(X509_CRL_get_REVOKED(list), index);
}
