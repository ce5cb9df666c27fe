internal import BLESec
internal import BLESecChannelCore
internal import BLESecLinks

/// How unauthenticated peers flood a listener.
enum UnauthenticatedFlood: String, CaseIterable, Sendable {
    /// 64 peers with 8 links each, more links than the listener has places for handshakes. When a
    /// link ends, a new one replaces it at once.
    case fullSpeed = "full-speed"
    /// What a listener over LE can face: 32 devices that are connected to its adapter. Each has 4
    /// links, the limit of handshakes for one address. Together they open 1,000 links a second.
    case lowEnergy = "low-energy"

    /// The number of links that are open at the same time.
    var linkCount: Int { self == .fullSpeed ? 64 * 8 : 32 * 4 }
    /// How long a peer keeps a link, unless the listener closes the link earlier.
    var linkLifetime: Duration { self == .fullSpeed ? .seconds(60) : .milliseconds(128) }
    /// The known peers that dial during the flood.
    var knownPeers: [KnownPeers.Kind] { self == .fullSpeed ? [.near, .far] : [.overRadio] }
    /// The largest number of links at the same time: those of the unauthenticated peers, and one for
    /// each known peer of the larger group.
    var mostLinks: Int { linkCount + (knownPeers.map(\.count).max() ?? 0) }
}

/// Bytes that an unauthenticated peer can send.
struct FloodMessages: Sendable {
    /// A hello and the first handshake message of a dialer, recorded once and replayed.
    let firstFlight: [UInt8]
    /// A hello and the longest first handshake message that a listener permits. The message lacks
    /// its last byte.
    let unfinished: [UInt8]

    init(_ peers: PeerConfigurations, _ loop: EventLoop) async throws {
        let (dialerEnd, listenerEnd) = await loop.run { MemoryLink.pair(loop: loop) }
        let dialing = Task(executorPreference: loop) {
            _ = try? await SecureChannel.open(
                over: dialerEnd, role: .dialer, configuration: peers.dialer)
        }
        var flight: [UInt8] = []
        while flight.isEmpty {
            await loop.settle()
            flight = await loop.run {
                [UInt8](capacity: 8_192) { buffer in _ = try? listenerEnd.receive(into: &buffer) }
            }
        }
        dialing.cancel()
        await dialing.value
        firstFlight = flight
        let hello = try Hello(offers: peers.dialer.protocols).encoded
        let room = ChannelLimits().unauthenticatedBytes - hello.count - 2
        unfinished =
            hello + [UInt8(room >> 8), UInt8(room & 0xFF)] + [UInt8](repeating: 1, count: room - 1)
    }
}

/// Unauthenticated peers that keep a listener busy. On every second link, the peer sends a hello
/// and a first handshake message; on the others it sends nothing. Each link stays until the
/// listener closes it, or for the flood's `linkLifetime`.
actor UnauthenticatedPeers {
    private let flood: UnauthenticatedFlood
    private let address: UnixAddress
    private let messages: FloodMessages
    private let loop: EventLoop
    /// The number of links that have ended.
    private(set) var endedLinks = 0
    /// Whether ``end()`` was called, so that no new link replaces one that has ended.
    private var isOver = false
    private var tasks: [Task<Void, Never>] = []

    nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

    init(
        _ flood: UnauthenticatedFlood, _ address: UnixAddress, _ messages: FloodMessages,
        _ loop: EventLoop
    ) {
        self.flood = flood
        self.address = address
        self.messages = messages
        self.loop = loop
    }

    /// Opens all links.
    func start() {
        for index in 0..<flood.linkCount {
            let bytes = index % 2 == 0 ? messages.firstFlight : []
            tasks.append(
                Task(executorPreference: loop) { [self, loop, address, flood] in
                    while await !isOver {
                        let deadline = loop.now.advanced(by: .seconds(1))
                        let socket = try? await SocketLink.dial(
                            address, deadline: deadline, loop: loop)
                        guard let socket else { continue }
                        let link = UnauthenticatedLink(socket)
                        await link.stay(sending: bytes, atMost: flood.linkLifetime)
                        await linkEnded()
                    }
                })
        }
    }

    /// Closes all links, and returns when they are closed.
    func end() async {
        isOver = true
        for task in tasks { task.cancel() }
        for task in tasks { await task.value }
    }

    private func linkEnded() { endedLinks += 1 }
}

/// One unauthenticated peer's link. Used on the loop's thread.
final class UnauthenticatedLink: LinkHandler, TimerHandler, @unchecked Sendable {
    // Sendable because its state is used only on the loop's thread.
    private let link: SocketLink
    private var waiter: CheckedContinuation<Void, Never>?
    private var timer: LoopTimer?

    init(_ link: SocketLink) { self.link = link }

    /// Sends `bytes`, and returns when the link is closed, the time is over or the task is
    /// cancelled.
    func stay(sending bytes: [UInt8], atMost time: Duration) async {
        await withTaskCancellationHandler {
            await withCheckedContinuation { waiter in
                self.waiter = waiter
                link.setHandler(self)
                link.wantsRead = true
                let timer = LoopTimer(loop: link.loop, handler: self)
                timer.arm(in: time)
                self.timer = timer
                if Task.isCancelled || (!bytes.isEmpty && (try? link.send(bytes.span)) == nil) {
                    leave()
                }
            }
        } onCancel: {
            link.loop.execute { self.leave() }
        }
        link.close()
    }

    private func leave() {
        timer?.disarm()
        waiter.take()?.resume()
    }

    func timerFired(_ timer: LoopTimer) { leave() }

    func linkDidHangUp() { leave() }

    func linkIsReadable() {
        var result: LinkReceive?
        _ = [UInt8](capacity: 1_024) { buffer in result = try? link.receive(into: &buffer) }
        if result == nil || result == .end { leave() }
    }

    func linkIsWritable() {}
}
