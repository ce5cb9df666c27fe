internal import BLESecChannelCore
internal import BLESecLocking

/// Bytes on their way to or from a link, in storage that returns to a pool when no bytes are left.
///
/// An idle channel owns no storage; an active channel borrows storage, usually without allocating.
@safe struct WireBuffer: ~Copyable {
    private let pool: WireBufferPool
    /// The waiting bytes are those from ``head`` up to, but not including, ``tail``.
    private var storage: UnsafeMutableBufferPointer<UInt8>?
    private var head = 0
    private var tail = 0

    init(pool: WireBufferPool) {
        self.pool = pool
        unsafe storage = nil
    }

    deinit { if let storage = unsafe storage { unsafe pool.put(storage) } }

    var count: Int { tail - head }
    var isEmpty: Bool { head == tail }

    /// Lets `body` append at most `limit` bytes. If fewer than `room` bytes are free, throws `full`
    /// without calling `body`.
    mutating func append<Result, Failure: Error>(
        room: Int, atMost limit: Int = .max, orThrow full: @autoclosure () -> Failure,
        _ body: (inout OutputSpan<UInt8>) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        guard room <= pool.size - count else { throw full() }
        let storage = unsafe storageWithRoom(room)
        let free = unsafe UnsafeMutableBufferPointer(
            rebasing: storage[tail...].prefix(max(limit, 0)))
        var span = unsafe OutputSpan(buffer: free, initializedCount: 0)
        let result: Result
        do throws(Failure) {
            result = try body(&span)
        } catch {
            _ = unsafe span.finalize(for: free)
            releaseIfEmpty()
            throw error
        }
        tail += unsafe span.finalize(for: free)
        releaseIfEmpty()
        return result
    }

    /// Lets `body` append bytes; throws `limitExceeded` if fewer than `room` bytes are free.
    mutating func append<Result>(
        room: Int, _ body: (inout OutputSpan<UInt8>) throws(ChannelError) -> Result
    ) throws(ChannelError) -> Result {
        try append(
            room: room,
            orThrow: ChannelError(
                .limitExceeded, "\(room) bytes are more than the channel's buffer has room for"),
            body)
    }

    /// Appends bytes; throws `limitExceeded` if the storage has no space for them.
    mutating func append(_ bytes: [UInt8]) throws(ChannelError) {
        try append(room: bytes.count) { output throws(ChannelError) in
            for byte in bytes { output.append(byte) }
        }
    }

    /// Passes the waiting bytes to `body`, which may change them in place.
    mutating func withBytes<Result, Failure: Error>(
        _ body: (inout MutableSpan<UInt8>) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        guard let storage = unsafe storage else {
            var noBytes = MutableSpan<UInt8>()
            return try body(&noBytes)
        }
        var span = unsafe MutableSpan(_unsafeElements: .init(rebasing: storage[head..<tail]))
        return try body(&span)
    }

    /// Discards the first `count` bytes.
    mutating func consume(_ count: Int) {
        precondition(count <= self.count)
        head += count
        releaseIfEmpty()
    }

    mutating func removeAll() { consume(count) }

    private mutating func storageWithRoom(_ room: Int) -> UnsafeMutableBufferPointer<UInt8> {
        guard let current = unsafe storage else {
            let fresh = unsafe pool.take()
            precondition(fresh.count >= room)
            unsafe storage = fresh
            return unsafe fresh
        }
        if current.count - tail < room {
            unsafe current.baseAddress?.update(
                from: current.baseAddress.unsafelyUnwrapped + head, count: count)
            tail -= head
            head = 0
            precondition(current.count - tail >= room)
        }
        return unsafe current
    }

    private mutating func releaseIfEmpty() {
        guard head == tail, let current = unsafe storage else { return }
        unsafe pool.put(current)
        unsafe storage = nil
        head = 0
        tail = 0
    }
}

/// A pool of equally large pieces of storage for wire buffers, shared by all channels of the
/// process.
final class WireBufferPool: Sendable {
    /// For outgoing bytes: room for an incomplete SDU, a bulk record and control records.
    static let outgoing = WireBufferPool(size: 64 << 10)
    /// For incoming bytes: room for the longest record that is incomplete (all but its last byte),
    /// and for the longest SDU, which is received after it.
    static let incoming = WireBufferPool(size: 144 << 10)
    /// How many unused pieces the pool keeps at most.
    private static let maximumKept = 32
    /// The size of one piece in bytes.
    let size: Int
    private let free = Locked<[Piece]>([])

    @safe private struct Piece: @unchecked Sendable {
        // `@unchecked`: a piece has only one owner at a time.
        let bytes: UnsafeMutableBufferPointer<UInt8>
    }

    init(size: Int) { self.size = size }
    deinit { for piece in free.withLock({ $0 }) { unsafe piece.bytes.deallocate() } }

    /// Takes a piece, which the caller owns until ``put(_:)``; its bytes are undefined.
    func take() -> UnsafeMutableBufferPointer<UInt8> {
        if let piece = free.withLock({ $0.popLast() }) { return unsafe piece.bytes }
        return .allocate(capacity: size)
    }

    func put(_ bytes: UnsafeMutableBufferPointer<UInt8>) {
        let piece = unsafe Piece(bytes: bytes)
        let isKept = free.withLock { pieces in
            guard pieces.count < Self.maximumKept else { return false }
            pieces.append(piece)
            return true
        }
        if !isKept { unsafe bytes.deallocate() }
    }
}
