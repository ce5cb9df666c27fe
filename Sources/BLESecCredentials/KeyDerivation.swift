internal import BLESecChannelCore
internal import BLESecTLSEngine
internal import CBLESecOpenSSL

/// The cost of deriving a key from a passphrase (RFC 8018, RFC 7914), as an encrypted file
/// specifies it.
///
/// The author of the file chooses the cost, which may amount to days of computing. So the cost is
/// checked before the file is decrypted.
enum KeyDerivation {
    /// How a file's key derivation compares with the limits. For scrypt, `tooManyRounds` means too
    /// many blocks.
    private enum Cost { case allowed, tooManyRounds, tooMuchMemory }

    /// The most rounds of hashing; they take a few seconds.
    static let maximumRounds: UInt64 = 1 << 22
    /// The most blocks that scrypt mixes (N · r · p); they take a few seconds.
    static let maximumBlocks: UInt64 = 1 << 23
    /// The most memory for scrypt (r · (N + p + 2)), in units of 128 bytes: 32 MiB. This is
    /// OpenSSL's own limit, and a caller of `PKCS8_decrypt` cannot change it.
    static let maximumMemory: UInt64 = 1 << 18

    /// Checks the cost of decrypting `encrypted`, which is an `X509_SIG`.
    ///
    /// - Throws: `badKey` when the cost exceeds ``maximumRounds``, ``maximumBlocks`` or
    ///   ``maximumMemory``, or cannot be read. The reason begins with a verb: the caller puts the
    ///   file's path before the reason.
    static func check(_ encrypted: OpaquePointer) throws(ChannelError) {
        var algorithm: UnsafePointer<X509_ALGOR>?
        unsafe X509_SIG_get0(encrypted, &algorithm, nil)
        guard let scheme = unsafe Algorithm(algorithm), let cost = cost(of: scheme) else {
            throw .openSSL(.badKey, "is encrypted in a way that cannot be read")
        }
        switch cost {
        case .allowed: break
        case .tooManyRounds:
            throw .badKey(
                "asks for more rounds of key derivation than are allowed: encrypt the key anew with "
                    + IdentityFile.conversion)
        case .tooMuchMemory:
            throw .badKey(
                "needs more than 32 MiB of memory for the key derivation, which OpenSSL does not "
                    + "allow: encrypt the key anew with the program that has encrypted it, and with "
                    + "a smaller N of scrypt, such as 16384 with r = 8")
        }
    }

    /// The cost of an encryption scheme; nil if it cannot be read.
    private static func cost(of scheme: Algorithm) -> Cost? {
        guard scheme.nid == NID_pbes2 else {
            // All older schemes have a salt and a number of rounds.
            return unsafe scheme.decode(d2i_PBEPARAM, PBEPARAM_free) { parameters in
                unsafe cost(rounds: number(parameters.pointee.iter))
            }
        }
        return unsafe scheme.decode(d2i_PBE2PARAM, PBE2PARAM_free) { parameters in
            guard let function = unsafe Algorithm(parameters.pointee.keyfunc) else { return nil }
            switch function.nid {
            case NID_id_pbkdf2:
                return unsafe function.decode(d2i_PBKDF2PARAM, PBKDF2PARAM_free) { parameters in
                    unsafe cost(rounds: number(parameters.pointee.iter))
                }
            case NID_id_scrypt:
                return unsafe function.decode(d2i_SCRYPT_PARAMS, SCRYPT_PARAMS_free) { parameters in
                    unsafe cost(ofScrypt: parameters)
                }
            default: return nil
            }
        }
    }

    private static func cost(rounds: UInt64?) -> Cost? {
        guard let rounds else { return nil }
        return rounds <= maximumRounds ? .allowed : .tooManyRounds
    }

    private static func cost(ofScrypt parameters: UnsafePointer<SCRYPT_PARAMS>) -> Cost? {
        guard let n = unsafe number(parameters.pointee.costParameter),
            let r = unsafe number(parameters.pointee.blockSize),
            let p = unsafe number(parameters.pointee.parallelizationParameter),
            n > 0, r > 0, p > 0
        else { return nil }
        let (product, productOverflows) = n.multipliedReportingOverflow(by: r)
        let (blocks, blocksOverflow) = product.multipliedReportingOverflow(by: p)
        guard !productOverflows, !blocksOverflow, blocks <= maximumBlocks else {
            return .tooManyRounds
        }
        // None of the three is larger than `blocks`, so nothing overflows.
        return r * (n + p + 2) <= maximumMemory ? .allowed : .tooMuchMemory
    }

    private static func number(_ integer: UnsafePointer<ASN1_INTEGER>?) -> UInt64? {
        var number: UInt64 = 0
        guard let integer = unsafe integer, unsafe ASN1_INTEGER_get_uint64(&number, integer) == 1
        else { return nil }
        return number
    }

    /// An algorithm's NID and the DER form of its parameters, valid as long as the `X509_ALGOR`
    /// from which they were read.
    @safe private struct Algorithm {
        let nid: Int32
        private let parameters: UnsafeBufferPointer<UInt8>

        init?(_ algorithm: UnsafePointer<X509_ALGOR>?) {
            var object: OpaquePointer?
            var type: Int32 = 0
            var value: UnsafeRawPointer?
            guard let algorithm = unsafe algorithm else { return nil }
            unsafe X509_ALGOR_get0(&object, &type, &value, algorithm)
            guard type == V_ASN1_SEQUENCE, let value = unsafe value else { return nil }
            let string = unsafe value.assumingMemoryBound(to: ASN1_STRING.self)
            nid = unsafe OBJ_obj2nid(object)
            unsafe parameters = UnsafeBufferPointer(
                start: ASN1_STRING_get0_data(string), count: Int(ASN1_STRING_length(string)))
        }

        /// The result of `body` for the decoded parameters; nil if they cannot be decoded.
        func decode<Value>(
            _ read: (
                UnsafeMutablePointer<UnsafeMutablePointer<Value>?>?,
                UnsafeMutablePointer<UnsafePointer<UInt8>?>?, Int
            ) -> UnsafeMutablePointer<Value>?,
            _ free: (UnsafeMutablePointer<Value>?) -> Void,
            _ body: (UnsafeMutablePointer<Value>) -> Cost?
        ) -> Cost? {
            var position = unsafe parameters.baseAddress
            guard let value = unsafe read(nil, &position, parameters.count) else { return nil }
            defer { unsafe free(value) }
            return unsafe body(value)
        }
    }
}
