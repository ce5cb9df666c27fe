internal import CBLESecSodium

/// Fills `bytes` with random bytes from the system's generator.
public func randomBytes(into bytes: inout MutableSpan<UInt8>) {
    Sodium.start()
    unsafe bytes.withUnsafeMutableBufferPointer { buffer in
        guard let first = buffer.baseAddress else { return }
        unsafe randombytes_buf(first, buffer.count)
    }
}

/// Returns `count` random bytes that need not be secret, for a tag, a nonce, or a session number.
public func randomBytes(count: Int) -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: count)
    var span = bytes.mutableSpan
    randomBytes(into: &span)
    return bytes
}
