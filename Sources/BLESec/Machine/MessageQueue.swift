/// Messages in one array, first in, first out. A removed message is released at once.
struct MessageQueue {
    private var messages: [[UInt8]] = []
    private var head = 0

    var isEmpty: Bool { head == messages.count }
    var count: Int { messages.count - head }
    var first: [UInt8]? { isEmpty ? nil : messages[head] }
    mutating func append(_ message: consuming [UInt8]) { messages.append(message) }

    mutating func popFirst() -> [UInt8]? {
        guard !isEmpty else { return nil }
        // Moved out, because a copy would retain and release the message once more.
        var message: [UInt8] = []
        swap(&message, &messages[head])
        head += 1
        if isEmpty {
            messages.removeAll(keepingCapacity: messages.capacity <= 256)
            head = 0
        } else if head >= 64, head * 2 >= messages.count {
            messages.removeFirst(head)
            head = 0
        }
        return message
    }
}
