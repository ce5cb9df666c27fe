/// Why an endpoint ends a link.
package enum DeliveryError: Error, Sendable, Equatable {
    /// The peer broke a rule; the text names the rule.
    case violation(String)
    /// The process has no memory for the rest of a message.
    case noMemory
    /// The peer announced a message that is longer than this side allows.
    case tooLong(announced: Int)
    /// The peer was started again after it had sent its end, and sends more, which the program
    /// cannot take any more.
    case sessionLost
}
