internal import BLESec
internal import ChannelCore
internal import Links

/// Friends who dial a listener again and again, by themselves and among strangers who only keep it
/// busy.
struct FloodScenario: Sendable {
    /// How long each of the two is watched, in nanoseconds.
    var window: UInt64
    /// Who dials at once; a listener has 32 handshakes under way at the most.
    static let friends = 4
    static let strangers = 64

    struct Result: Sendable {
        var engine: String
        /// Channels a second that friends opened, without strangers and among them.
        var alone: Double
        var flooded: Double
        /// Dials of friends that failed among strangers, over all their dials there.
        var failures: Double
        /// Strangers a second that were answered and then turned away.
        var strangers: Double
    }

    /// Measures a listener, its friends and the strangers on a loop each.
    func measure(_ engine: String, _ peers: Acquaintances) async throws -> Result {
        let loops = LoopPair()
        let outside = EventLoop(name: "bench-strangers")
        let path = "/tmp/blesec-bench-\(UInt64.random(in: 0...UInt64.max)).sock"
        let listener = try await SecureListener.listen(
            on: Endpoint("unix-seqpacket:\(path)"), configuration: peers.acceptor,
            loop: loops.acceptor)
        let host = Task(executorPreference: loops.acceptor) { await Self.serve(listener) }
        let friends = Friends(loops.dialer)
        await friends.come(to: listener.localEndpoint, peers.dialer)
        let alone = try await friends.rate(for: window)
        let crowd = Strangers(outside)
        try await crowd.come(to: path, offering: engine)
        let start = (time: Clock.time, failures: await friends.failures, calls: await friends.calls)
        let flooded = try await friends.rate(for: window)
        let strangers = await crowd.count
        let time = Clock.time - start.time
        let calls = await friends.calls - start.calls
        let failures = await friends.failures - start.failures
        await friends.leave()
        await crowd.leave()
        await listener.close()
        await crowd.end()
        await host.value
        await loops.shutdown()
        await outside.shutdown()
        return Result(
            engine: engine, alone: alone, flooded: flooded,
            failures: Double(failures) / Double(max(1, calls)),
            strangers: Double(strangers) / Double(time) * 1e9)
    }

    private static func serve(_ listener: SecureListener) async {
        await withTaskGroup(of: Void.self) { group in
            while let channel = try? await listener.accept() {
                group.addTask(executorPreference: listener.loop) { try? await channel.close() }
            }
        }
    }
}

/// Who opens and closes channels, one after another.
private actor Friends {
    private let loop: EventLoop
    private(set) var calls = 0
    private(set) var failures = 0
    private var isOver = false
    private var tasks: [Task<Void, Never>] = []

    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    init(_ loop: EventLoop) { self.loop = loop }

    func come(to endpoint: Endpoint, _ configuration: ChannelConfiguration) {
        for _ in 0..<FloodScenario.friends {
            tasks.append(
                Task(executorPreference: loop) { [self] in
                    while await !isOver {
                        let channel = try? await SecureChannel.dial(
                            endpoint, configuration: configuration, loop: loop)
                        await didCall(channel != nil)
                        try? await channel?.close()
                    }
                })
        }
    }

    /// Channels a second over a while.
    func rate(for window: UInt64) async throws -> Double {
        let (start, before) = (Clock.time, calls - failures)
        try await loop.sleep(for: .nanoseconds(Int64(window)))
        return Double(calls - failures - before) / Double(Clock.time - start) * 1e9
    }

    func leave() async {
        isOver = true
        for task in tasks { await task.value }
    }

    private func didCall(_ succeeded: Bool) {
        calls += 1
        if !succeeded { failures += 1 }
    }
}

/// Who sends what anybody can make up, a hello and a first message, and waits to be turned away.
private actor Strangers {
    private let loop: EventLoop
    private(set) var count = 0
    private var isOver = false
    private var tasks: [Task<Void, Never>] = []

    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    init(_ loop: EventLoop) { self.loop = loop }

    func come(to path: String, offering offer: String) throws {
        let address = try UnixAddress(path: path, kind: .seqpacket)
        // An ephemeral key of XX may be any 32 bytes, behind a length of two.
        let words = try Hello(offers: [offer]).encoded + [0, 32] + (1...32).map { UInt8($0) }
        for _ in 0..<FloodScenario.strangers {
            tasks.append(
                Task(executorPreference: loop) { [self] in
                    while await !isOver {
                        guard let link = try? await UnixLink.dial(address, loop: loop) else {
                            try? await loop.sleep(for: .milliseconds(1))
                            continue
                        }
                        await Stranger(link).wait(after: words)
                        await didLeave()
                    }
                })
        }
    }

    func leave() { isOver = true }

    /// Returns when all have gone.
    func end() async {
        for task in tasks { await task.value }
    }

    private func didLeave() { count += 1 }
}

/// One stranger's link. On the loop's thread.
private final class Stranger: LinkHandler, @unchecked Sendable {
    // Sendable because its state is touched on the loop's thread only.
    private let link: SocketLink
    private var waiter: CheckedContinuation<Void, Never>?

    init(_ link: SocketLink) { self.link = link }

    /// Says its words, and returns when the link is gone.
    func wait(after words: [UInt8]) async {
        await withCheckedContinuation { waiter in
            self.waiter = waiter
            link.setHandler(self)
            link.wantsRead = true
            if (try? link.send(words.span)) == nil { linkDidHangUp() }
        }
        link.close()
        // The link holds its handler weakly.
        withExtendedLifetime(self) {}
    }

    func linkDidHangUp() { waiter.take()?.resume() }

    func linkIsReadable() {
        var result: LinkReceive?
        _ = [UInt8](capacity: 1_024) { buffer in result = try? link.receive(into: &buffer) }
        if result == nil || result == .end { linkDidHangUp() }
    }

    func linkIsWritable() {}
}
