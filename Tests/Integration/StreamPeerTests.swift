import BLESec
import BLESecChannelCore
import BLESecLinks
import BLESecNoise
import BLESecPrimitives
import Glibc
import TestSupport
import Testing

extension Integration.DeliveryPeerTests {
    private static let seeds: [UInt64] = [3, 7, 9]

    @Test(
        "a dialer's streams and messages outlive links that a Python peer cuts", arguments: seeds)
    func streamsOfDialer(seed: UInt64) async throws { try await exchange(.dialer, seed) }

    @Test(
        "a listener's streams and messages outlive links that a Python peer cuts", arguments: seeds)
    func streamsOfListener(seed: UInt64) async throws { try await exchange(.acceptor, seed) }

    private func exchange(_ role: ChannelRole, _ seed: UInt64) async throws {
        let fixture = try DeliveryFixture(in: folder, count: 60_000)
        let side = StreamSide(fixture, seed)
        let peer = try fixture.startPeer(role == .dialer ? "acceptor" : "dialer", side.options)
        if role == .dialer { _ = try peer.line("listening") }
        let connection = try await side.connect(role)
        // This side sends `fixture.fromTool`, as the tool does in other tests, and the peer writes it
        // to the file. The peer's output is read only at the end, so that no thread waits for it.
        let failure = await Self.failure { try await side.run(connection) }
        await connection.abort()
        if failure != nil { peer.signal(SIGTERM) }
        let outcome = try peer.wait()
        #expect(failure == nil, "\(failure.map { "\($0)" } ?? "")\n\(outcome.errors)")
        #expect(outcome.status == 0, "\(outcome.errors)")
        #expect(folder.read("from-tool") == fixture.fromTool)
    }

    private static func failure(_ body: () async throws -> Void) async -> (any Error)? {
        do {
            try await body()
            return nil
        } catch { return error }
    }
}

/// This side of a connection to a Python peer: the streams and messages that it sends, and what it
/// expects from the peer.
private struct StreamSide {
    private struct Late: Error {}

    let fixture: DeliveryFixture
    /// The peer's command-line options.
    let options: [String]
    private let seed: UInt64
    private let plans: [(program: StreamProgram, priority: PeerConnection.Priority)]
    /// How many streams the peer opens.
    private let peersStreamCount: Int
    private var limits = PeerConnection.StreamOptions()

    init(_ fixture: DeliveryFixture, _ seed: UInt64) {
        self.fixture = fixture
        self.seed = seed
        var generator = SeededGenerator(seed: seed)
        let windows = [1, 10, 1_000, 20_000, 100_000]
        limits.window = windows.randomElement(using: &generator) ?? 1
        limits.maximumOpen = [1, 2, 5, 64].randomElement(using: &generator) ?? 1
        limits.maximumWaiting = [1, 2, 16].randomElement(using: &generator) ?? 1
        let window = windows.randomElement(using: &generator) ?? 1
        // A flight carries about as many bytes of a stream as the window allows, so the longest
        // stream takes about 20 flights.
        let longest = min(40_000, 20 * min(window, limits.window))
        plans = (0..<Int.random(in: 5...20, using: &generator)).map { _ in
            (
                StreamProgram(most: longest, using: &generator),
                PeerConnection.Priority.allCases.randomElement(using: &generator) ?? .normal
            )
        }
        peersStreamCount = Int.random(in: 5...20, using: &generator)
        // `--streams` is the number of streams that the Python peer opens, and `--peers-streams`
        // the number that this side opens.
        let numbers = [
            "--cuts": 8, "--seed": Int(seed), "--streams": peersStreamCount,
            "--peers-streams": plans.count, "--most": longest, "--window": window,
            "--first-limit": [0, 1, 2, 100].randomElement(using: &generator) ?? 0,
            "--open": [1, 3, 100].randomElement(using: &generator) ?? 1,
        ]
        options = numbers.flatMap { [$0.key, "\($0.value)"] }
    }

    /// Starts the connection.
    func connect(_ role: ChannelRole) async throws -> PeerConnection {
        let ownSecret = ToolPair.pseudoRandomBytes(32, seed: 1_000 + seed)
        let peerSecret = ToolPair.pseudoRandomBytes(32, seed: 33)
        let identity = IdentityKey(
            try DHKeyPair(curve: .x25519, privateKey: SecretBytes(copying: ownSecret.span)))
        let key = try PeerKey(
            publicKey: DHKeyPair(curve: .x25519, privateKey: SecretBytes(copying: peerSecret.span))
                .publicKey)
        var configuration = ChannelConfiguration(identity: identity, trust: .pinned([key]))
        configuration.carriesDelivery = true
        let endpoint = try Endpoint(parsing: "unix:" + fixture.folder.file("socket"))
        var rules = ReconnectPolicy()
        rules.backoff = Backoff(first: .milliseconds(10), most: .milliseconds(50))
        var delivery = PeerConnection.DeliveryOptions()
        delivery.streams = limits
        if role == .dialer {
            return await PeerConnection.start(
                .dialing(endpoint, configuration: configuration), to: key, rules: rules,
                delivery: .exactlyOnce(delivery))
        }
        let listener = try await SecureListener.listen(on: endpoint, configuration: configuration)
        return await PeerConnection.start(
            .accepting(from: listener), rules: rules, delivery: .exactlyOnce(delivery))
    }

    /// Exchanges everything, and closes the connection.
    func run(_ connection: PeerConnection) async throws {
        try await withThrowingTaskGroup(of: Bool.self) { group in
            group.addTask {
                try await Task.sleep(for: .seconds(20))
                await connection.abort()
                throw Late()
            }
            group.addTask {
                try await withThrowingTaskGroup(of: Void.self) { parts in
                    parts.addTask { try await answer(connection) }
                    parts.addTask { try await receive(connection) }
                    parts.addTask { try await send(connection) }
                    try await parts.waitForAll()
                }
                return true
            }
            _ = try await group.next()
            group.cancelAll()
        }
    }

    private func send(_ connection: PeerConnection) async throws {
        try await withThrowingTaskGroup(of: Void.self) { parts in
            var rest = fixture.fromTool[...]
            var lengths = [1, 5_000, 0, 300, 20_000]
            for (program, priority) in plans {
                let stream = try await connection.open(program.label, priority: priority)
                parts.addTask { try await program.begin(stream) }
                let message = rest.prefix(lengths[0])
                lengths.append(lengths.removeFirst())
                rest = rest.dropFirst(message.count)
                _ = try await connection.send(Array(message))
            }
            _ = try await connection.send(Array(rest))
            // While the connection closes, open streams can still be used.
            try await connection.close(within: .seconds(18))
            try await parts.waitForAll()
        }
    }

    private func receive(_ connection: PeerConnection) async throws {
        var received: [UInt8] = []
        while let message = try await connection.receive() { received += message }
        #expect(received == fixture.fromPeer)
    }

    private func answer(_ connection: PeerConnection) async throws {
        try await withThrowingTaskGroup(of: Void.self) { parts in
            var count: UInt64 = 0
            for await stream in connection.incomingStreams {
                count += 1
                let program = try StreamProgram(label: stream.label, seed: seed << 32 + count)
                parts.addTask { try await program.answer(stream) }
            }
            #expect(count == UInt64(peersStreamCount))
            try await parts.waitForAll()
        }
    }
}
