import BLESecChannelCore
import BLESecLinks
import BLESecTesting
import Testing

@testable import BLESec

/// What unauthenticated peers can send. A machine limits their time and the number of their bytes.
/// These tests call the limit in bytes, `unauthenticatedBytes`, the bound.
@Suite("Before authentication")
struct UnauthenticatedTests {
    /// A dialer and an acceptor that pin each other's keys; `change` adapts the acceptor's
    /// configuration.
    static func pair(
        _ change: (inout ChannelConfiguration) -> Void = { _ in }
    ) throws -> MachinePair {
        let pinned = try PinnedPeers()
        var configuration = try pinned.configuration(.acceptor)
        change(&configuration)
        return try MachinePair(dialer: pinned.configuration(.dialer), acceptor: configuration)
    }

    static let hello = (try? Hello(offers: [ChannelConfiguration.defaultProtocol]).encoded) ?? []

    @Test("a machine times out after five seconds if its peer is silent")
    func silentPeer() throws {
        let pair = try Self.pair()
        pair.passTime(.milliseconds(4_999))
        #expect(pair.acceptor.outcome == nil)
        pair.passTime(.milliseconds(1))
        #expect(pair.acceptor.outcome?.code == .timedOut)
        #expect(pair.dialer.outcome?.code == .timedOut)
    }

    @Test("an acceptor times out after five seconds, even while bytes of a hello arrive")
    func slowHello() throws {
        let pair = try Self.pair()
        for byte in Self.hello.prefix(26) {
            pair.deliver([byte], to: .acceptor)
            pair.passTime(.milliseconds(199))
            // The pair's clock begins at one second.
            if pair.now < 5_999_000_000 { #expect(pair.acceptor.outcome == nil) }
        }
        #expect(pair.acceptor.outcome?.code == .timedOut)
    }

    @Test("a handshake that stops after any flight ends within its deadline")
    func stops() throws {
        for flights in 1...3 {
            let pair = try Self.pair()
            for index in 0..<flights { pair.step(index % 2 == 0 ? .dialer : .acceptor) }
            // After the third flight the acceptor has the dialer's `ready`. It is not ready
            // itself, because its own `ready` never leaves.
            pair.passTime(.seconds(10))
            #expect(pair.dialer.outcome?.code == .timedOut)
            #expect(pair.acceptor.outcome?.code == .timedOut)
        }
    }

    @Test("an early message above the bound is refused as soon as its length has arrived")
    func longEarly() throws {
        let pair = try Self.pair()
        pair.deliver(Self.hello + [0x80, 0x01], to: .acceptor)
        #expect(pair.acceptor.outcome?.code == .protocolViolation)
    }

    @Test("an early message of no bytes is refused")
    func emptyEarly() throws {
        let pair = try Self.pair()
        pair.deliver(Self.hello + [0, 0], to: .acceptor)
        #expect(pair.acceptor.outcome?.code == .protocolViolation)
    }

    @Test(
        "before authentication a machine accepts no more bytes than its bound, in pieces of any size",
        arguments: [1, 100, 65_536])
    func bound(piece: Int) throws {
        let pair = try Self.pair { $0.limits.unauthenticatedBytes = 4_096 }
        // The early message alone is as long as the bound, so hello and early message exceed it.
        let early = [UInt8](repeating: 1, count: 4_096)
        let flood = Self.hello + [0x10, 0x00] + early
        var sent = 0
        while pair.acceptor.outcome == nil, sent < flood.count {
            let part = Array(flood[sent..<min(sent + piece, flood.count)])
            pair.deliver(part, to: .acceptor)
            sent += part.count
            if pair.acceptor.outcome == nil { #expect(pair.acceptor.unprocessedBytes <= 4_096) }
        }
        #expect(pair.acceptor.outcome?.code == .limitExceeded)
        #expect(sent <= 4_096 + piece)
    }

    @Test("no more than the bound is read from the link, however many bytes wait there")
    func readsNoMore() async throws {
        let fixture = try ChannelFixture()
        let (near, far) = await fixture.loop.run { [loop = fixture.loop] in
            MemoryLink.pair(loop: loop, capacity: 200_000, maximumSDU: 200_000)
        }
        let link = await fixture.loop.run { FaultyLink(far) }
        let channel = try fixture.channel(over: link, .acceptor)
        let opening = fixture.opening(channel)
        // An early message of 32,768 bytes is announced, and more bytes than that follow.
        let bytes = Self.hello + [0x80, 0x00] + [UInt8](repeating: 1, count: 150_000)
        await fixture.loop.run { _ = try? near.send(bytes.span) }
        #expect(await failure(of: opening) == .limitExceeded)
        #expect(await fixture.loop.run { link.receivedBytes } == 32_768)
        await fixture.loop.run { near.close() }
        await fixture.finish()
    }

    @Test(
        "a bound equal to the bytes up to and including `ready` is enough, and one byte less is not",
        arguments: [ChannelRole.dialer, .acceptor], [0, 1])
    func exactBound(role: ChannelRole, missing: Int) async throws {
        let pair = try PinnedPeers().pair()
        pair.run()
        let needed = pair.sent[role.peer, default: []].reduce(0) { $0 + $1.count }
        let fixture = try ChannelFixture()
        let (first, second) = await fixture.links()
        let setBound = { (configuration: inout ChannelConfiguration) in
            configuration.limits.unauthenticatedBytes = needed - missing
        }
        let dialer = try fixture.channel(over: first, .dialer) {
            if role == .dialer { setBound(&$0) }
        }
        let acceptor = try fixture.channel(over: second, .acceptor) {
            if role == .acceptor { setBound(&$0) }
        }
        let (bounded, peer) = role == .dialer ? (dialer, acceptor) : (acceptor, dialer)
        // The peer sends as soon as it is ready, so its messages directly follow its `ready`. They
        // must not count towards the bound.
        let sending = Task(executorPreference: fixture.loop) {
            try await peer.open()
            for _ in 0..<40 { try await peer.send(Array(repeating: 7, count: 1_000)) }
        }
        let opening = fixture.opening(bounded)
        if missing == 0 {
            try await opening.value
            for _ in 0..<40 { #expect(try await bounded.receive()?.count == 1_000) }
            try await sending.value
        } else {
            #expect(await failure(of: opening) == .limitExceeded)
            let link = role == .dialer ? first : second
            #expect(await fixture.loop.run { link.receivedBytes } == needed - 1)
            _ = await failure(of: sending)
        }
        await dialer.abort()
        await acceptor.abort()
        await fixture.finish()
    }

    @Test("padding before ready counts towards the bound")
    func padding() throws {
        let peer = try MaliciousNoisePeer()
        try peer.shakeHands()
        for _ in 0..<100 where peer.victimFailure == nil {
            try peer.send(.padding, Array(repeating: 0, count: 1_000))
        }
        #expect(peer.victimFailure == .limitExceeded)
        #expect(peer.records.allSatisfy { $0.type == .ready })
    }

    @Test("random bytes neither crash a machine of either role nor make it ready")
    func randomBytes() throws {
        var random = SeededGenerator(seed: 11)
        for round in 0..<300 {
            let pair = try Self.pair()
            let bytes = random.bytes(Int.random(in: 1...3_000, using: &random))
            switch round % 4 {
            case 0: pair.deliver(bytes, to: .acceptor)
            case 1: pair.deliver(Self.hello + bytes, to: .acceptor, piece: 7)
            case 2: pair.deliver(bytes, to: .dialer)
            default: pair.deliver(Answer(.accept).encoded + bytes, to: .dialer, piece: 9)
            }
            pair.passTime(.seconds(5))
            pair.passTime(.seconds(10))
            #expect(pair.acceptor.outcome != nil && pair.dialer.outcome != nil)
            #expect(pair.acceptor.isReady == false && pair.dialer.isReady == false)
        }
    }

    @Test("a session's record that comes before ready ends the channel, and no data is delivered")
    func earlyData() throws {
        for role in [ChannelRole.dialer, .acceptor] {
            for type in [RecordType.data, .dataMore, .end, .ping, .pong, .rekey, .ack] {
                let peer = try MaliciousNoisePeer(role)
                try peer.shakeHands()
                try peer.send(type, [0])
                #expect(peer.victimFailure == .protocolViolation)
                #expect(peer.victim.nextMessage() == nil)
            }
        }
    }

    @Test("the receiver's own ready and a ready of wrong length or with a changed bit are refused")
    func wrongReady() throws {
        for role in [ChannelRole.dialer, .acceptor] {
            let changes: [(MaliciousNoisePeer) -> [UInt8]] = [
                { $0.transcript.ready(from: role.peer) },
                { $0.transcript.ready(from: role).dropLast() },
                { $0.transcript.ready(from: role) + [0] },
                { _ in [] },
                { peer in
                    var ready = peer.transcript.ready(from: role)
                    ready[31] ^= 1
                    return ready
                },
            ]
            for change in changes {
                let peer = try MaliciousNoisePeer(role)
                try peer.shakeHands()
                try peer.send(.ready, change(peer))
                #expect(peer.victimFailure == .authenticationFailed)
                let isReady = peer.isVictimReady
                #expect(!isReady)
            }
        }
    }

    @Test(
        "a reject ends the channel with its code's error; an unknown code is a protocol violation",
        arguments: [
            (1, .refused), (2, .busy), (3, .refused), (0, .protocolViolation),
            (4, .protocolViolation),
        ] as [(UInt8, ChannelError.Code)])
    func reject(code: UInt8, failure: ChannelError.Code) throws {
        for role in [ChannelRole.dialer, .acceptor] {
            let peer = try MaliciousNoisePeer(role)
            try peer.shakeHands()
            try peer.send(.reject, [code] + Array(repeating: 0, count: 31))
            #expect(peer.victimFailure == failure)
        }
    }

    @Test("a reject of a wrong length or with nonzero bytes after its code is a protocol violation")
    func malformedReject() throws {
        for payload in [
            [1], [1] + Array(repeating: 0, count: 30), [1] + Array(repeating: 0, count: 32),
            [1] + Array(repeating: 0, count: 30) + [1], [],
        ] as [[UInt8]] {
            let peer = try MaliciousNoisePeer()
            try peer.shakeHands()
            try peer.send(.reject, payload)
            #expect(peer.victimFailure == .protocolViolation)
        }
    }

    @Test("a reject after ready is a protocol violation")
    func lateReject() throws {
        let peer = try MaliciousNoisePeer.ready()
        try peer.send(.reject, [1] + Array(repeating: 0, count: 31))
        #expect(peer.victimFailure == .protocolViolation)
    }
}
