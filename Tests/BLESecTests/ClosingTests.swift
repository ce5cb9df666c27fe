import BLESecChannelCore
import BLESecLinks
import BLESecTesting
import Testing

@testable import BLESec

/// Both sides send messages, and end at random moments, over a link that loses its queue when it is
/// closed.
@Suite("Closing under load", .timeLimit(.minutes(5)))
struct ClosingTests {
    /// How a side ends.
    enum Ending: CaseIterable {
        /// `finish`, then receive up to the peer's end.
        case finish
        /// `close` while still receiving.
        case close
        /// `finish`, receive up to the peer's end, then `close`.
        case finishThenClose
        /// `close`; the side stops receiving after 0 to 20 messages.
        case closeEarly
        case abort
        /// The link breaks.
        case cut
    }

    /// What one side did and observed.
    struct Account {
        /// How many messages the channel queued, even if `deliver` threw afterwards.
        var queuedCount = 0
        /// The numbers of the messages for which `deliver` returned `.delivered`.
        var delivered: [Int] = []
        /// The numbers of the messages that `receive` returned; -1 is a message with wrong content.
        var received: [Int] = []
        /// Whether `receive` returned `nil`, which means the peer's end.
        var sawEnd = false
        /// Whether `close` returned without an error.
        var closeSucceeded = false
        var ending = Ending.abort
    }

    @Test(
        "in a thousand runs no delivered message is lost, and `close` succeeds only if both sides sent their end"
    )
    func thousand() async throws {
        let fixture = try ChannelFixture()
        // How many sides ended in each way. A key names the ending and whether `close` succeeded,
        // such as "close true".
        var endingCounts: [String: Int] = [:]
        for batch in 0..<20 {
            let seeds = (0..<50).map { UInt64(batch * 50 + $0) }
            let runs = Task(executorPreference: fixture.loop) {
                try await withThrowingTaskGroup(
                    of: (seed: UInt64, dialer: Account, acceptor: Account).self
                ) { group in
                    for seed in seeds {
                        group.addTask(executorPreference: fixture.loop) {
                            let (dialer, acceptor) = try await Self.run(seed, fixture)
                            return (seed, dialer, acceptor)
                        }
                    }
                    return try await group.reduce(into: []) { $0.append($1) }
                }
            }
            let done = Task { _ = try await runs.value }
            guard await fixture.advance(until: done) else { return }
            for (seed, dialer, acceptor) in try await runs.value {
                Self.check(dialer, acceptor, "seed \(seed), dialer")
                Self.check(acceptor, dialer, "seed \(seed), acceptor")
                for account in [dialer, acceptor] {
                    endingCounts["\(account.ending) \(account.closeSucceeded)", default: 0] += 1
                }
            }
        }
        // With each of these endings, `close` must have succeeded more than 20 times, and must have
        // thrown more than 20 times.
        for ending in [Ending.close, .finishThenClose] {
            #expect(endingCounts["\(ending) true", default: 0] > 20)
            #expect(endingCounts["\(ending) false", default: 0] > 20)
        }
        await fixture.finish()
    }

    /// Checks what one side did and saw against what its peer did and saw.
    static func check(_ side: Account, _ peer: Account, _ comment: Comment) {
        #expect(peer.received == Array(0..<peer.received.count), comment)
        #expect(peer.received.count <= side.queuedCount, comment)
        for number in side.delivered { #expect(number < peer.received.count, comment) }
        // If both sides end and receive everything, each sees its peer's end, and every `close`
        // succeeds.
        let completeEndings: [Ending] = [.finish, .close, .finishThenClose]
        if completeEndings.contains(side.ending), completeEndings.contains(peer.ending) {
            #expect(side.sawEnd && (side.closeSucceeded || side.ending == .finish), comment)
        }
        if side.sawEnd { #expect(side.received.count == peer.queuedCount, comment) }
        guard side.closeSucceeded else { return }
        #expect(side.sawEnd, comment)
        #expect(side.received.count == peer.queuedCount, comment)
        #expect(peer.received.count == side.queuedCount, comment)
        #expect(peer.sawEnd, comment)
    }

    private static func run(
        _ seed: UInt64, _ fixture: ChannelFixture
    ) async throws -> (dialer: Account, acceptor: Account) {
        var random = SeededGenerator(seed: seed)
        let (first, second) = await fixture.links(
            capacity: [8_192, 20_000, 65_536].randomElement(using: &random) ?? 8_192)
        let dialer = try fixture.channel(over: first, .dialer) { randomizeLimits(&$0, &random) }
        let acceptor = try fixture.channel(over: second, .acceptor) {
            randomizeLimits(&$0, &random)
        }
        for opening in [fixture.opening(dialer), fixture.opening(acceptor)] {
            try await opening.value
        }
        let seeds = (dialer: random.next(), acceptor: random.next())
        async let dialerAccount = runSide(dialer, first, seeds.dialer)
        async let acceptorAccount = runSide(acceptor, second, seeds.acceptor)
        return try await (dialerAccount, acceptorAccount)
    }

    private static func randomizeLimits(
        _ configuration: inout ChannelConfiguration, _ random: inout SeededGenerator
    ) {
        configuration.limits.readAhead = Int.random(in: 1...40_000, using: &random)
        configuration.limits.sendAhead = Int.random(in: 1...20_000, using: &random)
    }

    /// Runs one side: a task that sends, a task that receives, and the ending at a random moment.
    private static func runSide(
        _ channel: SecureChannel, _ link: FaultyLink, _ seed: UInt64
    ) async throws -> Account {
        var random = SeededGenerator(seed: seed)
        let ending = Ending.allCases.randomElement(using: &random) ?? .close
        let messageCount = Int.random(in: 0...30, using: &random)
        let receiveLimit =
            [.closeEarly, .abort, .cut].contains(ending)
            ? Int.random(in: 0...20, using: &random) : Int.max
        let sending = Task(executorPreference: channel.loop) { [random] in
            await send(messageCount, channel, random)
        }
        let receiving = Task(executorPreference: channel.loop) {
            await receive(channel, atMost: receiveLimit)
        }
        let delay = Duration.microseconds(Int.random(in: 0...200_000, using: &random))
        try await channel.loop.sleep(for: delay)
        var closeSucceeded = false
        switch ending {
        case .finish: try? await channel.finish()
        case .close, .closeEarly: closeSucceeded = await close(channel)
        case .finishThenClose:
            try? await channel.finish()
            _ = await receiving.value
            closeSucceeded = await close(channel)
        case .abort: await channel.abort()
        case .cut: await channel.loop.run { link.cut() }
        }
        var account = await sending.value
        account.ending = ending
        account.closeSucceeded = closeSucceeded
        account.queuedCount = Int(await channel.traffic.queuedMessages)
        (account.received, account.sawEnd) = await receiving.value
        // The messages that had arrived can still be received after the channel has ended.
        let (rest, sawEnd) = await receive(channel, atMost: .max)
        account.received += rest
        account.sawEnd = account.sawEnd || sawEnd
        return account
    }

    private static func send(
        _ count: Int, _ channel: SecureChannel, _ random: SeededGenerator
    ) async -> Account {
        var random = random
        var account = Account()
        for number in 0..<count {
            let greatestLength = Int.random(in: 0..<8, using: &random) == 0 ? 30_000 : 900
            let length = Int.random(in: 2...greatestLength, using: &random)
            let message =
                [UInt8(number >> 8), UInt8(number & 0xFF)]
                + [UInt8](repeating: UInt8(number & 0xFF), count: length - 2)
            do {
                if Bool.random(using: &random) {
                    guard try await channel.deliver(message) == .delivered else { break }
                    account.delivered.append(number)
                } else {
                    try await channel.send(message)
                }
            } catch {
                break
            }
        }
        return account
    }

    private static func receive(
        _ channel: SecureChannel, atMost limit: Int
    ) async -> (numbers: [Int], sawEnd: Bool) {
        var numbers: [Int] = []
        do {
            while numbers.count < limit {
                guard let message = try await channel.receive() else { return (numbers, true) }
                let number = Int(message[0]) << 8 | Int(message[1])
                // A message with wrong content is recorded as -1, which is no message's number.
                let isWhole = message.dropFirst(2).allSatisfy { $0 == UInt8(number & 0xFF) }
                numbers.append(isWhole ? number : -1)
            }
        } catch {}
        return (numbers, false)
    }

    /// Closes the channel, and returns whether `close` succeeded.
    private static func close(_ channel: SecureChannel) async -> Bool {
        do {
            try await channel.close()
            return true
        } catch {
            return false
        }
    }
}
