extension OutputSpan<UInt8> {
    /// Appends a copy of `bytes`, for which there must be room.
    package mutating func append(copying bytes: Span<UInt8>) {
        precondition(bytes.count <= freeCapacity, "no room in the output")
        unsafe bytes.withUnsafeBufferPointer { source in
            guard let first = source.baseAddress else { return }
            unsafe withUnsafeMutableBufferPointer { buffer, count in
                guard let base = buffer.baseAddress else { return }
                unsafe (base + count).initialize(from: first, count: source.count)
                count += source.count
            }
        }
    }
}
