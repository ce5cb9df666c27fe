import BLESec
import Testing

@testable import blesec_bench

@Suite struct ResponderTests {
    @Test(
        "a peer that asks for exactly-once delivery is refused: the connection would wait for ever for another link"
    )
    func exactlyOnce() async throws {
        let loop = EventLoop(name: "responder")
        let (peer, link) = await loop.run { MemoryLink.pair(loop: loop) }
        let outcome = await Task(executorPreference: loop) {
            try await LinkPreface.send(.exactlyOnce, over: peer)
            try await Responder.serve(link)
        }.result
        // If the peer were not refused, the handshake would fail with `timedOut`.
        let error = #expect(throws: ChannelError.self) { try outcome.get() }
        #expect(error?.code == .configuration)
        await loop.run { peer.close() }
        await loop.shutdown()
    }
}
