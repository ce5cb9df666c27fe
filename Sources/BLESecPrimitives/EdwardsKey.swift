internal import CBLESecSodium

/// Checks the points that are public keys of Ed25519 and Ed448 (RFC 8032).
///
/// If a point has small order, anyone can make signatures that its key verifies: no private key is
/// needed.
package enum EdwardsKey {
    /// The length in bytes of a public key of Ed448, which is longer than one of Ed25519.
    package static let longestLength = 57

    /// Whether `key` is the canonical encoding of a point of edwards25519 (RFC 8032 §5.1.2) that is
    /// in the group of prime order, and is not the neutral element.
    package static func isValidEd25519(_ key: [UInt8]) -> Bool {
        guard key.count == 32 else { return false }
        Sodium.start()
        return unsafe crypto_core_ed25519_is_valid_point(key) == 1
    }

    /// Whether `key` has the form of a public key of Ed448 (RFC 8032 §5.2.2), and is not a point of
    /// small order: the coordinate y is less than the field's prime, and is not 0, 1 or -1.
    ///
    /// The cofactor of edwards448 is 4 (RFC 8032 §5.2), so a point of small order has the order 1, 2
    /// or 4. These points are (0, 1); (0, -1); and (1, 0) and (-1, 0). Bytes that encode no point of
    /// the curve may pass, since they verify no signature.
    package static func isValidEd448(_ key: [UInt8]) -> Bool {
        // The highest bit of the last byte is the sign of the coordinate x.
        guard key.count == longestLength, key[56] & 0x7F == 0 else { return false }
        let y = Array(key.dropLast())
        // The field is that of X448, whose coordinates are little-endian as well.
        return Curve.x448.isCanonical(y.span) && !smallOrderCoordinates.contains(y)
    }

    /// The coordinates y of the points of small order of edwards448, little-endian: 0, 1 and -1.
    private static let smallOrderCoordinates: [[UInt8]] = {
        let zero = [UInt8](repeating: 0, count: 56)
        var one = zero
        one[0] = 1
        var minusOne = [UInt8](repeating: 0xFF, count: 56)
        minusOne[0] = 0xFE
        minusOne[28] = 0xFE
        return [zero, one, minusOne]
    }()
}
