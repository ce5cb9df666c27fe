/// The Certificate message of TLS 1.3 (RFC 8446 §4.4.2), as it is before OpenSSL parses it.
enum CertificateMessage {
    /// The length of the header of a handshake message: its type (1 byte), and the length of its
    /// body (3 bytes).
    static let headerLength = 4

    /// How many certificates a message with its header has; nil if the lengths in the message do
    /// not fit.
    static func certificateCount(in message: [UInt8]) -> Int? {
        var rest = message[...]
        /// Takes a length of `lengthBytes` bytes, and then as many bytes as this length says.
        func take(lengthBytes: Int) -> ArraySlice<UInt8>? {
            guard rest.count >= lengthBytes else { return nil }
            let length = rest.prefix(lengthBytes).reduce(0) { $0 << 8 | Int($1) }
            rest = rest.dropFirst(lengthBytes)
            guard rest.count >= length else { return nil }
            defer { rest = rest.dropFirst(length) }
            return rest.prefix(length)
        }
        rest = rest.dropFirst(1)
        guard let body = take(lengthBytes: 3), rest.isEmpty else { return nil }
        rest = body
        guard take(lengthBytes: 1) != nil, let list = take(lengthBytes: 3), rest.isEmpty else {
            return nil
        }
        rest = list
        var count = 0
        while !rest.isEmpty {
            guard take(lengthBytes: 3) != nil, take(lengthBytes: 2) != nil else { return nil }
            count += 1
        }
        return count
    }
}
