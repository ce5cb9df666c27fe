public import BLESecChannelCore
internal import BLESecPrimitives
public import BLESecTLSEngine
internal import CBLESecOpenSSL
internal import Glibc

/// Reads certificates for TLS from PEM files in the format of `openssl x509`.
public enum CertificateFile {
    /// The longest file that is read, in bytes.
    public static let maximumLength = 256 << 10

    /// Reads an identity. `certificate` contains the leaf first; the intermediates follow it, or
    /// are in a file of their own. `key` contains the PKCS#8 private key.
    ///
    /// `passphrase` is asked only when the key is encrypted. `now` is the time in seconds since
    /// 1970 at which the leaf has to be valid.
    ///
    /// - Throws: `noSuchFile`; `permission` when the system denies access; `badKey` when a file
    ///   cannot be parsed, when other users may have written a file or can open the key file, or
    ///   when the identity cannot be used. An identity cannot be used if the key is not the leaf's,
    ///   the leaf has expired or is not valid yet, the leaf's key usage forbids TLS, a key is in an
    ///   unusual encoding, a key or a signature is too weak, or the certificates are longer than
    ///   peers accept. The reason names the file. For a fault in the content of a certificate or of
    ///   the key, the reason names the leaf's file, even if another file has the fault.
    public static func identity(
        certificate path: String, key keyPath: String, intermediates: String? = nil,
        passphrase: PassphraseSource? = nil, now: Int64
    ) throws(ChannelError) -> TLSIdentity {
        var chain = try certificates(path)
        let leaf = chain.removeFirst()
        if let intermediates { chain += try certificates(intermediates) }
        let key = try IdentityFile.privateKeyInfo(keyPath, passphrase: passphrase)
        return try withPathInErrors(path) { () throws(ChannelError) in
            try TLSIdentity(certificate: leaf, intermediates: chain, privateKey: key, now: now)
        }
    }

    /// Reads the certificates of authorities.
    ///
    /// - Throws: `noSuchFile`; `permission` when the system denies access; `badKey` when other
    ///   users may have written the file, or when one of the certificates cannot be parsed, may
    ///   not issue certificates, or has a key that is too weak or in an unusual encoding.
    public static func authorities(_ path: String) throws(ChannelError) -> CertificateAuthorities {
        let certificates = try certificates(path)
        return try withPathInErrors(path) { () throws(ChannelError) in
            try CertificateAuthorities(certificates)
        }
    }

    /// The DER forms of the certificates in a PEM file, at least one.
    static func certificates(_ path: String) throws(ChannelError) -> [[UInt8]] {
        let file = try TrustedFile.open(path)
        guard file.status.st_size <= maximumLength,
            let text = file.descriptor.readAll(atMost: maximumLength)
        else {
            throw .badKey(
                "\(path) is not a file of at most \(maximumLength) bytes with certificates")
        }
        guard let found = blocks(text) else {
            throw .badKey("\(path) holds a damaged PEM block")
        }
        guard !found.isEmpty else {
            throw .badKey(
                "\(path) holds no certificate; the first line of a certificate is "
                    + "-----BEGIN CERTIFICATE-----")
        }
        return try found.map { (label, content) throws(ChannelError) in
            guard label == "CERTIFICATE" || label == "X509 CERTIFICATE" else {
                throw .badKey("\(path) holds \(label): the file may contain only certificates")
            }
            return content
        }
    }

    /// The DER form of a revocation list in PEM form; nil unless the text has exactly one block,
    /// and this block is intact and has the label `X509 CRL`.
    static func revocationList(_ text: [UInt8]) -> [UInt8]? {
        guard let blocks = blocks(text), blocks.count == 1 else { return nil }
        return blocks[0].label == "X509 CRL" ? blocks[0].content : nil
    }

    /// The PEM blocks of a text, or `nil` when one of them is damaged. The text must contain no
    /// secret, since the content of the blocks is not wiped.
    static func blocks(_ text: [UInt8]) -> [(label: String, content: [UInt8])]? {
        unsafe text.withUnsafeBytes { buffer in
            guard let source = unsafe BIO_new_mem_buf(buffer.baseAddress, Int32(buffer.count))
            else { return nil }
            defer { unsafe BIO_free(source) }
            OpenSSLError.clear()
            var blocks: [(String, [UInt8])] = []
            var name: UnsafeMutablePointer<CChar>?
            var header: UnsafeMutablePointer<CChar>?
            var data: UnsafeMutablePointer<UInt8>?
            var count = 0
            while unsafe PEM_read_bio(source, &name, &header, &data, &count) == 1 {
                if let name = unsafe name, let data = unsafe data {
                    let content = unsafe Array(UnsafeBufferPointer(start: data, count: count))
                    unsafe blocks.append((String(cString: name), content))
                }
                unsafe CRYPTO_free(name, #file, #line)
                unsafe CRYPTO_free(header, #file, #line)
                unsafe CRYPTO_free(data, #file, #line)
            }
            // OpenSSL also reports the end of the text as an error; any other error means damage.
            let isEnd = blesec_error_is_end_of_pem(ERR_peek_last_error()) != 0
            OpenSSLError.clear()
            return isEnd ? blocks : nil
        }
    }
}

/// The result of `body`. If `body` throws, the file's path is put before the error's reason.
func withPathInErrors<Result: ~Copyable>(
    _ path: String, _ body: () throws(ChannelError) -> Result
) throws(ChannelError) -> Result {
    do throws(ChannelError) { return try body() } catch { throw error.withPath(path) }
}

extension ChannelError {
    /// This error with the file's path before the reason.
    func withPath(_ path: String) -> ChannelError {
        var error = self
        error.reason = "\(path) \(reason)"
        return error
    }
}
