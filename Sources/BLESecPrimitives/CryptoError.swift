/// What can go wrong in a primitive.
public enum CryptoError: Error, Sendable, Hashable {
    /// A key, digest or buffer has a length that the algorithm does not have, both in bytes.
    case wrongLength(expected: Int, actual: Int)
    /// A Diffie-Hellman product is all zeros: the peer's public key is a point of low order.
    case lowOrderPoint
    /// The tag does not belong to the ciphertext, key, nonce and additional data.
    case authenticationFailed
    /// A library's function failed although its arguments were right: no memory, or a
    /// configuration of OpenSSL that forbids the algorithm.
    case libraryFailure(function: StaticName)

    /// The name of a C function.
    public struct StaticName: Sendable, Hashable, CustomStringConvertible {
        /// The name itself.
        public let description: String
        init(_ name: String) { description = name }
    }
}

extension CryptoError: CustomStringConvertible {
    /// The error in words.
    public var description: String {
        switch self {
        case .wrongLength(let expected, let actual):
            "\(actual) bytes where the algorithm wants \(expected)"
        case .lowOrderPoint: "the public key is a point of low order"
        case .authenticationFailed: "authentication failed"
        case .libraryFailure(let function): "\(function) failed"
        }
    }
}
