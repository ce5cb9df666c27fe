import BLESecChannelCore
import BLESecLinks
import BLESecLocking
import BLESecTesting
import Testing

@testable import BLESec

/// A listener on a manual clock, to which a test opens links from addresses of its choice.
struct ListenerFixture {
    /// The keys of the known peers, and the loop and the clock that the listener and the dialers
    /// use.
    let fixture: ChannelFixture
    /// Where the listener gets its links from.
    private let source: InjectableListener
    let listener: SecureListener
    /// The codes with which handshakes failed.
    let failures: Failures

    var loop: EventLoop { fixture.loop }
    var clock: ManualClock { fixture.clock }
    var pinned: PinnedPeers { fixture.pinned }

    final class Failures: Sendable {
        private let codes = Locked<[ChannelError.Code]>([])
        func add(_ code: ChannelError.Code) { codes.withLock { $0.append(code) } }
        var all: [ChannelError.Code] { codes.withLock { $0 } }
    }

    init(
        limits: SecureListener.Limits = .init(),
        change: (inout ChannelConfiguration) -> Void = { _ in }
    ) async throws {
        fixture = try ChannelFixture()
        source = InjectableListener(loop: fixture.loop)
        let failures = Failures()
        self.failures = failures
        var configuration = try fixture.pinned.configuration(.acceptor)
        change(&configuration)
        listener = SecureListener(
            source, at: try Endpoint(parsing: "unix:/nowhere"), configuration: configuration,
            limits: limits,
            loop: fixture.loop, onFailure: { failures.add($0.error.code) })
        await listener.start()
    }

    /// Opens a link to the listener, and returns the unauthenticated peer's end. Used on the loop's
    /// thread.
    func openLink(from address: String? = nil) -> MemoryLink {
        let (peerEnd, listenerEnd) = MemoryLink.pair(loop: loop, dropsQueueOnClose: true)
        source.inject(AddressedLink(listenerEnd, address.map { LinkAddress($0) }))
        return peerEnd
    }

    /// Opens a link to the listener, lets the listener accept it, and returns the unauthenticated
    /// peer's end.
    func rawPeer(from address: String? = nil) async -> RawPeer {
        let peer = await loop.run { RawPeer(openLink(from: address)) }
        await clock.settle()
        return peer
    }

    /// Dials as the known peer, and returns the task that opens the channel. What the peer sends is
    /// delayed by the whole `roundTrip`; what the listener sends arrives without delay.
    func pinnedDial(
        from address: String? = nil, roundTrip: Duration = .zero
    ) async throws -> Task<SecureChannel, any Error> {
        let peer = await rawPeer(from: address)
        let link: any Link =
            roundTrip == .zero ? peer.link : FaultyLink(peer.link, [.delay(roundTrip)])
        let channel = try fixture.channel(over: link, .dialer)
        return Task(executorPreference: loop) {
            try await channel.open()
            return channel
        }
    }

    /// Closes the listener, expects that the listener has no links left and that the loop has no
    /// timers or event sources, and ends the loop.
    func finish() async {
        await listener.close()
        await clock.settle()
        let load = await listener.load
        #expect(load.handshakes == 0 && load.turnedAway == 0 && load.ready == 0)
        await fixture.finish()
    }
}

/// A peer that sends only the bytes that a test gives it.
final class RawPeer: Sendable {
    let link: any Link

    init(_ link: any Link) { self.link = link }

    /// Sends bytes, and returns whether the link has taken all of them.
    @discardableResult
    func send(_ bytes: [UInt8]) async -> Bool {
        await link.loop.run { [link] in
            var rest = bytes[...]
            while !rest.isEmpty {
                let part = Array(rest.prefix(link.maximumSDU))
                guard let sent = try? link.send(part.span), sent > 0 else { return false }
                rest = rest.dropFirst(sent)
            }
            return true
        }
    }

    /// Reads from the link once, and returns the bytes.
    func receive() async -> [UInt8] {
        await link.loop.run { [link] in
            [UInt8](capacity: 100_000) { space in
                _ = try? link.receive(into: &space)
            }
        }
    }

    /// Whether the listener has closed the link. The property first reads and discards all bytes
    /// that have arrived.
    var isTurnedAway: Bool {
        get async {
            await link.loop.run { [link] in
                var isEnd = false
                _ = [UInt8](capacity: 100_000) { space in
                    while let result = try? link.receive(into: &space), result == .bytes {}
                    isEnd = (try? link.receive(into: &space)) == .end
                }
                return isEnd
            }
        }
    }

    func leave() async { await link.loop.run { [link] in link.close() } }
}

/// A listener to which a test hands links.
final class InjectableListener: LinkListener, @unchecked Sendable {
    // Sendable because its state is accessed on the loop's thread only.
    private let loop: EventLoop
    private var waitingLinks: [any Link] = []
    private var waitingAccepts: [CheckedContinuation<(any Link)?, Never>] = []
    private var isClosed = false

    init(loop: EventLoop) { self.loop = loop }

    let localDescription = "injected"

    /// Hands a link to the next `accept`.
    func inject(_ link: any Link) {
        if isClosed { return link.close() }
        guard !waitingAccepts.isEmpty else { return waitingLinks.append(link) }
        waitingAccepts.removeFirst().resume(returning: link)
    }

    func accept() async throws(LinkError) -> any Link {
        let link: (any Link)? = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                loop.execute { [self] in
                    if isClosed || !waitingLinks.isEmpty {
                        continuation.resume(
                            returning: waitingLinks.isEmpty ? nil : waitingLinks.removeFirst())
                    } else {
                        waitingAccepts.append(continuation)
                    }
                }
            }
        } onCancel: {
            loop.execute { [self] in end() }
        }
        guard let link else { throw LinkError(.closed, "the listener is closed") }
        return link
    }

    func close() async {
        await loop.run { [self] in
            isClosed = true
            for link in waitingLinks { link.close() }
            waitingLinks = []
            end()
        }
    }

    private func end() {
        for continuation in waitingAccepts { continuation.resume(returning: nil) }
        waitingAccepts = []
    }
}

/// A link that reports a chosen address.
final class AddressedLink: Link, Sendable {
    private let link: any Link
    let peerAddress: LinkAddress?

    init(_ link: any Link, _ address: LinkAddress?) {
        self.link = link
        peerAddress = address
    }

    var loop: EventLoop { link.loop }
    var maximumSDU: Int { link.maximumSDU }
    var isDrained: Bool { link.isDrained }
    var peerDescription: String { peerAddress?.description ?? "nowhere" }
    var wantsRead: Bool {
        get { link.wantsRead }
        set { link.wantsRead = newValue }
    }
    var wantsWrite: Bool {
        get { link.wantsWrite }
        set { link.wantsWrite = newValue }
    }
    var keepsQueueShort: Bool {
        get { link.keepsQueueShort }
        set { link.keepsQueueShort = newValue }
    }
    func send(_ bytes: Span<UInt8>) throws(LinkError) -> Int { try link.send(bytes) }
    func receive(into buffer: inout OutputSpan<UInt8>) throws(LinkError) -> LinkReceive {
        try link.receive(into: &buffer)
    }
    func setHandler(_ handler: (any LinkHandler)?) { link.setHandler(handler) }
    func halfClose() -> Bool { link.halfClose() }
    func close() { link.close() }
}
