/// Reads bytes in order; a read beyond the end returns `nil`.
struct ByteReader {
    private let bytes: [UInt8]
    private var position = 0

    init(_ bytes: Span<UInt8>, in range: Range<Int>) { self.bytes = bytes.array(in: range) }

    mutating func byte() -> UInt8? {
        guard position < bytes.count else { return nil }
        defer { position += 1 }
        return bytes[position]
    }

    mutating func bytes(_ count: Int) -> ArraySlice<UInt8>? {
        guard count <= bytes.count - position else { return nil }
        defer { position += count }
        return bytes[position..<position + count]
    }
}

extension Span<UInt8> {
    /// A copy of the bytes in `range`.
    package func array(in range: Range<Int>) -> [UInt8] {
        unsafe extracting(range).withUnsafeBufferPointer { unsafe Array($0) }
    }

    /// A copy of all bytes.
    package var array: [UInt8] { array(in: 0..<count) }
}

extension [UInt8] {
    /// Appends a copy of the bytes of `span` in `range`.
    package mutating func append(_ span: Span<UInt8>, in range: Range<Int>) {
        unsafe span.extracting(range).withUnsafeBufferPointer { unsafe append(contentsOf: $0) }
    }
}
