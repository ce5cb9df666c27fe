internal import CBLESecSodium

/// Fills `bytes` with randomness from the system's generator.
public func randomBytes(into bytes: inout MutableSpan<UInt8>) {
    Sodium.start()
    unsafe bytes.withUnsafeMutableBufferPointer { buffer in
        guard let first = buffer.baseAddress else { return }
        unsafe randombytes_buf(first, buffer.count)
    }
}

/// `count` random bytes that need not be secret: a tag, a nonce, a session's number.
public func randomBytes(count: Int) -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: count)
    var span = bytes.mutableSpan
    randomBytes(into: &span)
    return bytes
}
