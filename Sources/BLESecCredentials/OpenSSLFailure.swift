internal import BLESecChannelCore
internal import CBLESecOpenSSL

/// OpenSSL's error queue of this thread.
enum OpenSSLFailure {
    /// Forgets older errors, so that what is read afterwards belongs to the call in between.
    static func clear() { ERR_clear_error() }

    /// The first error since ``clear()``, the one nearest to the cause; the queue is empty after it.
    static func take() -> ChannelError.Underlying? {
        let code = ERR_get_error()
        ERR_clear_error()
        guard code != 0 else { return nil }
        var text = [CChar](repeating: 0, count: 256)
        unsafe ERR_error_string_n(code, &text, text.count)
        let bytes = text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }
        return .openSSL(code: UInt(code), text: String(decoding: bytes, as: UTF8.self))
    }
}
