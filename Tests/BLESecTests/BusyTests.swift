import BLESecChannelCore
import BLESecLinks
import BLESecLocking
import BLESecTesting
import Testing

@testable import BLESec

/// What a dialer does when its peer has no room for the dialer.
@Suite("Dialing a busy peer")
struct BusyTests {
    /// A listener that answers its first `count` links with `status`, and opens a channel over each
    /// later link.
    private struct Host {
        let fixture: ChannelFixture
        let endpoint: Endpoint
        /// The times at which links were accepted.
        let times = Locked<[MonotonicTime]>([])
        private let task: Task<Void, any Error>

        init(_ status: Answer.Status, links count: Int) async throws {
            let fixture = try ChannelFixture()
            let path = "/tmp/blesec-test-\(UInt64.random(in: 0...UInt64.max)).sock"
            let address = try UnixAddress(path: path)
            let listener = try await UnixListener.listen(address, loop: fixture.loop)
            self.fixture = fixture
            endpoint = Endpoint(address)
            task = Task(executorPreference: fixture.loop) { [times] in
                var links: [any Link] = []
                var channels: [SecureChannel] = []
                while let link = try? await listener.accept() {
                    times.withLock { $0.append(fixture.loop.now) }
                    guard links.count == count else {
                        _ = try await fixture.loop.run {
                            try link.send(Answer(status).encoded.span)
                        }
                        links.append(link)
                        continue
                    }
                    let channel = try fixture.channel(over: link, .acceptor)
                    try await channel.open()
                    channels.append(channel)
                }
                for link in links { await fixture.loop.run { link.close() } }
                for channel in channels { await channel.abort() }
                await listener.close()
            }
        }

        var count: Int { times.withLock(\.count) }

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
    func triesAgain() async throws {
        let host = try await Host(.busy, links: 1)
        let dialing = try host.dial()
        while host.count == 0 { await host.fixture.clock.settle() }
        await host.fixture.clock.settle()
        await host.fixture.clock.advance(by: .milliseconds(99))
        #expect(host.count == 1)
        await host.fixture.clock.advance(by: .milliseconds(401))
        let channel = try await dialing.value
        #expect(host.count == 2)
        await channel.abort()
        try await host.finish()
    }

    @Test("if the peer is busy a second time, the dial fails, and there is no third attempt")
    func busyTwice() async throws {
        let host = try await Host(.busy, links: .max)
        let dialing = try host.dial()
        for _ in 0..<100 where host.count < 2 {
            await host.fixture.clock.advance(by: .milliseconds(100))
        }
        #expect(await failure(of: dialing) == .busy)
        await host.fixture.clock.advance(by: .seconds(60))
        #expect(host.count == 2)
        try await host.finish()
    }

    @Test("a dialer whose peer answers refused does not dial again")
    func refused() async throws {
        let host = try await Host(.refused, links: .max)
        #expect(await failure(of: try host.dial()) == .noCommonProtocol)
        await host.fixture.clock.advance(by: .seconds(60))
        #expect(host.count == 1)
        try await host.finish()
    }

    @Test("a dial that is cancelled before its second attempt ends at once")
    func cancelled() async throws {
        let host = try await Host(.busy, links: .max)
        let dialing = try host.dial()
        while host.count == 0 { await host.fixture.clock.settle() }
        await host.fixture.clock.settle()
        dialing.cancel()
        #expect(await failure(of: dialing) == .cancelled)
        #expect(host.count == 1)
        try await host.finish()
    }

    @Test(
        "a connection dials a busy peer again after its own backoff, and not once more before that")
    func backsOff() async throws {
        let host = try await Host(.busy, links: .max)
        var rules = ReconnectPolicy()
        rules.backoff = Backoff(first: .seconds(4), most: .seconds(60))
        let fixture = host.fixture
        let configuration = try fixture.pinned.configuration(.dialer)
        let connection = await PeerConnection.start(
            .dialing(host.endpoint, configuration: configuration, loop: fixture.loop),
            to: PeerKey(fingerprint: fixture.pinned.acceptor.fingerprint), rules: rules)
        while host.count == 0 { await fixture.clock.settle() }
        await fixture.clock.advance(by: .milliseconds(1_999))
        #expect(host.count == 1)
        await fixture.clock.advance(by: .milliseconds(2_001))
        #expect(host.count == 2)
        await connection.abort()
        try await host.finish()
    }
}
