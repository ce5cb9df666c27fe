/// A fault that a ``FaultyLink`` applies to the data that passes through it.
///
/// The bytes and the SDUs that the faulty link sends are counted from 0. Each send carries one SDU.
public enum Fault: Sendable, Hashable {
    /// The link is lost after the given number of sent bytes: later bytes never arrive, nor do
    /// earlier bytes that still wait in the faulty link, and both sides see the end.
    case cut(afterBytes: Int)
    /// The sent byte at `offset` arrives with the bits of `mask` inverted.
    case flip(offset: Int, mask: UInt8)
    /// The SDU with this number never arrives.
    case drop(sdu: Int)
    /// The SDU with this number arrives twice.
    case duplicate(sdu: Int)
    /// The SDU with this number arrives after the SDU that follows it, or when the direction ends.
    case swap(sdu: Int)
    /// Each receive returns at most the given number of bytes; less than 1 counts as 1.
    case shortReads(Int)
    /// Each receive returns at most a random number of bytes, from 1 to `upTo`. `seed` determines
    /// the sequence of these numbers.
    case raggedReads(upTo: Int, seed: UInt64)
    /// Each send takes at most the given number of bytes, as a byte-stream socket may do; less than 1
    /// counts as 1.
    case shortWrites(Int)
    /// Each SDU arrives later by the given duration, in order. While ``FaultyLink/heldBytes`` or
    /// more bytes wait in the link, a send takes nothing.
    case delay(Duration)
}
