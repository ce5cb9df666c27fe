/// The size of a link's send queue while ``Link/keepsQueueShort`` is true.
package enum ShortQueue {
    /// The payload of a short queue, in bytes. If three SDUs have more bytes, the queue holds three
    /// SDUs. One SDU of the queue is encrypted and waits above the link. The link takes the others.
    package static let payload = 16 << 10

    /// The payload in bytes that a link takes into its short queue for SDUs of up to `maximumSDU`
    /// bytes: a number of whole SDUs.
    ///
    /// It is at least two SDUs, so that the program can make the next SDU while one is being sent.
    package static func capacity(maximumSDU: Int) -> Int {
        let count = (payload + maximumSDU - 1) / maximumSDU
        return max(2, count - 1) * maximumSDU
    }
}
