/// A `sockaddr` as bytes, in the layout of its family.
package struct SocketAddress: Hashable, Sendable {
    /// The family (two bytes in the machine's order) and what follows it.
    package var bytes: [UInt8]

    package init(_ bytes: [UInt8]) { self.bytes = bytes }

    /// The two bytes that begin an address of `family`.
    package static func family(_ family: Int32) -> [UInt8] {
        let value = UInt16(truncatingIfNeeded: family)
        let low = UInt8(truncatingIfNeeded: value)
        let high = UInt8(truncatingIfNeeded: value >> 8)
        return UInt16(1).littleEndian == 1 ? [low, high] : [high, low]
    }
}
