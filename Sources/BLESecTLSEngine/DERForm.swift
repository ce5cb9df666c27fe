/// Encodes OpenSSL's values.
package enum DERForm {
    /// The bytes that a function `i2d_…` of OpenSSL writes: `write` calls it, with nil for the
    /// length alone. Empty if it fails.
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
