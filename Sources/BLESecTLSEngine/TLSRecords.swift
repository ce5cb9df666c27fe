internal import BLESecChannelCore

/// Finds the records of blesec/1, the channel's own protocol, in the TLS records at the start of a
/// receive buffer.
///
/// TLS application data is a stream: one record of blesec/1 may be spread over several TLS records,
/// or one TLS record may contain several records of blesec/1. The TLS records are decrypted in
/// place, one at a time. The plaintext of an incomplete record of blesec/1 waits in the buffer.
struct TLSRecords {
    /// The length of a TLS record's header in bytes.
    static let headerLength = 5
    /// The greatest length in bytes that a header may announce (RFC 8446 §5.2).
    static let longestCiphertext = (16 << 10) + 256
    /// The size of the length field before a record of blesec/1.
    static let lengthSize = 2
    /// The longest record of blesec/1: the type and the payload.
    static let longestRecord = 1 + Record.maximumPayload
    /// The fewest bytes that ``releaseConsumed(_:)`` lets the caller remove while plaintext waits.
    /// The plaintext first has to be moved behind these bytes; for fewer bytes, the move would cost
    /// more than it gains.
    private static let fewestReleased = 16 << 10

    /// The number of bytes of the buffer that OpenSSL has read.
    private var readCount = 0
    /// The range of the buffer with plaintext that was not returned yet; it ends at `readCount` or
    /// before.
    private var plaintext = 0..<0

    /// The length in bytes of the TLS record at the start of `bytes`, with its header; `nil` if
    /// `bytes` is shorter than the header.
    ///
    /// All records have version 1.2, except that those of a dialer's first ClientHello may have an
    /// older one (RFC 8446 §5.1).
    static func length(_ bytes: Span<UInt8>, isHello: Bool = false) throws(ChannelError) -> Int? {
        // Bytes that cannot begin a TLS 1.3 record are refused without waiting for a header.
        guard bytes.isEmpty || (20...23).contains(bytes[0]) else { throw .malformedRecord }
        guard bytes.count >= headerLength else { return nil }
        guard bytes[1] == 3, isHello || bytes[2] == 3 else { throw .malformedRecord }
        let length = Int(bytes[3]) << 8 | Int(bytes[4])
        guard length <= longestCiphertext else { throw .malformedRecord }
        return headerLength + length
    }

    /// The next record of blesec/1. While it is incomplete, returns ``releaseConsumed(_:)``.
    mutating func next(
        in buffer: inout MutableSpan<UInt8>, _ session: TLSSession
    ) throws(ChannelError) -> OpenedRecord? {
        while true {
            if let record = try takeRecord(buffer.span) { return record }
            guard try readMore(&buffer, session) else { return releaseConsumed(&buffer) }
        }
    }

    /// The content of the next TLS record at the start of `buffer`, for direct mode, which has no
    /// records of blesec/1.
    mutating func nextPiece(
        in buffer: inout MutableSpan<UInt8>, _ session: TLSSession
    ) throws(ChannelError) -> OpenedRecord? {
        guard try readMore(&buffer, session) else { return nil }
        defer { self = TLSRecords() }
        // An empty plaintext reports the end of the stream. Other TLS records without content have
        // no meaning for the caller.
        return OpenedRecord(
            consumed: readCount,
            plaintext: plaintext.isEmpty && !session.isPeerDone ? nil : plaintext)
    }

    /// Opens the next TLS record. Returns false, without a change, while it is incomplete. Throws for
    /// any byte after the peer's `close_notify`.
    private mutating func readMore(
        _ buffer: inout MutableSpan<UInt8>, _ session: TLSSession
    ) throws(ChannelError) -> Bool {
        guard buffer.count == readCount || !session.isPeerDone else {
            throw ChannelError(
                .protocolViolation, "the peer has sent bytes after its close_notify")
        }
        guard let length = try Self.length(buffer.span.extracting(droppingFirst: readCount)),
            buffer.count - readCount >= length
        else { return false }
        let record = readCount..<readCount + length
        let target = plaintext.upperBound
        let count = try unsafe buffer.withUnsafeMutableBufferPointer {
            bytes throws(ChannelError) -> Int in
            guard let base = bytes.baseAddress else { return 0 }
            return try unsafe session.read(base, record: record, to: target)
        }
        readCount = record.upperBound
        plaintext = plaintext.lowerBound..<target + count
        return true
    }

    /// Removes and returns the record of blesec/1 at the start of the plaintext, if it is complete.
    private mutating func takeRecord(_ buffer: Span<UInt8>) throws(ChannelError) -> OpenedRecord? {
        guard plaintext.count >= Self.lengthSize else { return nil }
        let start = plaintext.lowerBound + Self.lengthSize
        let length = Int(buffer[start - 2]) << 8 | Int(buffer[start - 1])
        guard length <= Self.longestRecord else {
            throw ChannelError(.protocolViolation, "the peer's record is too long")
        }
        let end = start + length
        guard end <= plaintext.upperBound else { return nil }
        guard end < plaintext.upperBound else {
            defer { self = TLSRecords() }
            return OpenedRecord(consumed: readCount, plaintext: start..<end)
        }
        readCount -= end
        plaintext = 0..<plaintext.upperBound - end
        return OpenedRecord(consumed: end, plaintext: start..<end)
    }

    /// A result without plaintext, which tells the caller to remove the bytes that OpenSSL has
    /// read, except for the plaintext that waits. `nil` if there are no such bytes. Also `nil` if
    /// plaintext waits and there are fewer than ``fewestReleased`` such bytes.
    private mutating func releaseConsumed(_ buffer: inout MutableSpan<UInt8>) -> OpenedRecord? {
        let used = readCount - plaintext.count
        guard used > 0, plaintext.isEmpty || used >= Self.fewestReleased else { return nil }
        if !plaintext.isEmpty {
            unsafe buffer.withUnsafeMutableBufferPointer { bytes in
                guard let base = bytes.baseAddress else { return }
                unsafe (base + used).update(
                    from: base + plaintext.lowerBound, count: plaintext.count)
            }
        }
        readCount = plaintext.count
        plaintext = 0..<readCount
        return OpenedRecord(consumed: used, plaintext: nil)
    }
}
