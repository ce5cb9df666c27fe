/// A buffer of records, in storage that is allocated once. Bytes are appended at its end, and
/// removed at its beginning.
@safe struct RecordBuffer: ~Copyable {
    private let storage: UnsafeMutableBufferPointer<UInt8>
    private var head = 0
    private var tail = 0

    init(capacity: Int) {
        unsafe storage = .allocate(capacity: capacity)
        unsafe storage.initialize(repeating: 0)
    }

    deinit { unsafe storage.deallocate() }

    /// The number of bytes that were appended and not yet removed.
    var count: Int { tail - head }
    var isEmpty: Bool { head == tail }

    /// Gives `body` the free space, of at least `room` bytes, and appends what `body` writes there.
    mutating func append<Result, Failure: Error>(
        room: Int, _ body: (inout OutputSpan<UInt8>) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        if unsafe head == tail || storage.count - tail < room { compact() }
        unsafe precondition(storage.count - tail >= room, "the buffer is too small")
        let free = unsafe UnsafeMutableBufferPointer(rebasing: storage[tail...])
        var span = unsafe OutputSpan(buffer: free, initializedCount: 0)
        let result: Result
        do throws(Failure) {
            result = try body(&span)
        } catch {
            _ = unsafe span.finalize(for: free)
            throw error
        }
        tail += unsafe span.finalize(for: free)
        return result
    }

    /// Passes the bytes that are not yet removed to `body`, which may change them in place.
    mutating func withBytes<Result, Failure: Error>(
        _ body: (inout MutableSpan<UInt8>) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        var span = unsafe MutableSpan(
            _unsafeElements: UnsafeMutableBufferPointer(rebasing: storage[head..<tail]))
        return try body(&span)
    }

    mutating func consume(_ count: Int) {
        precondition(count <= self.count)
        head += count
    }

    private mutating func compact() {
        if head < tail, let base = unsafe storage.baseAddress {
            unsafe base.update(from: base + head, count: count)
        }
        tail -= head
        head = 0
    }
}
