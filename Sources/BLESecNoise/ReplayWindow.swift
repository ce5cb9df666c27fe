/// Records which nonces were received, similar to RFC 6479.
///
/// A ring of bitmap words moves with the highest nonce. Whole words are cleared at a time, so an
/// update needs no shifts. The window covers 1,984 nonces: the highest received and those below it.
public struct ReplayWindow: Sendable {
    private static let wordBits: UInt64 = 64
    private static let wordCount: UInt64 = 32
    /// The number of nonces in the window, including the highest nonce received.
    public static let size: UInt64 = (wordCount - 1) * wordBits

    /// The highest nonce plus one; 0 if none was received.
    private var next: UInt64 = 0
    private var words = [UInt64](repeating: 0, count: Int(wordCount))

    /// Makes a window that has no nonces yet.
    public init() {}

    /// Whether `nonce` is new: it was not received before, and is not below the window. False for
    /// 2^64 − 1, which no message may have.
    ///
    /// A cheap check before decryption; it does not replace `accept` after decryption.
    public func isNew(_ nonce: UInt64) -> Bool {
        guard nonce < UInt64.max else { return false }
        if nonce >= next { return true }
        if next - nonce > Self.size { return false }
        return words[Self.ringIndex(of: nonce)] & Self.bit(of: nonce) == 0
    }

    /// Records the nonce of a message that was decrypted.
    ///
    /// - Returns: false if the nonce is not new; the caller must then drop the message.
    public mutating func accept(_ nonce: UInt64) -> Bool {
        guard isNew(nonce) else { return false }
        if nonce >= next {
            // Clear the words after the word of the old highest nonce, up to the word of `nonce`:
            // their bits belong to nonces that have left the window.
            let oldWord = next == 0 ? 0 : (next - 1) / Self.wordBits
            let clearedCount = min(nonce / Self.wordBits - oldWord, Self.wordCount)
            for step in 0..<clearedCount { words[Int((oldWord + 1 + step) % Self.wordCount)] = 0 }
            next = nonce + 1
        }
        words[Self.ringIndex(of: nonce)] |= Self.bit(of: nonce)
        return true
    }

    private static func ringIndex(of nonce: UInt64) -> Int { Int(nonce / wordBits % wordCount) }
    private static func bit(of nonce: UInt64) -> UInt64 { 1 << (nonce % wordBits) }
}
