/// The size of a link's send queue while ``Link/keepsQueueShort`` is true.
package enum ShortQueue {
    /// The payload of a short queue in bytes, unless two SDUs are more.
    package static let payload = 16 << 10

    /// The payload in bytes of a short queue for SDUs of up to `maximumSDU` bytes.
    ///
    /// Two SDUs are the least: while one of them is being sent, the program makes the next.
    package static func capacity(maximumSDU: Int) -> Int { max(payload, 2 * maximumSDU) }
}
