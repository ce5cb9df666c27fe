internal import BLESec
internal import BLESecDelivery
internal import BLESecLocking
internal import BLESecStore
internal import Glibc

/// Measures messages that a program queues without waiting for their delivery, over a connection
/// with stores on disk and over a connection without stores.
struct StoreScenario: Sendable {
    /// The figures of messages of one size.
    struct Result: Sendable {
        var size: Int
        /// The number of messages in each sample.
        var messages: Int
        /// The number of rounds that were measured.
        var rounds: Int
        /// Messages a second with stores, from queueing the first message until the last is confirmed.
        var rate: Summary
        /// Each round's rate with stores, divided by the same round's rate without stores.
        var rateRatio: Summary
        /// Commits of the sender's store a second.
        var commitRate: Summary
        /// Messages divided by commits: the commits of the dialer's store, and those of the acceptor's
        /// store. The dialer sends the messages.
        var messagesPerCommit: BothSides<Summary>
    }

    static let sizes = [64, 1_024]

    /// The largest number of rounds. Each round takes one sample with stores and one without.
    let rounds: Int
    /// The number of messages in each sample.
    let messages: Int

    /// Measures at one size. The first round is always measured; no other round begins after
    /// `deadline`.
    func measure(size: Int, loop: EventLoop, until deadline: UInt64) async throws -> Result {
        let folder = try ScratchDirectory()
        let storeless = try await Pair.open(storesIn: nil, loop)
        let stored = try await Pair.open(storesIn: folder.path, loop)
        var rates: (storeless: [Double], stored: [Double]) = ([], [])
        var commits: (dialer: [Double], acceptor: [Double]) = ([], [])
        for round in 0..<rounds where round == 0 || Clock.time < deadline {
            for isStored in round.isMultiple(of: 2) ? [true, false] : [false, true] {
                let pair = isStored ? stored : storeless
                let before = pair.commits
                let rate = try await pair.rate(messages, size)
                guard isStored else {
                    rates.storeless.append(rate)
                    continue
                }
                rates.stored.append(rate)
                commits.dialer.append(Double(pair.commits.dialer - before.dialer))
                commits.acceptor.append(Double(pair.commits.acceptor - before.acceptor))
            }
        }
        try await storeless.close()
        try await stored.close()
        let count = Double(messages)
        return Result(
            size: size, messages: messages, rounds: rates.stored.count,
            rate: Summary(rates.stored), rateRatio: Summary(rates.stored, over: rates.storeless),
            commitRate: Summary(zip(rates.stored, commits.dialer).map { $0 * $1 / count }),
            messagesPerCommit: BothSides(
                dialer: Summary(commits.dialer.map { count / $0 }),
                acceptor: Summary(commits.acceptor.map { count / $0 })))
    }

    /// Both ends of a connection over a link in memory, on one loop.
    private struct Pair: Sendable {
        private let dialer: PeerConnection
        private let acceptor: PeerConnection
        private let stores: BothSides<CountingStore>?
        private let receiving: Task<Void, any Error>

        static func open(storesIn directory: String?, _ loop: EventLoop) async throws -> Pair {
            let peers = try PeerConfigurations(EngineChoice.noise.name)
            let stores = try directory.map { path in
                try BothSides(
                    dialer: CountingStore(path, peers.dialer, peer: peers.acceptor),
                    acceptor: CountingStore(path, peers.acceptor, peer: peers.dialer))
            }
            let links = await loop.run { MemoryLink.pair(loop: loop) }
            async let accepted = start(links.1, .acceptor, peers.acceptor, stores?.acceptor)
            let dialed = try await start(links.0, .dialer, peers.dialer, stores?.dialer)
            return Pair(dialer: dialed, acceptor: try await accepted, stores, loop)
        }

        private init(
            dialer: PeerConnection, acceptor: PeerConnection, _ stores: BothSides<CountingStore>?,
            _ loop: EventLoop
        ) {
            self.dialer = dialer
            self.acceptor = acceptor
            self.stores = stores
            receiving = Task(executorPreference: loop) {
                while try await acceptor.receive() != nil {}
                try await acceptor.close(.done)
            }
        }

        private static func start(
            _ link: any Link, _ role: ChannelRole, _ configuration: ChannelConfiguration,
            _ store: CountingStore?
        ) async throws -> PeerConnection {
            var configuration = configuration
            configuration.carriesDelivery = true
            var options = PeerConnection.DeliveryOptions()
            options.store = store?.store
            let (channelConfiguration, deliveryOptions) = (configuration, options)
            return try await Task(executorPreference: link.loop) {
                let channel = try await SecureChannel.open(
                    over: link, role: role, configuration: channelConfiguration)
                let connection = await PeerConnection.start(
                    .offered, delivery: .exactlyOnce(deliveryOptions), loop: link.loop)
                guard await connection.offer(channel) else {
                    throw BenchError.wrongResult("the channel")
                }
                return connection
            }.value
        }

        /// How many commits each side's store has made.
        var commits: BothSides<Int> {
            BothSides(dialer: stores?.dialer.commits ?? 0, acceptor: stores?.acceptor.commits ?? 0)
        }

        /// Sends `count` messages, and returns the messages a second, from queueing the first message
        /// until the last is confirmed.
        func rate(_ count: Int, _ size: Int) async throws -> Double {
            let message = [UInt8](repeating: 0x5A, count: size)
            return try await Task(executorPreference: dialer.loop) { [dialer] in
                let start = Clock.time
                var last: PendingDelivery?
                for _ in 0..<count { last = try await dialer.send(message, noting: nil) }
                guard await last?.delivery() == .delivered else {
                    throw BenchError.wrongResult("a message's fate")
                }
                return Double(count) / Double(Clock.time - start) * 1e9
            }.value
        }

        func close() async throws {
            try await dialer.close(.done)
            try await receiving.value
        }
    }
}

/// A store on disk that counts its commits.
private final class CountingStore: EndpointStore {
    private let inner: any EndpointStore
    private let count = Locked(0)
    private let fingerprints: (own: Fingerprint, peer: Fingerprint)

    init(
        _ directory: String, _ own: ChannelConfiguration, peer: ChannelConfiguration
    ) throws(ChannelError) {
        guard let own = own.identity?.fingerprint, let peer = peer.identity?.fingerprint else {
            throw ChannelError(.configuration, "a store needs both sides' identity keys")
        }
        fingerprints = (own, peer)
        inner = try PeerConnection.Store.open(in: directory, own: own, peer: peer).endpoint
    }

    /// The store for a connection.
    var store: PeerConnection.Store { .init(own: fingerprints.own, peer: fingerprints.peer, self) }
    var commits: Int { count.withLock { $0 } }

    func claim() -> StoredEndpoint? { inner.claim() }
    func close() { inner.close() }

    func commit(_ changes: [StoreChange]) throws(StoreFailure) {
        try inner.commit(changes)
        count.withLock { $0 += 1 }
    }
}

/// A directory in `TMPDIR`, or else in `/tmp`, which is removed when this object is released.
private final class ScratchDirectory: Sendable {
    let path: String

    init() throws {
        let parent = unsafe getenv("TMPDIR").map { unsafe String(cString: $0) } ?? "/tmp"
        var template = Array("\(parent)/blesec-bench-XXXXXX".utf8CString)
        let made = unsafe template.withUnsafeMutableBufferPointer { buffer in
            unsafe buffer.baseAddress.flatMap { unsafe mkdtemp($0) }.map {
                unsafe String(cString: $0)
            }
        }
        guard let made else {
            throw ChannelError(.cannotCreate, "no directory can be made in \(parent)")
        }
        path = made
    }

    deinit {
        if let directory = unsafe opendir(path) {
            while let entry = unsafe readdir(directory) {
                let name = unsafe withUnsafePointer(to: &entry.pointee.d_name) {
                    unsafe String(cString: UnsafeRawPointer($0).assumingMemoryBound(to: CChar.self))
                }
                unsafe unlink("\(path)/\(name)")
            }
            unsafe closedir(directory)
        }
        unsafe rmdir(path)
    }
}
