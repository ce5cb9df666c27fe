internal import CBLESecSodium

/// The prime-order group ristretto255 (RFC 9496), in libsodium: elements and scalars of 32 bytes.
public enum Ristretto255 {
    /// The length of an encoded element, and of a scalar, in bytes.
    public static let length = 32
    /// The number of bytes that ``element(from:)`` takes.
    public static let uniformLength = 64

    /// The element to which 64 uniform bytes are mapped (RFC 9496 §4.3.4), encoded.
    public static func element(from uniform: borrowing SecretBytes) -> SecretBytes {
        precondition(uniform.count == uniformLength, "an element is derived from 64 bytes")
        Sodium.start()
        let element = SecretBytes(count: length)
        unsafe _ = crypto_core_ristretto255_from_hash(element.start, uniform.start)
        return element
    }

    /// A random scalar between 1 and the group's order - 1.
    public static func randomScalar() -> SecretBytes {
        Sodium.start()
        let scalar = SecretBytes(count: length)
        unsafe crypto_core_ristretto255_scalar_random(scalar.start)
        return scalar
    }

    /// The product of a scalar and an encoded element; nil if the bytes do not encode an element
    /// (RFC 9496 §4.3.1), or if the product is the identity.
    public static func product(
        of scalar: borrowing SecretBytes, and element: Span<UInt8>
    ) -> SecretBytes? {
        guard scalar.count == length, element.count == length else { return nil }
        Sodium.start()
        let product = SecretBytes(count: length)
        let status = unsafe element.withUnsafeBufferPointer { element in
            guard let element = element.baseAddress else { return Int32(-1) }
            return unsafe crypto_scalarmult_ristretto255(product.start, scalar.start, element)
        }
        guard status == 0 else { return nil }
        return consume product
    }
}
