/// SHA-256 of the concatenated `pieces`: 32 bytes.
public func sha256(_ pieces: [UInt8]...) -> [UInt8] {
    var context = HashContext(.sha256)
    for piece in pieces { context.update(piece.span) }
    return context.finished()
}

/// SHA-256 of `bytes`: 32 bytes.
public func sha256(_ bytes: Span<UInt8>) -> [UInt8] {
    var context = HashContext(.sha256)
    context.update(bytes)
    return context.finished()
}

extension HashContext {
    /// Returns the digest as an array, and begins a new digest.
    public mutating func finished() -> [UInt8] {
        var digest = [UInt8](repeating: 0, count: algorithm.digestLength)
        var span = digest.mutableSpan
        finish(into: &span)
        return digest
    }

    /// The digest of the bytes that were added so far; more can be added afterwards.
    public func finishedSoFar() -> [UInt8] {
        var output = [UInt8](repeating: 0, count: algorithm.digestLength)
        unsafe output.withUnsafeMutableBufferPointer { buffer in
            if let start = buffer.baseAddress { unsafe copyDigest(into: start) }
        }
        return output
    }
}
