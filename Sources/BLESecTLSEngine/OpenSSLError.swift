package import BLESecChannelCore
internal import CBLESecOpenSSL

/// OpenSSL's error queue of this thread.
package enum OpenSSLError {
    /// Empties the queue, which is empty as a rule: to look is much cheaper than to clear.
    package static func clear() {
        if ERR_peek_error() != 0 { ERR_clear_error() }
    }

    /// The first error since the queue was cleared, the one nearest to the cause; empties the queue.
    package static func take() -> (code: UInt, underlying: ChannelError.Underlying)? {
        take(ERR_peek_error())
    }

    /// The last error, which is a call's own even where nobody cleared the queue before it; empties the
    /// queue.
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
