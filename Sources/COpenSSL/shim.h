#pragma once
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <openssl/pkcs12.h>

// The parameter keeps its name's address: a literal here, where Swift would hand out a temporary.
static inline OSSL_PARAM blesec_openssl_tag_parameter(unsigned char *tag, size_t length) {
    return OSSL_PARAM_construct_octet_string(OSSL_CIPHER_PARAM_AEAD_TAG, tag, length);
}
