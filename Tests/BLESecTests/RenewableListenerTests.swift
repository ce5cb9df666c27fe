import BLESecLinks
import Testing

@testable import BLESec

@Suite("A listener whose PSMs are renewed")
struct RenewableListenerTests {
    @Test("the loop's shutdown ends the wait for a link", .timeLimit(.minutes(1)))
    func shutdown() async throws {
        let loop = EventLoop(name: "test")
        let listener = try await RenewableListener.listen(on: nil, loop: loop) { _ in }
        let accepting = Task(executorPreference: loop) { try await listener.accept() }
        // The task was queued before this call, so the task waits for a link when the call returns.
        await loop.run {}
        await loop.shutdown()
        let outcome = await accepting.result
        #expect(throws: LinkError.self) { try outcome.get() }
    }
}
