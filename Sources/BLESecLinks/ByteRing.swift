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
    var freeCount: Int { capacity - count }
    var isEmpty: Bool { count == 0 }

    /// Adds bytes at the end; they must fit.
    func append(_ bytes: Span<UInt8>) {
        precondition(bytes.count <= freeCount, "the bytes do not fit")
        let tail = (head + count) % capacity
        let firstCount = min(bytes.count, capacity - tail)
        unsafe bytes.withUnsafeBufferPointer { source in
            guard let source = source.baseAddress else { return }
            unsafe (storage + tail).update(from: source, count: firstCount)
            unsafe storage.update(from: source + firstCount, count: bytes.count - firstCount)
        }
        count += bytes.count
    }

    /// Moves bytes from the front to `buffer`, as many as fit.
    func move(into buffer: inout OutputSpan<UInt8>) {
        let movedCount = min(count, buffer.freeCapacity)
        let firstCount = min(movedCount, capacity - head)
        unsafe buffer.withUnsafeMutableBufferPointer { target, used in
            guard let base = target.baseAddress else { return }
            unsafe (base + used).update(from: storage + head, count: firstCount)
            unsafe (base + used + firstCount).update(
                from: storage, count: movedCount - firstCount)
            used += movedCount
        }
        head = (head + movedCount) % capacity
        count -= movedCount
    }

    func removeAll() {
        head = 0
        count = 0
    }
}
