import BLESecChannelCore
import BLESecLinks
import BLESecLocking
import BLESecTesting
import Testing

@testable import BLESec

/// What a dialer does when its peer has no room for the dialer.
@Suite("Dialing a busy peer")
struct BusyTests {
    /// A listener that answers its first `linkCount` links with `status`, and opens a channel over
    /// each later link.
    private struct TestListener {
        let fixture: ChannelFixture
        let endpoint: Endpoint
        private let acceptedCount = Locked(0)
        private let task: Task<Void, any Error>

        init(answering status: Answer.Status, onFirst linkCount: Int) async throws {
            let fixture = try ChannelFixture()
            let path = "/tmp/blesec-test-\(UInt64.random(in: 0...UInt64.max)).sock"
            let address = try UnixAddress(path: path)
            let listener = try await UnixListener.listen(address, loop: fixture.loop)
            self.fixture = fixture
            endpoint = Endpoint(address)
            task = Task(executorPreference: fixture.loop) { [acceptedCount] in
                var answeredLinks: [any Link] = []
                var channels: [SecureChannel] = []
                while let link = try? await listener.accept() {
                    acceptedCount.withLock { $0 += 1 }
                    guard answeredLinks.count == linkCount else {
                        _ = try await fixture.loop.run {
                            try link.send(Answer(status).encoded.span)
                        }
                        answeredLinks.append(link)
                        continue
                    }
                    let channel = try fixture.channel(over: link, .acceptor)
                    try await channel.open()
                    channels.append(channel)
                }
                for link in answeredLinks { await fixture.loop.run { link.close() } }
                for channel in channels { await channel.abort() }
                await listener.close()
            }
        }

        /// How many links the listener has accepted.
        var acceptedLinkCount: Int { acceptedCount.withLock { $0 } }

        func dial() throws -> Task<SecureChannel, any Error> {
            let configuration = try fixture.pinned.configuration(.dialer)
            return Task(executorPreference: fixture.loop) { [fixture, endpoint] in
                try await SecureChannel.dial(
                    endpoint, configuration: configuration, loop: fixture.loop)
            }
        }

        func finish() async throws {
            task.cancel()
            try await task.value
            await fixture.finish()
        }
    }

    @Test("a dialer whose peer is busy dials once more, 100 to 500 ms later")
    func busyOnce() async throws {
        let listener = try await TestListener(answering: .busy, onFirst: 1)
        let dialing = try listener.dial()
        while listener.acceptedLinkCount == 0 { await listener.fixture.clock.settle() }
        await listener.fixture.clock.settle()
        await listener.fixture.clock.advance(by: .milliseconds(99))
        #expect(listener.acceptedLinkCount == 1)
        await listener.fixture.clock.advance(by: .milliseconds(401))
        let channel = try await dialing.value
        #expect(listener.acceptedLinkCount == 2)
        await channel.abort()
        try await listener.finish()
    }

    @Test("if the peer is busy a second time, the dial fails, and there is no third attempt")
    func busyTwice() async throws {
        let listener = try await TestListener(answering: .busy, onFirst: .max)
        let dialing = try listener.dial()
        for _ in 0..<100 where listener.acceptedLinkCount < 2 {
            await listener.fixture.clock.advance(by: .milliseconds(100))
        }
        #expect(await failure(of: dialing) == .busy)
        await listener.fixture.clock.advance(by: .seconds(60))
        #expect(listener.acceptedLinkCount == 2)
        try await listener.finish()
    }

    @Test("a dialer whose peer answers `refused` does not dial again")
    func refused() async throws {
        let listener = try await TestListener(answering: .refused, onFirst: .max)
        #expect(await failure(of: try listener.dial()) == .noCommonProtocol)
        await listener.fixture.clock.advance(by: .seconds(60))
        #expect(listener.acceptedLinkCount == 1)
        try await listener.finish()
    }

    @Test("a dial that is cancelled while it waits for its second attempt ends without a delay")
    func cancelled() async throws {
        let listener = try await TestListener(answering: .busy, onFirst: .max)
        let dialing = try listener.dial()
        while listener.acceptedLinkCount == 0 { await listener.fixture.clock.settle() }
        await listener.fixture.clock.settle()
        dialing.cancel()
        #expect(await failure(of: dialing) == .cancelled)
        #expect(listener.acceptedLinkCount == 1)
        try await listener.finish()
    }

    @Test("a connection whose peer is busy dials again after its backoff, and not before")
    func backsOff() async throws {
        let listener = try await TestListener(answering: .busy, onFirst: .max)
        var rules = ReconnectPolicy()
        rules.backoff = Backoff(first: .seconds(4), most: .seconds(60))
        let fixture = listener.fixture
        let configuration = try fixture.pinned.configuration(.dialer)
        let connection = await PeerConnection.start(
            .dialing(listener.endpoint, configuration: configuration, loop: fixture.loop),
            to: PeerKey(fingerprint: fixture.pinned.acceptor.fingerprint), rules: rules)
        while listener.acceptedLinkCount == 0 { await fixture.clock.settle() }
        // The backoff waits 2 to 4 seconds; `SecureChannel.dial` would wait 100 to 500 ms.
        await fixture.clock.advance(by: .milliseconds(1_999))
        #expect(listener.acceptedLinkCount == 1)
        await fixture.clock.advance(by: .milliseconds(2_001))
        #expect(listener.acceptedLinkCount == 2)
        await connection.abort()
        try await listener.finish()
    }
}
