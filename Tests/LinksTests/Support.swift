import Links
import Testing

/// Notes what a link told.
final class Recorder: LinkHandler {
    var readable = 0
    var writable = 0
    var hangUps = 0
    var whenReadable: () -> Void = {}
    var whenWritable: () -> Void = {}

    func linkIsReadable() {
        readable += 1
        whenReadable()
    }

    func linkIsWritable() {
        writable += 1
        whenWritable()
    }

    func linkDidHangUp() { hangUps += 1 }
}

extension Link {
    /// Sends an array.
    func send(_ bytes: [UInt8]) throws(LinkError) -> Int {
        try send(bytes.span)
    }

    /// Receives up to `capacity` bytes.
    func receive(_ capacity: Int = 65_536) throws(LinkError) -> (
        bytes: [UInt8], outcome: LinkReceive
    ) {
        var outcome = LinkReceive.wouldBlock
        let bytes = try [UInt8](capacity: capacity) { buffer throws(LinkError) in
            outcome = try receive(into: &buffer)
        }
        return (bytes, outcome)
    }
}

/// Runs `body` with a loop of its own, on that loop, and ends the loop.
func withLoop(
    clock: LoopClock = .system, _ body: @escaping @Sendable (EventLoop) async throws -> Void
) async throws {
    let loop = EventLoop(name: "test", clock: clock)
    let outcome = await Task(executorPreference: loop) { try await body(loop) }.result
    await loop.shutdown()
    try outcome.get()
}
