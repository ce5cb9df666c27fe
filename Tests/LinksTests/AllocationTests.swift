import BLESecLinks
import BLESecLocking
import BLESecTesting
import CAllocationCounter
import Testing

/// Sends back what it receives, and uses its timer and `wantsWrite` as a channel does. After
/// `warmUp` calls of `linkIsReadable`, it counts its thread's allocations during the next `rounds`
/// calls, and then closes its link.
private final class Echo: LinkHandler, TimerHandler {
    private let link: any Link
    private let warmUp: Int
    private let rounds: Int
    private var timer: LoopTimer?
    private var readableCalls = 0
    private var allocationsBefore: UInt64 = 0
    private var buffer = [UInt8](repeating: 0, count: 8_192)
    private(set) var allocations: UInt64?

    init(_ link: any Link, warmUp: Int, rounds: Int) {
        (self.link, self.warmUp, self.rounds) = (link, warmUp, rounds)
    }

    func start() {
        timer = LoopTimer(loop: link.loop, handler: self)
        link.setHandler(self)
        link.wantsRead = true
    }

    func linkIsReadable() {
        timer?.arm(in: .seconds(100))
        readableCalls += 1
        if readableCalls == warmUp { allocationsBefore = blesec_allocations() }
        if readableCalls == warmUp + rounds {
            allocations = blesec_allocations() - allocationsBefore
            timer?.disarm()
            return link.close()
        }
        guard let received = try? receive() else { return link.close() }
        link.wantsWrite = true
        link.wantsWrite = false
        let bytes = buffer
        let span = bytes.span
        _ = try? link.send(span.extracting(first: received))
    }

    func linkIsWritable() {}
    func linkDidHangUp() {}
    func timerFired(_ timer: LoopTimer) {}

    private func receive() throws(LinkError) -> Int {
        try unsafe buffer.withUnsafeMutableBufferPointer { memory throws(LinkError) in
            var span = unsafe OutputSpan(buffer: memory, initializedCount: 0)
            _ = try link.receive(into: &span)
            return unsafe span.finalize(for: memory)
        }
    }
}

@Suite struct AllocationTests {
    @Test(
        "a thousand round trips allocate nothing in links, timers and the loop",
        .enabled(if: blesec_counts_allocations()), arguments: ["memory", "stream", "seqpacket"])
    func roundTrips(_ kind: String) async throws {
        try await withLoop { loop in
            let (a, b): (any Link, any Link) =
                switch kind {
                case "memory": MemoryLink.pair(loop: loop)
                case "stream": try await SocketLink.pair(.stream, loop: loop)
                default: try await SeqpacketPair.make(loop: loop)
                }
            let echoes = [a, b].map { Echo($0, warmUp: 100, rounds: 1_000) }
            for echo in echoes { echo.start() }
            _ = try a.send([UInt8](repeating: 1, count: 1_000).span)
            await loop.settle()
            // Only `echoes[1]` is checked: it finishes first, so the count of `echoes[0]` includes
            // the allocations of the close by `echoes[1]`.
            #expect(echoes[1].allocations == 0)
        }
    }
}
