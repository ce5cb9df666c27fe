#pragma once
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <openssl/pkcs12.h>
#include <stdbool.h>

// An OSSL_PARAM keeps only the address of its name, so the name must be a literal in C. A name from Swift
// would be a temporary string.
static inline OSSL_PARAM blesec_openssl_tag_parameter(unsigned char *tag, size_t length) {
    return OSSL_PARAM_construct_octet_string(OSSL_CIPHER_PARAM_AEAD_TAG, tag, length);
}

// X.509: each function wraps a macro that Swift cannot import.
static inline int blesec_general_name_count(const GENERAL_NAMES *names) { return sk_GENERAL_NAME_num(names); }
static inline const ASN1_IA5STRING *blesec_general_name_uri(const GENERAL_NAMES *names, int index) {
    const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, index);
    return name->type == GEN_URI ? name->d.uniformResourceIdentifier : NULL;
}

// Whether a CRL distribution point of a certificate has, or may have, a name relative to the CRL's issuer (RFC 5280
// §4.2.1.13). OpenSSL reads no extension that is repeated or malformed, so such a certificate may have such a name.
// Unlike other functions that read extensions, X509_get_ext_d2i leaves the certificate unchanged.
static inline bool blesec_certificate_has_relative_point(const X509 *certificate) {
    int critical; // -1 if the certificate does not have the extension.
    CRL_DIST_POINTS *points = X509_get_ext_d2i(certificate, NID_crl_distribution_points, &critical, NULL);
    bool found = points == NULL && critical != -1;
    for (int index = 0; index < sk_DIST_POINT_num(points); index++) {
        const DIST_POINT *point = sk_DIST_POINT_value(points, index);
        found = found || (point->distpoint != NULL && point->distpoint->type == 1);
    }
    CRL_DIST_POINTS_free(points);
    return found;
}

// Whether an error means that a text contains no further PEM block.
static inline int blesec_error_is_end_of_pem(unsigned long code) {
    return ERR_GET_LIB(code) == ERR_LIB_PEM && ERR_GET_REASON(code) == PEM_R_NO_START_LINE;
}

// The hash of a signature; NID_undef if the algorithm names none.
static inline int blesec_signature_hash(const X509_ALGOR *algorithm) {
    const ASN1_OBJECT *name;
    const void *parameters;
    int type, hash = NID_undef;
    X509_ALGOR_get0(&name, &type, &parameters, algorithm);
    if (OBJ_obj2nid(name) != NID_rsassaPss) {
        OBJ_find_sigid_algs(OBJ_obj2nid(name), &hash, NULL);
        return hash;
    }
    // RSASSA-PSS names the hash in its parameters, and means SHA-1 if they do not.
    RSA_PSS_PARAMS *pss = type == V_ASN1_SEQUENCE
        ? (RSA_PSS_PARAMS *)ASN1_item_unpack((const ASN1_STRING *)parameters, ASN1_ITEM_rptr(RSA_PSS_PARAMS)) : NULL;
    if (pss == NULL) return NID_undef;
    hash = NID_sha1;
    if (pss->hashAlgorithm != NULL) {
        X509_ALGOR_get0(&name, NULL, NULL, pss->hashAlgorithm);
        hash = OBJ_obj2nid(name);
    }
    RSA_PSS_PARAMS_free(pss);
    return hash;
}

// The hash that a certificate or a revocation list is signed with.
static inline int blesec_certificate_hash(const X509 *certificate) {
    const X509_ALGOR *algorithm;
    X509_get0_signature(NULL, &algorithm, certificate);
    return blesec_signature_hash(algorithm);
}
static inline int blesec_crl_hash(const X509_CRL *list) {
    const X509_ALGOR *algorithm;
    X509_CRL_get0_signature(list, NULL, &algorithm);
    return blesec_signature_hash(algorithm);
}

// Whether an RSA key has an odd modulus, and an odd public exponent that is greater than 1 and has at most
// `longest_exponent` bits. With the exponent 1, each message is its own signature. A key with an even modulus or
// exponent is no RSA key (RFC 8017 §3.1).
static inline bool blesec_rsa_is_valid(const EVP_PKEY *key, int longest_exponent) {
    BIGNUM *modulus = NULL, *exponent = NULL;
    bool is_valid = EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_RSA_N, &modulus)
        && EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_RSA_E, &exponent) && BN_is_odd(modulus) && BN_is_odd(exponent)
        && !BN_is_one(exponent) && BN_num_bits(exponent) <= longest_exponent;
    BN_free(modulus);
    BN_free(exponent);
    return is_valid;
}

// The entries of a revocation list. They are an OpenSSL stack, which only macros can read.
static inline int blesec_revoked_count(X509_CRL *list) { return sk_X509_REVOKED_num(X509_CRL_get_REVOKED(list)); }
static inline X509_REVOKED *blesec_revoked_entry(X509_CRL *list, int index) {
    return sk_X509_REVOKED_value(X509_CRL_get_REVOKED(list), index);
}
