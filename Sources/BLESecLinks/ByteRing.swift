/// A queue of bytes in memory of a fixed size.
///
/// Each call copies at most two pieces and checks its bounds, so that callers need no unsafe code.
@safe final class ByteRing {
    private let storage: UnsafeMutablePointer<UInt8>
    private let capacity: Int
    private var head = 0
    private(set) var count = 0

    init(capacity: Int) {
        self.capacity = capacity
        unsafe storage = .allocate(capacity: capacity)
    }

    deinit { unsafe storage.deallocate() }

    /// The number of bytes that still fit.
    var free: Int { capacity - count }
    var isEmpty: Bool { count == 0 }

    /// Adds bytes at the end; they must fit.
    func append(_ bytes: Span<UInt8>) {
        precondition(bytes.count <= free, "the bytes do not fit")
        let tail = (head + count) % capacity
        let first = min(bytes.count, capacity - tail)
        unsafe bytes.withUnsafeBufferPointer { source in
            guard let source = source.baseAddress else { return }
            unsafe (storage + tail).update(from: source, count: first)
            unsafe storage.update(from: source + first, count: bytes.count - first)
        }
        count += bytes.count
    }

    /// Moves bytes from the front to `buffer`, as many as fit.
    func move(into buffer: inout OutputSpan<UInt8>) {
        let moved = min(count, buffer.freeCapacity)
        let first = min(moved, capacity - head)
        unsafe buffer.withUnsafeMutableBufferPointer { target, used in
            guard let base = target.baseAddress else { return }
            unsafe (base + used).update(from: storage + head, count: first)
            unsafe (base + used + first).update(from: storage, count: moved - first)
            used += moved
        }
        head = (head + moved) % capacity
        count -= moved
    }

    func removeAll() {
        head = 0
        count = 0
    }
}
