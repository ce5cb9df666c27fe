/// What a ``FaultyLink`` does to what passes through it.
///
/// Bytes and sends are counted from 0, on the side that holds the faulty link.
public enum Fault: Sendable, Hashable {
    /// The link is lost once so many bytes were sent: what comes later never arrives, and both sides
    /// see the end.
    case cut(afterBytes: Int)
    /// The byte at `offset` of what is sent arrives with the bits of `mask` turned over.
    case flip(offset: Int, mask: UInt8)
    /// A send never arrives.
    case drop(sdu: Int)
    /// A send arrives twice.
    case duplicate(sdu: Int)
    /// A send arrives after the one that follows it.
    case swap(sdu: Int)
    /// Each receive returns so many bytes at most.
    case shortReads(Int)
    /// Each receive returns between 1 byte and `upTo`, as the seed says.
    case raggedReads(upTo: Int, seed: UInt64)
    /// Each send takes so many bytes at most, as a byte stream may.
    case shortWrites(Int)
    /// Each send arrives that much later, in order; up to ``FaultyLink/heldBytes`` are on the way.
    case delay(Duration)
}
