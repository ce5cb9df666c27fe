import BLESecLinks
import Testing

@testable import BLESec
@testable import BLESecDiscovery

@Suite("Waiting for bluetoothd")
struct WaitingTests {
    /// Runs `end` while a task waits for a condition that never becomes true, and expects that the
    /// wait then throws.
    private func expectWaitThrows(after end: (EventLoop, Bluetoothd) async -> Void) async {
        let loop = EventLoop(name: "test")
        // The result does not depend on whether bluetoothd runs here.
        let bluetoothd = await Bluetoothd.connect(loop: loop)
        let task = Task(executorPreference: loop) {
            try await bluetoothd.wait(until: loop.now.advanced(by: .seconds(600)), to: "wait") {
                _ in
                nil as Int?
            }
        }
        await loop.settle()
        await end(loop, bluetoothd)
        await #expect(throws: DiscoveryError.self) { try await task.value }
        await bluetoothd.close()
        await loop.shutdown()
    }

    @Test("a wait throws when the session with bluetoothd is closed", .timeLimit(.minutes(1)))
    func closed() async { await expectWaitThrows { await $1.close() } }

    @Test("a wait throws when the loop is shut down", .timeLimit(.minutes(1)))
    func shutDown() async { await expectWaitThrows { loop, _ in await loop.shutdown() } }

    @Test("a wait for an adapter's state throws if the session is closed", .timeLimit(.minutes(1)))
    func state() async {
        let loop = EventLoop(name: "test")
        let bluetoothd = await Bluetoothd.connect(loop: loop)
        let adapter = BluetoothAdapter(AdapterName("none"), of: bluetoothd)
        let last = await adapter.state
        let next = Task(executorPreference: loop) { try await adapter.state(otherThan: last) }
        await loop.settle()
        await bluetoothd.close()
        await #expect(throws: DiscoveryError.self) { try await next.value }
        await #expect(throws: DiscoveryError.self) { try await adapter.state(otherThan: .on) }
        await loop.shutdown()
    }

    @Test("an advertiser that is still open does not prevent the loop's shutdown")
    func advertiser() async throws {
        let loop = EventLoop(name: "test")
        let bluetoothd = await Bluetoothd.connect(loop: loop)
        // No adapter has this name, so the advertiser waits for it.
        let setup = NearbySetup(
            service: .blesec, adapter: BluetoothAdapter(AdapterName("none"), of: bluetoothd),
            configuration: ChannelConfiguration(identity: try .generate(), trust: .anyone),
            options: NearbyOptions())
        let listener = try await RenewableListener.listen(on: nil, loop: loop) { _ in }
        let advertiser = NearbyAdvertiser(setup, listener: listener, of: nil)
        try await advertiser.start()
        await loop.settle()
        let shutdown = Task { await loop.shutdown() }
        // If the advertiser prevents the shutdown, it is closed, so that the test ends.
        let watchdog = Task {
            try await Task.sleep(for: .seconds(30))
            Issue.record("30 s after its shutdown began, the loop still runs")
            await advertiser.close()
        }
        await shutdown.value
        watchdog.cancel()
        await advertiser.close()
        await listener.close()
        await bluetoothd.close()
    }
}
