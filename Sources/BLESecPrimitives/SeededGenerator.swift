/// A deterministic pseudorandom generator (SplitMix64): the same seed gives the same numbers on
/// every machine.
///
/// Only for tests and test vectors: anyone who knows the seed or one number can compute all later
/// numbers.
public struct SeededGenerator: RandomNumberGenerator, Sendable {
    private var state: UInt64

    /// Begins the sequence of `seed`.
    public init(seed: UInt64) { state = seed }

    /// The next 64 bits.
    public mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }

    /// The next `count` bytes of the sequence. Bytes of the last number that are not needed are
    /// dropped.
    public mutating func bytes(_ count: Int) -> [UInt8] {
        [UInt8](capacity: count) { output in
            while output.count < count {
                var word = next()
                for _ in 0..<min(8, count - output.count) {
                    output.append(UInt8(truncatingIfNeeded: word))
                    word >>= 8
                }
            }
        }
    }
}
