internal import CBLESecSodium

/// Fills `bytes` with random bytes from the system's generator.
public func randomBytes(into bytes: inout MutableSpan<UInt8>) {
    Sodium.start()
    unsafe bytes.withUnsafeMutableBufferPointer { buffer in
        guard let first = buffer.baseAddress else { return }
        unsafe randombytes_buf(first, buffer.count)
    }
}

/// Returns `count` random bytes in memory that is not wiped: for a nonce, a salt or a serial
/// number, not for a key.
public func randomBytes(count: Int) -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: count)
    var span = bytes.mutableSpan
    randomBytes(into: &span)
    return bytes
}
