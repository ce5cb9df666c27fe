internal import BLESec
internal import BLESecLocking

/// Reads the bytes of a source, such as standard input, line by line.
final class LineReader: Sendable {
    /// The longest line, in bytes; a longer line is split between two characters, and each piece
    /// counts as a line.
    static let maximumLength = 16 << 10

    private struct State {
        var bytes: [UInt8] = []
        /// The number of leading bytes known to contain no line feed.
        var searchedCount = 0
        var hasEnded = false
    }

    private let state = Locked(State())
    private let source: @Sendable () async throws(ChannelError) -> [UInt8]?

    /// Reads lines from the pieces that `source` returns, until it returns nil.
    init(_ source: @escaping @Sendable () async throws(ChannelError) -> [UInt8]?) {
        self.source = source
    }

    /// The next line without its line end; nil after the last line. Only one task at a time may
    /// call this method.
    func next() async throws(ChannelError) -> [UInt8]? {
        while true {
            if let line = state.withLock({ Self.takeLine(&$0) }) { return line }
            if state.withLock({ $0.hasEnded }) { return nil }
            let piece = try await source()
            state.withLock { state in
                if let piece { state.bytes += piece } else { state.hasEnded = true }
            }
        }
    }

    private static func takeLine(_ state: inout State) -> [UInt8]? {
        let end = state.bytes[state.searchedCount...].firstIndex(of: UInt8(ascii: "\n"))
        var length = end ?? state.bytes.count
        // A carriage return before the line feed belongs to the line end. If the last byte so far is a
        // carriage return, a line feed may follow.
        if end != nil || !state.hasEnded, state.bytes[..<length].last == UInt8(ascii: "\r") {
            length -= 1
        }
        guard end != nil || length > maximumLength || (state.hasEnded && length > 0) else {
            state.searchedCount = state.bytes.count
            return nil
        }
        var taken = min(length, maximumLength)
        if taken < length {
            // A character of UTF-8 has at most four bytes. All bytes but the first begin with the
            // bits 10.
            taken = (taken - 3...taken).last { state.bytes[$0] & 0xC0 != 0x80 } ?? taken
        }
        let line = Array(state.bytes[..<taken])
        if let end, taken == length {
            state.bytes.removeFirst(end + 1)
        } else {
            state.bytes.removeFirst(taken)
        }
        state.searchedCount = 0
        return line
    }
}
