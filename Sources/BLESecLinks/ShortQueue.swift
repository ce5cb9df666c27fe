/// The size of a link's send queue while ``Link/keepsQueueShort`` is true.
package enum ShortQueue {
    /// How many bytes may be on their way while the queue is short. The limit in force is this
    /// value rounded up to whole SDUs, and at least three SDUs. One of them is sealed and waits
    /// above the link, the others are in the link's queue.
    package static let payload = 16 << 10

    /// The payload in bytes that a link takes into its short queue for SDUs of up to `maximumSDU`
    /// bytes: a number of whole SDUs.
    ///
    /// The result is at least two SDUs, so that the program can make the next SDU while one is
    /// being sent.
    package static func capacity(maximumSDU: Int) -> Int {
        let total = (payload + maximumSDU - 1) / maximumSDU
        let inLink = max(2, total - 1)
        return inLink * maximumSDU
    }
}
