import BLESec
import BLESecTesting
import Testing

@Suite("Channels over real loops and links")
struct ChannelTests {
    @Test("messages go both ways over a memory link, and close loses nothing")
    func memory() async throws {
        let loop = EventLoop(name: "test")
        let (dialer, acceptor) = try await Self.channels(on: loop)
        async let firstMessage = dialer.receive()
        #expect(try await acceptor.deliver([9, 9]) == .delivered)
        try await #expect(firstMessage == [9, 9])
        async let closed: Void = {
            for index in 0..<200 {
                try await dialer.send([UInt8](repeating: UInt8(index), count: index * 97))
            }
            try await dialer.close()
        }()
        for index in 0..<200 {
            #expect(
                try await acceptor.receive() == [UInt8](repeating: UInt8(index), count: index * 97))
        }
        #expect(try await acceptor.receive() == nil)
        try await acceptor.close()
        try await closed
        await loop.shutdown()
    }

    @Test("a program that dials its own listener gets the error selfConnection on both sides")
    func dialsItself() async throws {
        let path = "/tmp/blesec-test-\(UInt64.random(in: 0...UInt64.max)).sock"
        let configuration = try PinnedPeers().configuration(.acceptor)
        let listener = try await SecureListener.listen(
            on: try Endpoint(parsing: "unix:\(path)"), configuration: configuration)
        let failures = await listener.failures()
        await #expect(throws: ChannelError(.selfConnection, "")) {
            try await SecureChannel.dial(listener.localEndpoint, configuration: configuration)
        }
        #expect(await failures.first { _ in true }?.error.code == .selfConnection)
        await listener.close()
    }

    @Test("a listener on a Unix socket serves a dialer", arguments: ["unix", "unix-seqpacket"])
    func unix(kind: String) async throws {
        let pinned = try PinnedPeers()
        let path = "/tmp/blesec-test-\(UInt64.random(in: 0...UInt64.max)).sock"
        let listener = try await SecureListener.listen(
            on: try Endpoint(parsing: "\(kind):\(path)"),
            configuration: pinned.configuration(.acceptor))
        let dialer = try await SecureChannel.dial(
            listener.localEndpoint, configuration: pinned.configuration(.dialer))
        let acceptor = try await listener.accept()
        #expect(await acceptor.peer.fingerprint == pinned.dialer.fingerprint)
        let big = [UInt8](repeating: 5, count: 3_000_000)
        async let sent: Void = dialer.send(big)
        #expect(try await acceptor.receive() == big)
        try await sent
        try await acceptor.finish()
        #expect(try await dialer.receive() == nil)
        try await dialer.close()
        try await acceptor.close()
        await listener.close()
    }

    @Test("an acceptor that pins another key refuses the dialer, which does not learn the reason")
    func refusedDialer() async throws {
        let pinned = try PinnedPeers()
        let loop = EventLoop(name: "test")
        let (first, second) = await loop.run { MemoryLink.pair(loop: loop) }
        var acceptorConfiguration = try pinned.configuration(.acceptor)
        acceptorConfiguration.trust = .pinned([PeerKey(fingerprint: pinned.acceptor.fingerprint)])
        async let dialed = SecureChannel.open(
            over: first, role: .dialer, configuration: pinned.configuration(.dialer))
        await #expect(throws: ChannelError(.untrusted, "")) {
            _ = try await SecureChannel.open(
                over: second, role: .acceptor, configuration: acceptorConfiguration)
        }
        do {
            _ = try await dialed
            Issue.record("the dial succeeded")
        } catch {
            #expect(error as? ChannelError == ChannelError(.refused, ""))
        }
        await loop.shutdown()
    }

    static func channels(
        on loop: EventLoop
    ) async throws -> (dialer: SecureChannel, acceptor: SecureChannel) {
        let pinned = try PinnedPeers()
        let (first, second) = await loop.run { MemoryLink.pair(loop: loop) }
        async let dialer = SecureChannel.open(
            over: first, role: .dialer, configuration: pinned.configuration(.dialer))
        async let acceptor = SecureChannel.open(
            over: second, role: .acceptor, configuration: pinned.configuration(.acceptor))
        return try await (dialer, acceptor)
    }
}

@Suite("Ways to read a channel")
struct ReadingTests {
    @Test("the sequence of messages is over when the peer has sent its end")
    func sequence() async throws {
        let loop = EventLoop(name: "test")
        let (dialer, acceptor) = try await ChannelTests.channels(on: loop)
        async let sent: Void = {
            for index in 0..<10 { try await dialer.send([UInt8(index)]) }
            try await dialer.close()
        }()
        var received: [[UInt8]] = []
        for try await message in acceptor.messages { received.append(message) }
        #expect(received == (0..<10).map { [UInt8($0)] })
        try await acceptor.close()
        try await sent
        await loop.shutdown()
    }

    @Test("a byte stream returns every byte in order, and no read returns more than was asked for")
    func bytes() async throws {
        let loop = EventLoop(name: "test")
        let (dialer, acceptor) = try await ChannelTests.channels(on: loop)
        let bytes = (0..<200_000).map { UInt8(truncatingIfNeeded: $0 &* 7) }
        async let sent: Void = {
            try await dialer.byteStream.write(bytes)
            try await dialer.close()
        }()
        var received: [UInt8] = []
        while let part = try await acceptor.byteStream.read(atMost: 999) {
            #expect((1...999).contains(part.count))
            received += part
        }
        #expect(received == bytes)
        try await acceptor.close()
        try await sent
        await loop.shutdown()
    }

    @Test("a byte stream sends bytes in messages that are not longer than the limit")
    func shortMessages() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels { _, configuration in
            configuration.limits.maximumMessageLength = 1_000
        }
        let bytes = (0..<5_000).map { UInt8(truncatingIfNeeded: $0 &* 7) }
        try await dialer.byteStream.write(bytes)
        var received: [UInt8] = []
        while received.count < bytes.count {
            received += try #require(try await acceptor.byteStream.read(atMost: 5_000))
        }
        #expect(received == bytes)
        await dialer.abort()
        await acceptor.abort()
        await fixture.finish()
    }
}

@Suite("A policy that waits for a person's answer")
struct AskingTests {
    @Test(
        "when all places for trust decisions are taken, a listener turns the next peer away as busy"
    )
    func decisionPlaces() async throws {
        let pinned = try PinnedPeers()
        var acceptorConfiguration = try pinned.configuration(.acceptor)
        let (verdicts, continuation) = AsyncStream.makeStream(of: TrustPolicy.Verdict.self)
        acceptorConfiguration.trust = .asking { _ in
            for await verdict in verdicts { return verdict }
            return .refuse("nobody answered")
        }
        var limits = SecureListener.Limits()
        limits.awaitingTrustDecision = 1
        let path = "/tmp/blesec-test-\(UInt64.random(in: 0...UInt64.max)).sock"
        let listener = try await SecureListener.listen(
            on: try Endpoint(parsing: "unix:\(path)"), configuration: acceptorConfiguration,
            limits: limits)
        let dialerConfiguration = try pinned.configuration(.dialer)
        let endpoint = listener.localEndpoint
        async let accepted = listener.accept()
        let results = await withTaskGroup(of: Result<SecureChannel, any Error>.self) { group in
            for _ in 0..<2 {
                group.addTask {
                    do {
                        return .success(
                            try await SecureChannel.dial(
                                endpoint, configuration: dialerConfiguration))
                    } catch {
                        return .failure(error)
                    }
                }
            }
            // The dial that is turned away returns first, because the other dial waits for a verdict.
            let turnedAway = await group.next()
            continuation.yield(.admit)
            return [turnedAway, await group.next()]
        }
        #expect(throws: ChannelError(.busy, "")) { _ = try results[0]?.get() }
        let admitted = try results[1]?.get()
        await admitted?.abort()
        await (try accepted).abort()
        await listener.close()
    }
}
