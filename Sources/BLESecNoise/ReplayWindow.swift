/// Which nonces of a receiving direction have been there, in the manner of RFC 6479.
///
/// A ring of bitmap words slides with the highest nonce; whole words are cleared at a time, so an
/// update costs no shifting. The window covers the last 1,984 nonces at least.
public struct ReplayWindow: Sendable {
    private static let wordBits: UInt64 = 64
    private static let wordCount: UInt64 = 32

    /// How far behind the highest nonce a message may come, in nonces.
    public static let size: UInt64 = (wordCount - 1) * wordBits

    /// One above the highest nonce seen; 0 when none was.
    private var next: UInt64 = 0
    private var words = [UInt64](repeating: 0, count: Int(wordCount))

    /// A window that has seen nothing.
    public init() {}

    /// Whether `nonce` is new: neither seen before nor too far behind to tell.
    ///
    /// Cheap, and of use before decrypting; only `accept` after it counts.
    public func isNew(_ nonce: UInt64) -> Bool {
        guard nonce < UInt64.max else { return false }
        if nonce >= next { return true }
        if next - nonce > Self.size { return false }
        return words[Self.word(of: nonce)] & Self.bit(of: nonce) == 0
    }

    /// Takes note of the nonce of a message that has been decrypted.
    ///
    /// - Returns: false for one that is not new; the message has to be dropped then.
    public mutating func accept(_ nonce: UInt64) -> Bool {
        guard isNew(nonce) else { return false }
        if nonce >= next {
            // The words between the old highest nonce and this one hold nonces of a round ago.
            let current = next == 0 ? 0 : (next - 1) / Self.wordBits
            let ahead = min(nonce / Self.wordBits - current, Self.wordCount)
            for step in 0..<ahead {
                words[Int((current + 1 + step) % Self.wordCount)] = 0
            }
            next = nonce + 1
        }
        words[Self.word(of: nonce)] |= Self.bit(of: nonce)
        return true
    }

    private static func word(of nonce: UInt64) -> Int { Int(nonce / wordBits % wordCount) }
    private static func bit(of nonce: UInt64) -> UInt64 { 1 << (nonce % wordBits) }
}
