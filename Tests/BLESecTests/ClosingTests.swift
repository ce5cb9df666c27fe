import BLESecChannelCore
import BLESecLinks
import BLESecTesting
import Testing

@testable import BLESec

/// Both sides send messages, and end at random moments, over a link that loses its queue when it is
/// closed.
@Suite("Closing under load")
struct ClosingTests {
    /// How a side ends.
    enum Ending: CaseIterable {
        /// `finish`, then receive to the end.
        case finish
        /// `close` while still receiving.
        case close
        /// `finish`, receive to the end, then `close`.
        case finishThenClose
        /// `close`, while the side receives no more than its first 0 to 20 messages.
        case closeEarly
        case abort
        /// The link breaks.
        case cut
        /// Stands for a channel that is released: also calls `abort`, because the test still needs
        /// the channel.
        case drop
    }

    /// What one side did and saw.
    struct Account {
        /// How many messages the channel took, whether or not `deliver` threw afterwards.
        var sent = 0
        /// The numbers of the messages for which `deliver` returned `.delivered`.
        var delivered: [Int] = []
        /// The numbers of the messages that `receive` returned; -1 for a message with wrong
        /// content.
        var received: [Int] = []
        /// Whether `receive` returned `nil`, which means the peer's end.
        var sawEnd = false
        /// Whether `close` returned without an error.
        var closed = false
        var ending = Ending.drop
    }

    @Test(
        "in a thousand runs no delivered message is lost, and no close succeeds without both ends")
    func thousand() async throws {
        let fixture = try ChannelFixture()
        var endings: [String: Int] = [:]
        for batch in 0..<20 {
            let seeds = (0..<50).map { UInt64(batch * 50 + $0) }
            let rounds = Task(executorPreference: fixture.loop) {
                try await withThrowingTaskGroup(of: (UInt64, Account, Account).self) { group in
                    for seed in seeds {
                        group.addTask(executorPreference: fixture.loop) {
                            let (dialer, acceptor) = try await Self.round(seed, fixture)
                            return (seed, dialer, acceptor)
                        }
                    }
                    return try await group.reduce(into: []) { $0.append($1) }
                }
            }
            let watch = Task { _ = try await rounds.value }
            await fixture.advance(until: watch)
            for (seed, dialer, acceptor) in try await rounds.value {
                Self.check(dialer, acceptor, "seed \(seed), dialer")
                Self.check(acceptor, dialer, "seed \(seed), acceptor")
                for account in [dialer, acceptor] {
                    endings["\(account.ending) \(account.closed)", default: 0] += 1
                }
            }
        }
        // Each of these endings must have succeeded, and failed, more than 20 times.
        for ending in [Ending.close, .finishThenClose] {
            #expect(endings["\(ending) true", default: 0] > 20)
            #expect(endings["\(ending) false", default: 0] > 20)
        }
        await fixture.finish()
    }

    /// Checks what must hold for a side, whatever the other side did.
    static func check(_ side: Account, _ other: Account, _ comment: Comment) {
        #expect(other.received == Array(0..<other.received.count), comment)
        #expect(other.received.count <= side.sent, comment)
        for number in side.delivered { #expect(number < other.received.count, comment) }
        // If both sides end properly, each sees the other's end, and every `close` succeeds.
        let proper: [Ending] = [.finish, .close, .finishThenClose]
        if proper.contains(side.ending), proper.contains(other.ending) {
            #expect(side.sawEnd && (side.closed || side.ending == .finish), comment)
        }
        if side.sawEnd { #expect(side.received.count == other.sent, comment) }
        guard side.closed else { return }
        #expect(side.sawEnd, comment)
        #expect(side.received.count == other.sent, comment)
        #expect(other.received.count == side.sent, comment)
        #expect(other.sawEnd, comment)
    }

    private static func round(
        _ seed: UInt64, _ fixture: ChannelFixture
    ) async throws -> (Account, Account) {
        var random = SeededGenerator(seed: seed)
        let (first, second) = await fixture.links(
            capacity: [8_192, 20_000, 65_536].randomElement(using: &random) ?? 8_192)
        let dialer = try fixture.channel(over: first, .dialer) { change(&$0, &random) }
        let acceptor = try fixture.channel(over: second, .acceptor) { change(&$0, &random) }
        for opening in [fixture.opening(dialer), fixture.opening(acceptor)] {
            try await opening.value
        }
        let seeds = (random.next(), random.next())
        async let one = side(dialer, first, seeds.0)
        async let other = side(acceptor, second, seeds.1)
        return try await (one, other)
    }

    private static func change(
        _ configuration: inout ChannelConfiguration, _ random: inout SeededGenerator
    ) {
        configuration.limits.readAhead = Int.random(in: 1...40_000, using: &random)
        configuration.limits.sendAhead = Int.random(in: 1...20_000, using: &random)
    }

    /// Runs one side: a task that sends, a task that receives, and the ending at a random moment.
    private static func side(
        _ channel: SecureChannel, _ link: FaultyLink, _ seed: UInt64
    ) async throws -> Account {
        var random = SeededGenerator(seed: seed)
        let ending = Ending.allCases.randomElement(using: &random) ?? .close
        let count = Int.random(in: 0...30, using: &random)
        let stopsReceiving =
            [.closeEarly, .abort, .cut, .drop].contains(ending)
            ? Int.random(in: 0...20, using: &random) : Int.max
        let sending = Task(executorPreference: channel.loop) { [random] in
            await send(count, channel, random)
        }
        let receiving = Task(executorPreference: channel.loop) {
            await receive(channel, atMost: stopsReceiving)
        }
        let moment = Duration.microseconds(Int.random(in: 0...200_000, using: &random))
        try await channel.loop.sleep(for: moment)
        var closed = false
        switch ending {
        case .finish: try? await channel.finish()
        case .close, .closeEarly: closed = await closes(channel)
        case .finishThenClose:
            try? await channel.finish()
            _ = await receiving.value
            closed = await closes(channel)
        case .abort: await channel.abort()
        case .cut: await channel.loop.run { link.cut() }
        case .drop: break
        }
        if ending == .drop { await channel.abort() }
        var account = await sending.value
        account.ending = ending
        account.closed = closed
        account.sent = Int(await channel.holdings.queued)
        (account.received, account.sawEnd) = await receiving.value
        // Messages that have arrived can be received after the end of the channel, too.
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
            let length = Int.random(
                in: 2...(Int.random(in: 0..<8, using: &random) == 0 ? 30_000 : 900), using: &random)
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
                // A message whose content differs from what was sent gets a number that was not
                // sent.
                let isWhole = message.dropFirst(2).allSatisfy { $0 == UInt8(number & 0xFF) }
                numbers.append(isWhole ? number : -1)
            }
        } catch {}
        return (numbers, false)
    }

    private static func closes(_ channel: SecureChannel) async -> Bool {
        do {
            try await channel.close()
            return true
        } catch {
            return false
        }
    }
}
