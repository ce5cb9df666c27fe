/// Why an endpoint ends a link.
package enum DeliveryError: Error, Sendable, Equatable {
    /// The peer broke a rule; the text names the rule.
    case violation(String)
    /// The process has no memory for the rest of a message.
    case noMemory
    /// The peer announced a message that is longer than this side allows.
    case tooLong(announced: Int)
    /// The peer has lost its state after its end, and now sends a message or opens a stream. This
    /// side's program can take nothing that follows the end.
    case sessionLost
}
