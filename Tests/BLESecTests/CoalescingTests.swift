import BLESecChannelCore
import BLESecLinks
import BLESecLocking
import BLESecTesting
import Glibc
import Testing

@testable import BLESec

/// When queued messages are sent, and that none of them stays queued.
@Suite("Coalescing")
struct CoalescingTests {
    /// The two ends of a ready channel, whose dialer sends over a link that counts the sends.
    private static func channels(
        _ fixture: ChannelFixture, maximumSDU: Int = 8_192,
        change: (inout ChannelConfiguration) -> Void = { _ in }
    ) async throws -> (dialer: SecureChannel, acceptor: SecureChannel, link: CountingLink) {
        let (near, far) = await fixture.loop.run { [loop = fixture.loop] in
            MemoryLink.pair(loop: loop, capacity: 1 << 20, maximumSDU: maximumSDU)
        }
        let link = CountingLink(near)
        let dialer = try fixture.channel(over: link, .dialer, change: change)
        let acceptor = try fixture.channel(over: far, .acceptor)
        let openings = [fixture.opening(dialer), fixture.opening(acceptor)]
        for opening in openings { try await opening.value }
        await fixture.clock.settle()
        return (dialer, acceptor, link)
    }

    @Test("the first message of a turn is sent at once, and the following messages in one send")
    func oneTurn() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor, link) = try await Self.channels(fixture)
        let handshakeSends = await fixture.loop.run { link.sendCount }
        let sends = try await Task(executorPreference: fixture.loop) {
            let sendsBefore = link.sendCount
            try await dialer.send([0])
            let sendsAfterFirst = link.sendCount
            for index in 1..<10 { try await dialer.send([UInt8(index)]) }
            return [sendsAfterFirst - sendsBefore, link.sendCount - sendsAfterFirst]
        }.value
        #expect(sends == [1, 0])
        for index in 0..<10 { #expect(try await acceptor.receive() == [UInt8(index)]) }
        #expect(await fixture.loop.run { link.sendCount } == handshakeSends + 2)
    }

    @Test("an acceptor's `ready` leaves together with what its program sends in the same turn")
    func greeting() async throws {
        /// What the acceptor's program does as soon as the channel is ready.
        for program: @Sendable (SecureChannel) async throws -> Void in [
            { try await $0.send([1]) }, { try await $0.close() }, { try await $0.finish() },
            { _ in },
        ] {
            let fixture = try ChannelFixture()
            let (near, far) = await fixture.loop.run { [loop = fixture.loop] in
                MemoryLink.pair(loop: loop, capacity: 1 << 20, maximumSDU: 8_192)
            }
            let link = CountingLink(far)
            let acceptor = try fixture.channel(over: link, .acceptor)
            let greeting = Task(executorPreference: fixture.loop) {
                try await acceptor.open()
                try await program(acceptor)
            }
            let dialer = try fixture.channel(over: near, .dialer)
            try await fixture.opening(dialer).value
            await fixture.clock.settle()
            // One send has the answer and the second handshake message, the other has `ready` and
            // what the program has sent.
            #expect(await fixture.loop.run { link.sendCount } == 2)
            await dialer.abort()
            try? await greeting.value
        }
    }

    @Test("32 KiB of queued messages are sent before the turn ends")
    func muchInOneTurn() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor, link) = try await Self.channels(fixture)
        let bytes = try await Task(executorPreference: fixture.loop) {
            try await dialer.send([0])
            let bytesBefore = link.byteCount
            for _ in 0..<4 { try await dialer.send([UInt8](repeating: 1, count: 8_192)) }
            return link.byteCount - bytesBefore
        }.value
        #expect(bytes >= 32_768)
        await acceptor.abort()
    }

    @Test("messages of one call arrive in order, however few bytes may be queued")
    func oneCall() async throws {
        for sendAhead in [1, 1_000, 1 << 20] {
            let fixture = try ChannelFixture()
            let (dialer, acceptor, _) = try await Self.channels(fixture) {
                $0.limits.sendAhead = sendAhead
            }
            let messages = (0..<200).map { [UInt8](repeating: UInt8($0), count: 100) }
            let sending = Task { try await dialer.send(contentsOf: messages) }
            var arrived: [[UInt8]] = []
            while arrived.count < 200, let batch = try await acceptor.receive(upTo: 7) {
                #expect(1...7 ~= batch.count)
                arrived += batch
            }
            #expect(arrived == messages)
            try await sending.value
            #expect(await acceptor.lastReceived == 200)
        }
    }

    @Test("messages of one call are sent at once, in one send")
    func oneCallOneSend() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor, link) = try await Self.channels(fixture)
        let sendsBefore = await fixture.loop.run { link.sendCount }
        try await dialer.send(contentsOf: (0..<16).map { [$0] })
        #expect(await fixture.loop.run { link.sendCount } == sendsBefore + 1)
        #expect(try await acceptor.receive(upTo: 100) == (0..<16).map { [$0] })
    }

    /// How the dialer ends in the turn in which it has sent messages: with a call, or, with `drop`,
    /// because the test releases it.
    enum Ending: CaseIterable, Sendable { case finish, close, abort, drop }

    @Test("before a channel ends, it sends the messages of the turn", arguments: Ending.allCases)
    func endInSameTurn(_ ending: Ending) async throws {
        let fixture = try ChannelFixture()
        let acceptor = try await Self.sendAndEnd(fixture, ending)
        for index in 0..<10 { #expect(try await acceptor.receive() == [UInt8(index)]) }
    }

    private static func sendAndEnd(
        _ fixture: ChannelFixture, _ ending: Ending
    ) async throws -> SecureChannel {
        // The only reference to the dialer, except while one of its calls runs.
        let box = Locked<SecureChannel?>(nil)
        let acceptor: SecureChannel
        do {
            let pair = try await channels(fixture)
            box.withLock { $0 = pair.dialer }
            acceptor = pair.acceptor
        }
        try await Task(executorPreference: fixture.loop) {
            for index in 0..<10 { try await box.withLock { $0 }?.send([UInt8(index)]) }
            switch ending {
            case .finish: try await box.withLock { $0 }?.finish()
            case .close:
                Task(executorPreference: fixture.loop) { try await box.withLock { $0 }?.close() }
            case .abort: await box.withLock { $0 }?.abort()
            case .drop: box.withLock { $0 = nil }
            }
        }.value
        return acceptor
    }

    @Test("over small SDUs too, a channel sends all messages before it ends, if the link has room")
    func endWithSmallSDUs() async throws {
        for isOneCall in [false, true] {
            let fixture = try ChannelFixture()
            let (dialer, acceptor, _) = try await Self.channels(fixture, maximumSDU: 160)
            let messages = (0..<10).map { [UInt8](repeating: $0, count: 1_000) }
            try await Task(executorPreference: fixture.loop) {
                if isOneCall {
                    try await dialer.send(contentsOf: messages)
                } else {
                    for message in messages { try await dialer.send(message) }
                }
                await dialer.abort()
            }.value
            for message in messages { #expect(try await acceptor.receive() == message) }
        }
    }

    @Test("a peer that is put on the deny list gets nothing more of the turn's messages")
    func denied() async throws {
        let fixture = try ChannelFixture()
        let list = DenyList()
        let (dialer, acceptor, _) = try await Self.channels(fixture) {
            $0.trust = $0.trust.denying(list)
        }
        let key = try #require(await dialer.peer.fingerprint)
        try await Task(executorPreference: fixture.loop) {
            try await dialer.send([0])
            list.replace(with: [key])
            try await dialer.send([1])
        }.value
        #expect(try await acceptor.receive() == [0])
        await #expect(throws: ChannelError.self) { try await acceptor.receive() }
    }

    @Test("a link that is full is not tried again for each message")
    func fullLink() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor, link) = try await Self.channels(fixture) {
            $0.limits.sendAhead = 1 << 20
        }
        await fixture.loop.run { link.isFull = true }
        let attempts = try await Task(executorPreference: fixture.loop) {
            let attemptsBefore = link.attempts
            for _ in 0..<500 { try await dialer.send([UInt8](repeating: 1, count: 1_000)) }
            return link.attempts - attemptsBefore
        }.value
        // The full link is tried again only when the memory link below it reports room. The memory
        // link has room, so it reports this before each job of the loop. The sending task makes at
        // most 64 sends in one job.
        #expect(attempts < 30)
        await dialer.abort()
        await acceptor.abort()
    }

    @Test("a loop that is shut down sends the messages of the turn first")
    func shutdownInSameTurn() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor, link) = try await Self.channels(fixture)
        let bytes = try await Task(executorPreference: fixture.loop) {
            try await dialer.send([0])
            let bytesBefore = link.byteCount
            try await dialer.send([UInt8](repeating: 1, count: 1_000))
            let sentBeforeShutdown = link.byteCount - bytesBefore
            await fixture.loop.shutdown()
            return [sentBeforeShutdown, link.byteCount - bytesBefore]
        }.value
        #expect(bytes[0] == 0 && bytes[1] >= 1_000)
        await acceptor.abort()
    }

    @Test("a task that sends without ever waiting lets other jobs of the loop run")
    func fairness() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor, link) = try await Self.channels(fixture)
        await fixture.loop.run { link.discards = true }
        let counts = Counts()
        let sending = Task(executorPreference: fixture.loop) {
            while counts.jobs < 100 {
                try await dialer.send([1])
                counts.sent += 1
            }
        }
        await withCheckedContinuation { done in
            fixture.loop.execute { counts.runJobs(on: fixture.loop, done) }
        }
        try await sending.value
        // Between two jobs the task completes the call that gave way, and makes at most 64 more.
        #expect(counts.sent > 0 && counts.maximumBetweenJobs <= 65)
        await acceptor.abort()
    }

    /// How many messages a task sends while a chain of jobs runs on the same loop.
    private final class Counts: @unchecked Sendable {
        // Sendable because it is used on the loop's thread only.
        var sent = 0
        var jobs = 0
        /// The most messages that were sent between two jobs.
        var maximumBetweenJobs = 0
        /// The value of `sent` at the previous job.
        private var sentAtPreviousJob = 0

        /// Runs 100 jobs, each of which queues the next.
        func runJobs(on loop: EventLoop, _ done: CheckedContinuation<Void, Never>) {
            jobs += 1
            if jobs > 1 { maximumBetweenJobs = max(maximumBetweenJobs, sent - sentAtPreviousJob) }
            sentAtPreviousJob = sent
            guard jobs < 100 else { return done.resume() }
            loop.execute { self.runJobs(on: loop, done) }
        }
    }
}

/// A link that counts the calls of ``send(_:)``, and the bytes that it has taken.
final class CountingLink: Link, @unchecked Sendable {
    // Sendable because its state is used on the loop's thread only.
    private let link: any Link
    /// The number of calls that have taken bytes.
    private(set) var sendCount = 0
    /// The number of all calls.
    private(set) var attempts = 0
    private(set) var byteCount = 0
    /// Whether sends take everything and pass nothing on.
    var discards = false
    /// Whether sends take nothing.
    var isFull = false
    /// How many further sends fail because the kernel has no memory for them.
    var failuresLeft = 0

    init(_ link: any Link) { self.link = link }

    func send(_ bytes: Span<UInt8>) throws(LinkError) -> Int {
        attempts += 1
        if isFull { return 0 }
        if failuresLeft > 0 {
            failuresLeft -= 1
            throw LinkError(.unavailable, "the kernel has no memory for it", systemError: ENOBUFS)
        }
        let count = discards ? bytes.count : try link.send(bytes)
        if count > 0 { sendCount += 1 }
        byteCount += count
        return count
    }

    var loop: EventLoop { link.loop }
    var maximumSDU: Int { link.maximumSDU }
    var isDrained: Bool { link.isDrained }
    var peerDescription: String { link.peerDescription }
    var peerAddress: LinkAddress? { link.peerAddress }
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
    func receive(into buffer: inout OutputSpan<UInt8>) throws(LinkError) -> LinkReceive {
        try link.receive(into: &buffer)
    }
    func setHandler(_ handler: (any LinkHandler)?) { link.setHandler(handler) }
    func halfClose() -> Bool { link.halfClose() }
    func close() { link.close() }
}
