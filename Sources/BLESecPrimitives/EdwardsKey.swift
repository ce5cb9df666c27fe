/// Checks the points that are public keys of Ed25519 and Ed448 (RFC 8032).
///
/// If a point has small order, anyone can make signatures that its key verifies: no private key is
/// needed. With any other point, also one that is not in the group of prime order, a signature needs
/// the private key. So it is enough to compare a key with the few points of small order. This takes
/// much less time than a multiplication of the point, which would show its order.
package enum EdwardsKey {
    /// The length in bytes of a public key of Ed448, which is longer than one of Ed25519.
    package static let longestLength = 57

    /// Whether `key` has the form of a public key of Ed25519 (RFC 8032 §5.1.2), and is not a point of
    /// small order. The result may be true for bytes that encode no point of the curve: such a key
    /// verifies no signature.
    ///
    /// The cofactor of edwards25519 is 8 (RFC 8032 §5.1), so a point of small order has the order 1,
    /// 2, 4 or 8. The coordinates y of these points are 1, -1, 0, and two values for the order 8.
    package static func isValidEd25519(_ key: [UInt8]) -> Bool {
        guard key.count == 32 else { return false }
        // The highest bit is the sign of the coordinate x.
        var y = key
        y[31] &= 0x7F
        return Curve.x25519.isCanonical(y.span) && !smallOrderCoordinates25519.contains(y)
    }

    /// Whether `key` has the form of a public key of Ed448 (RFC 8032 §5.2.2), and is not a point of
    /// small order. The result may be true for bytes that encode no point of the curve: such a key
    /// verifies no signature.
    ///
    /// The cofactor of edwards448 is 4 (RFC 8032 §5.2), so a point of small order has the order 1, 2
    /// or 4. These points are (0, 1); (0, -1); and (1, 0) and (-1, 0).
    package static func isValidEd448(_ key: [UInt8]) -> Bool {
        // The highest bit of the last byte is the sign of the coordinate x.
        guard key.count == longestLength, key[56] & 0x7F == 0 else { return false }
        let y = Array(key.dropLast())
        // The field is that of X448, whose coordinates are little-endian as well.
        return Curve.x448.isCanonical(y.span) && !smallOrderCoordinates448.contains(y)
    }

    /// The coordinates y of the points of small order of edwards25519, little-endian.
    private static let smallOrderCoordinates25519: [[UInt8]] = {
        let zero = [UInt8](repeating: 0, count: 32)
        var one = zero
        one[0] = 1
        var minusOne = [UInt8](repeating: 0xFF, count: 32)
        (minusOne[0], minusOne[31]) = (0xEC, 0x7F)
        let orderEight: [[UInt8]] = [
            [
                0x26, 0xE8, 0x95, 0x8F, 0xC2, 0xB2, 0x27, 0xB0, 0x45, 0xC3, 0xF4, 0x89, 0xF2, 0xEF,
                0x98, 0xF0, 0xD5, 0xDF, 0xAC, 0x05, 0xD3, 0xC6, 0x33, 0x39, 0xB1, 0x38, 0x02, 0x88,
                0x6D, 0x53, 0xFC, 0x05,
            ],
            [
                0xC7, 0x17, 0x6A, 0x70, 0x3D, 0x4D, 0xD8, 0x4F, 0xBA, 0x3C, 0x0B, 0x76, 0x0D, 0x10,
                0x67, 0x0F, 0x2A, 0x20, 0x53, 0xFA, 0x2C, 0x39, 0xCC, 0xC6, 0x4E, 0xC7, 0xFD, 0x77,
                0x92, 0xAC, 0x03, 0x7A,
            ],
        ]
        return [zero, one, minusOne] + orderEight
    }()

    /// The coordinates y of the points of small order of edwards448, little-endian: 0, 1 and -1.
    private static let smallOrderCoordinates448: [[UInt8]] = {
        let zero = [UInt8](repeating: 0, count: 56)
        var one = zero
        one[0] = 1
        var minusOne = [UInt8](repeating: 0xFF, count: 56)
        minusOne[0] = 0xFE
        minusOne[28] = 0xFE
        return [zero, one, minusOne]
    }()
}
