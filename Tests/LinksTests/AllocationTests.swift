import BLESecLinks
import BLESecLocking
import BLESecTesting
import CAllocationCounter
import Testing

/// Sends back what it receives, and re-arms its timer each time, as a channel does. After `warmUp`
/// rounds it counts its thread's allocations during `rounds` rounds.
private final class Echo: LinkHandler, TimerHandler {
    private let link: any Link
    private let warmUp: Int
    private let rounds: Int
    private var timer: LoopTimer?
    private var count = 0
    private var before: UInt64 = 0
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
        count += 1
        if count == warmUp { before = blesec_allocations() }
        if count == warmUp + rounds {
            allocations = blesec_allocations() - before
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
        "a thousand round trips need no allocation in links, readiness, timers and the loop",
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
            // `echoes[1]` is finished first. The count of `echoes[0]` also includes the allocations
            // for the close of `echoes[1]`.
            #expect(echoes[1].allocations == 0)
        }
    }
}
