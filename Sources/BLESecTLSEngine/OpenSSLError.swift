package import BLESecChannelCore
internal import CBLESecOpenSSL

/// OpenSSL's error queue of the current thread.
package enum OpenSSLError {
    /// Empties the queue. It is usually empty already, and checking costs much less than clearing.
    package static func clear() {
        if ERR_peek_error() != 0 { ERR_clear_error() }
    }

    /// The first error since the queue was cleared, which is nearest to the cause; empties the
    /// queue.
    package static func take() -> (code: UInt, underlying: ChannelError.Underlying)? {
        take(ERR_peek_error())
    }

    /// The last error, which belongs to the last call even if nobody cleared the queue before it;
    /// empties the queue.
    package static func takeLast() -> (code: UInt, underlying: ChannelError.Underlying)? {
        take(ERR_peek_last_error())
    }

    private static func take(_ code: UInt) -> (code: UInt, underlying: ChannelError.Underlying)? {
        ERR_clear_error()
        guard code != 0 else { return nil }
        var text = [CChar](repeating: 0, count: 256)
        unsafe ERR_error_string_n(code, &text, text.count)
        let bytes = text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }
        return (code, .openSSL(code: code, text: String(decoding: bytes, as: UTF8.self)))
    }
}
