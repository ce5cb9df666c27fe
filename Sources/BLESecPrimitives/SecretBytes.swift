internal import CBLESecSodium

/// Secret bytes, such as a key, a shared secret, or a passphrase.
///
/// They are stored in guarded memory (see `SecretArena`) and cannot be copied implicitly. Their
/// description is `<redacted>`, they are compared in constant time, and they are wiped when the
/// lifetime of the value ends.
@safe public struct SecretBytes: ~Copyable, @unchecked Sendable {
    // Unchecked: only this value owns the pointer, and the value cannot be copied.
    private let slot: SecretSlot
    /// The number of bytes.
    public let count: Int

    /// Makes `count` zero bytes.
    public init(count: Int) {
        precondition(count >= 0, "a negative number of bytes")
        self.count = count
        slot = SecretArena.allocate(count: count)
    }

    /// Makes `count` random bytes.
    public init(randomCount count: Int) {
        self.init(count: count)
        unsafe randombytes_buf(start, count)
    }

    /// Copies `bytes`; the caller has to wipe the original.
    public init(copying bytes: Span<UInt8>) {
        self.init(count: bytes.count)
        unsafe bytes.withUnsafeBufferPointer { source in
            guard let first = source.baseAddress else { return }
            unsafe start.update(from: first, count: source.count)
        }
    }

    deinit { slot.release() }

    /// A pointer to the first byte, for C functions.
    var start: UnsafeMutablePointer<UInt8> { unsafe slot.start }

    /// The bytes, for reading in place.
    public var span: Span<UInt8> {
        @_lifetime(borrow self) borrowing get {
            let span = unsafe Span(_unsafeStart: UnsafePointer(start), count: count)
            return unsafe _overrideLifetime(span, borrowing: self)
        }
    }

    /// The bytes, for writing in place.
    public var mutableSpan: MutableSpan<UInt8> {
        @_lifetime(&self) mutating get {
            let span = unsafe MutableSpan(_unsafeStart: start, count: count)
            return unsafe _overrideLifetime(span, mutating: &self)
        }
    }

    /// Runs `body` with the bytes, for a C function; the pointer is valid only during the call.
    public borrowing func withUnsafeBytes<R: ~Copyable, E: Error>(
        _ body: (UnsafeBufferPointer<UInt8>) throws(E) -> R
    ) throws(E) -> R {
        unsafe try body(UnsafeBufferPointer(start: start, count: count))
    }

    /// Runs `body` with writable bytes, for a C function; the pointer is valid only during the
    /// call.
    public mutating func withUnsafeMutableBytes<R: ~Copyable, E: Error>(
        _ body: (UnsafeMutableBufferPointer<UInt8>) throws(E) -> R
    ) throws(E) -> R {
        unsafe try body(UnsafeMutableBufferPointer(start: start, count: count))
    }

    /// Copies `count` bytes of `other`, beginning at its byte `offset`, to the start of this value.
    public mutating func copy(from other: borrowing SecretBytes, at offset: Int, count: Int) {
        precondition(
            offset >= 0 && count >= 0 && count <= self.count && offset + count <= other.count,
            "the range is not inside the secrets")
        unsafe start.update(from: other.start + offset, count: count)
    }

    /// Sets every byte to zero; the optimizer cannot remove this.
    public mutating func wipe() { unsafe sodium_memzero(start, count) }

    /// Whether both contain the same bytes. The time depends only on their lengths.
    public borrowing func isEqual(to other: borrowing SecretBytes) -> Bool {
        guard count == other.count else { return false }
        return unsafe sodium_memcmp(start, other.start, count) == 0
    }

    /// `<redacted>`, always.
    public var description: String { "<redacted>" }
}

/// Whether `a` and `b` contain the same bytes. The time depends only on their lengths.
public func constantTimeEqual(_ a: Span<UInt8>, _ b: Span<UInt8>) -> Bool {
    guard a.count == b.count else { return false }
    guard !a.isEmpty else { return true }
    return unsafe a.withUnsafeBufferPointer { left in
        unsafe b.withUnsafeBufferPointer { right in
            unsafe sodium_memcmp(left.baseAddress, right.baseAddress, left.count) == 0
        }
    }
}
