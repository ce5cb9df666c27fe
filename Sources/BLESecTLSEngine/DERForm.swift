package import BLESecPrimitives
internal import CBLESecOpenSSL

/// Decodes OpenSSL's values from DER, and encodes them in DER.
package enum DERForm {
    /// A function `d2i_…` of OpenSSL.
    package typealias Decoder = (
        UnsafeMutablePointer<OpaquePointer?>?, UnsafeMutablePointer<UnsafePointer<UInt8>?>?, Int
    ) -> OpaquePointer?

    /// The value that `decode` reads from `bytes`; the caller has to free it. Nil if it cannot be
    /// read, or if other bytes follow it.
    package static func value(
        decodingAllOf bytes: Span<UInt8>, _ decode: Decoder, _ free: (OpaquePointer?) -> Void
    ) -> OpaquePointer? {
        unsafe bytes.withUnsafeBufferPointer { buffer in
            var position = buffer.baseAddress
            guard let value = unsafe decode(nil, &position, buffer.count) else { return nil }
            if unsafe position == buffer.baseAddress.map({ unsafe $0 + buffer.count }) {
                return unsafe value
            }
            unsafe free(value)
            return nil
        }
    }

    /// The private key in a PKCS#8 PrivateKeyInfo; the caller has to free it. Nil if it cannot be
    /// read. OpenSSL wipes its copies of the key when it frees them.
    package static func privateKey(_ info: borrowing SecretBytes) -> OpaquePointer? {
        unsafe info.withUnsafeBytes { buffer in
            var position = buffer.baseAddress
            let info = unsafe d2i_PKCS8_PRIV_KEY_INFO(nil, &position, buffer.count)
            guard let info = unsafe info else { return nil }
            defer { unsafe PKCS8_PRIV_KEY_INFO_free(info) }
            return unsafe EVP_PKCS82PKEY(info)
        }
    }

    /// The bytes that a function `i2d_…` of OpenSSL writes; empty if the function fails. `write`
    /// has to pass its argument to that function. With nil, the function writes nothing and returns
    /// the length.
    package static func bytes(
        _ write: (UnsafeMutablePointer<UnsafeMutablePointer<UInt8>?>?) -> Int32
    ) -> [UInt8] {
        let count = write(nil)
        guard count > 0 else { return [] }
        return unsafe [UInt8](unsafeUninitializedCapacity: Int(count)) { buffer, used in
            var position = buffer.baseAddress
            used = unsafe Int(max(0, write(&position)))
        }
    }
}
