/// An error of a cryptographic primitive.
public enum CryptoError: Error, Sendable, Hashable {
    /// The length of a key, digest or buffer does not fit the algorithm; both values are in bytes.
    case wrongLength(expected: Int, actual: Int)
    /// A Diffie-Hellman product is all zeros: the peer's public key is a point of low order.
    case lowOrderPoint
    /// The tag does not match the ciphertext, key, nonce and additional data.
    case authenticationFailed
    /// A library function failed although its arguments were valid: no memory, or a configuration
    /// of OpenSSL without X448.
    case libraryFailure(function: FunctionName)

    /// The name of a C function.
    public struct FunctionName: Sendable, Hashable, CustomStringConvertible {
        /// The name as text.
        public let description: String
        init(_ name: String) { description = name }
    }
}

extension CryptoError: CustomStringConvertible {
    /// The error as text.
    public var description: String {
        switch self {
        case .wrongLength(let expected, let actual):
            "\(actual) bytes where the algorithm needs \(expected)"
        case .lowOrderPoint: "the public key is a point of low order"
        case .authenticationFailed: "authentication failed"
        case .libraryFailure(let function): "\(function) failed"
        }
    }
}
