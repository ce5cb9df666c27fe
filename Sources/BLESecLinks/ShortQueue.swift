/// The size of a link's send queue while ``Link/keepsQueueShort`` is true.
package enum ShortQueue {
    /// The payload of a short queue in bytes, unless three SDUs are more. The last SDU waits above
    /// the link, sealed.
    package static let payload = 16 << 10

    /// The payload in bytes that a link takes into its short queue for SDUs of up to `maximumSDU`
    /// bytes: a number of whole SDUs.
    ///
    /// Two SDUs are the least: while one of them is being sent, the program makes the next.
    package static func capacity(maximumSDU: Int) -> Int {
        let count = (payload + maximumSDU - 1) / maximumSDU
        return max(2, count - 1) * maximumSDU
    }
}
