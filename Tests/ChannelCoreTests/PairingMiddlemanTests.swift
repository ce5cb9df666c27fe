import BLESecLocking
import BLESecPrimitives
import FoundationEssentials
import Testing

@testable import BLESecChannelCore

/// Mallory is between Alice, who dials, and Bob, who listens. He has one channel with each: two
/// handshake hashes, and keys of his own. He knows everything but the code, and nobody sees him.
@Suite("Middleman in a pairing")
struct PairingMiddlemanTests {
    static let roles = [ChannelRole.dialer, .acceptor]

    /// The seed of this run's random attacks: a fixed value, unless `BLESEC_SEED` sets another.
    static let seed: UInt64 = {
        let given = ProcessInfo.processInfo.environment["BLESEC_SEED"].flatMap { UInt64($0) }
        let seed = given ?? 1
        print("PairingMiddlemanTests: attacks from seed \(seed); BLESEC_SEED=N takes another")
        return seed
    }()

    // MARK: - By a code

    @Test(
        "whatever a middleman does, each side answers exactly three guesses, also if he cuts links early",
        arguments: roles)
    func threeAnswers(side: ChannelRole) async throws {
        var random = Random(seed: Self.seed)
        let device = try PairingDevice()
        for _ in 0..<40 {
            let code = try TrustPolicy.PairingCode("271828")
            var answers = 0
            for number in 0..<12 {
                // The last four are complete, so that no try is left.
                let stop = number < 8 ? random.number(0...3) : 3
                let leg = try Leg(side, device, .code(code), random: &random)
                let guess = Guess(String(100_000 + random.number(0...99_999)), at: leg)
                if stop > 0 { await guess.offer() }
                if stop == 1 { await leg.give(.confirm, random.bytes(63)) }
                if stop == 2 { await leg.give(.done, []) }
                if stop == 3, await guess.test() != nil { answers += 1 }
                #expect(answers <= 3 && code.triesLeft == 3 - answers)
            }
            #expect(answers == 3)
            let late = Guess("271828", at: try Leg(side, device, .code(code), random: &random))
            await late.offer()
            #expect(await late.test() == nil)
            #expect(late.leg.error?.reason.contains("was tried 3 times") == true)
        }
        #expect(device.names.isEmpty)
        #expect(device.pending.allSatisfy { !$0.isVerified })
    }

    @Test("links that are open at the same time share the three guesses", arguments: roles)
    func parallelGuesses(side: ChannelRole) async throws {
        var random = Random(seed: Self.seed)
        let device = try PairingDevice()
        let code = try TrustPolicy.PairingCode("271828")
        var guesses: [Guess] = []
        for number in 0..<8 {
            let leg = try Leg(side, device, .code(code), random: &random)
            // The right code is the fourth that is tested.
            guesses.append(Guess(number == 3 ? "271828" : "27182\(number)", at: leg))
        }
        for guess in guesses { await guess.offer() }
        var answers: [Bool?] = []
        for guess in guesses { answers.append(await guess.test()) }
        #expect(answers == [false, false, false, nil, nil, nil, nil, nil])
        #expect(device.names.isEmpty)
    }

    @Test(
        "a middleman pairs if the right code is among his first three guesses of a side, and not later",
        arguments: roles, 1...5)
    func position(side: ChannelRole, position: Int) async throws {
        var random = Random(seed: Self.seed)
        let device = try PairingDevice()
        let code = try TrustPolicy.PairingCode("271828")
        var answers: [Bool?] = []
        for number in 1...5 {
            let leg = try Leg(side, device, .code(code), random: &random)
            let guess = Guess(number == position ? "271828" : "00000\(number)", at: leg)
            await guess.offer()
            answers.append(await guess.test())
            guard answers.last == true else { continue }
            await guess.end()
            #expect(device.names == ["peer": leg.mallory])
            break
        }
        let isLucky = position <= 3
        #expect(answers.contains(true) == isLucky)
        #expect(answers.compactMap { $0 }.count == min(position, 3))
        #expect(device.names.isEmpty == !isLucky)
        #expect(isLucky || device.pending.allSatisfy { !$0.isVerified })
    }

    @Test(
        "shares and confirmations that are passed on unchanged convince nobody",
        arguments: [(true, false), (false, true), (true, true), (false, false)])
    func relay(hashesDiffer: Bool, keysDiffer: Bool) async throws {
        var random = Random(seed: Self.seed)
        let (alice, bob) = (try PairingDevice(), try PairingDevice())
        let hash = random.bytes(32)
        let outcome = try await PairingRun().pair(
            alice, .code(try TrustPolicy.PairingCode("271828")),
            bob, .code(try TrustPolicy.PairingCode("271828")),
            hashes: (hash, hashesDiffer ? random.bytes(32) : hash),
            seenKeys: keysDiffer
                ? (Fingerprint(digest: random.bytes(32)), Fingerprint(digest: random.bytes(32)))
                : nil)
        // The control: without a difference nobody is between them.
        let isAlone = !hashesDiffer && !keysDiffer
        #expect(outcome.errors.isEmpty == isAlone)
        #expect((outcome.complete == [.dialer, .acceptor]) == isAlone)
        #expect(alice.names.isEmpty == !isAlone && bob.names.isEmpty == !isAlone)
        if !isAlone {
            #expect(outcome.errors[.acceptor]?.reason.contains("the codes differ") == true)
            #expect(alice.pending.allSatisfy { !$0.isVerified } && bob.pending.isEmpty)
        }
    }

    @Test("a side that gets its own share or confirmation back refuses it")
    func reflection() async throws {
        var random = Random(seed: Self.seed)
        let alice = try PairingDevice()
        let code = try TrustPolicy.PairingCode("271828")
        let share = try Leg(.dialer, alice, .code(code), random: &random)
        let own = await share.meet()
        await share.give(.share, own)
        #expect(share.error?.code == .protocolViolation)
        #expect(code.triesLeft == 3)
        let confirm = try Leg(.dialer, alice, .code(code), random: &random)
        _ = await confirm.meet()
        let guess = CPace(
            code: SecretBytes(copying: Array("000000".utf8).span), confirm.context,
            isInitiator: false)
        let hers = await confirm.give(.share, guess.share)
        await confirm.give(.confirm, try #require(hers).value)
        #expect(confirm.error?.reason.contains("the codes differ") == true)
        #expect(alice.names.isEmpty)
    }

    @Test(
        "a side that dials and listens with the same code at the same time is not paired by records that are passed between the two",
        arguments: [true, false])
    func bothRoles(hashesDiffer: Bool) async throws {
        var random = Random(seed: Self.seed)
        let alice = try PairingDevice()
        let code = try TrustPolicy.PairingCode("271828")
        let hash = random.bytes(32)
        let mallory = Fingerprint(digest: random.bytes(32))
        let dialing = try Leg(.dialer, alice, .code(code), mallory, hash)
        let listening = try Leg(
            .acceptor, alice, .code(code), mallory, hashesDiffer ? random.bytes(32) : hash)
        let first = await dialing.meet()
        _ = await listening.meet()
        let second = try #require(await listening.give(.share, first))
        let confirmation = try #require(await dialing.give(.share, second.value))
        #expect(confirmation.step == .confirm)
        await listening.give(.confirm, confirmation.value)
        #expect(listening.error?.reason.contains("the codes differ") == true)
        #expect(alice.names.isEmpty && alice.pending.allSatisfy { !$0.isVerified })
    }

    // MARK: - By comparison

    /// What Mallory does to make both sides show the same digits.
    enum Strategy: CaseIterable {
        /// He ends Bob's part first, and chooses his nonce for Alice with her commitment in hand.
        case nonceForAlice
        /// He ends Bob's part first, and chooses a key and a handshake for Alice.
        case keyForAlice
        /// He ends Alice's part first, and chooses a nonce to commit to with Bob.
        case nonceForBob
        /// He ends Alice's part first, and chooses a key and a handshake for Bob.
        case keyForBob
        /// He has Bob's nonce and Alice's commitment before he sends his nonce, and sends Bob's.
        case interleaved
        /// The same, and he chooses his nonce.
        case interleavedNonce
    }

    @Test(
        "digits agree no more often than by chance, whatever a middleman tries before he has to choose",
        arguments: Strategy.allCases)
    func comparison(strategy: Strategy) async throws {
        var random = Random(seed: Self.seed)
        let (alice, bob) = (try PairingDevice(), try PairingDevice())
        let trials = 400
        // What Mallory can choose from: nonces, or keys and hashes.
        let choices = (0..<100).map { _ in (random.bytes(32), random.bytes(32)) }
        var (agreements, partial, withoutCommitment) = (0, 0, 0)
        for _ in 0..<trials {
            let trial = try await Self.trial(strategy, choices, alice, bob, &random)
            agreements += trial.alices == trial.bobs ? 1 : 0
            partial += trial.alices % 100 == trial.bobs % 100 ? 1 : 0
            withoutCommitment += trial.couldHaveChosen ? 1 : 0
        }
        #expect(alice.names.isEmpty && bob.names.isEmpty)
        // By chance the last two digits agree 4 times, and more than 20 times in one of 10^8 runs.
        #expect(partial <= 20, "\(partial)")
        #expect(agreements <= 1)
        // The control: if Mallory knew the nonces when he chooses, 100 choices would make the last
        // two digits agree in 63% of the trials.
        #expect(withoutCommitment > trials / 2, "\(withoutCommitment)")
    }

    struct Trial {
        let alices: Int
        let bobs: Int
        /// Whether one of the choices would have made the last two digits agree.
        let couldHaveChosen: Bool
    }

    private static func trial(
        _ strategy: Strategy, _ choices: [([UInt8], [UInt8])], _ alice: PairingDevice,
        _ bob: PairingDevice, _ random: inout Random
    ) async throws -> Trial {
        let shown = Locked<[ChannelRole: String]>([:])
        func way(_ role: ChannelRole) -> TrustPolicy.Pairing {
            .comparison { digits in
                shown.withLock { $0[role] = digits }
                return false
            }
        }
        // Two handshakes, unless Mallory makes one later.
        var first = try Leg(.dialer, alice, way(.dialer), random: &random)
        var second = try Leg(.acceptor, bob, way(.acceptor), random: &random)
        let ownNonce = random.bytes(32)
        // A nonce in place of the one that he does not know yet.
        let guess = random.bytes(32)
        func best(_ target: Int, _ digits: ([UInt8], [UInt8]) -> Int) -> ([UInt8], [UInt8])? {
            choices.first { digits($0.0, $0.1) % 100 == target % 100 }
        }
        var couldHaveChosen = false
        switch strategy {
        case .nonceForAlice, .keyForAlice:
            let bobs = await second.commit(ownNonce)
            await second.give(.nonce, ownNonce)
            let target = second.digits(ownNonce, bobs)
            if strategy == .nonceForAlice {
                _ = await first.meet()
                let choice = best(target) { nonce, _ in first.digits(guess, nonce) } ?? choices[0]
                let hers = try #require(await first.give(.nonce, choice.0)).value
                couldHaveChosen = best(target) { nonce, _ in first.digits(hers, nonce) } != nil
            } else {
                let choice =
                    best(target) { first.digits(guess, ownNonce, key: $0, hash: $1) } ?? choices[0]
                first = try Leg(
                    .dialer, alice, way(.dialer), Fingerprint(digest: choice.0), choice.1)
                _ = await first.meet()
                let hers = try #require(await first.give(.nonce, ownNonce)).value
                couldHaveChosen =
                    best(target) { first.digits(hers, ownNonce, key: $0, hash: $1) } != nil
            }
        case .nonceForBob, .keyForBob:
            _ = await first.meet()
            let alices = try #require(await first.give(.nonce, ownNonce)).value
            let target = first.digits(alices, ownNonce)
            if strategy == .nonceForBob {
                let choice = best(target) { nonce, _ in second.digits(nonce, guess) } ?? choices[0]
                let his = await second.commit(choice.0)
                await second.give(.nonce, choice.0)
                couldHaveChosen = best(target) { nonce, _ in second.digits(nonce, his) } != nil
            } else {
                let choice =
                    best(target) { second.digits(ownNonce, guess, key: $0, hash: $1) } ?? choices[0]
                second = try Leg(
                    .acceptor, bob, way(.acceptor), Fingerprint(digest: choice.0), choice.1)
                let his = await second.commit(ownNonce)
                await second.give(.nonce, ownNonce)
                couldHaveChosen =
                    best(target) { second.digits(ownNonce, his, key: $0, hash: $1) } != nil
            }
        case .interleaved, .interleavedNonce:
            _ = await first.meet()
            let bobs = await second.commit(ownNonce)
            let target = second.digits(ownNonce, bobs)
            let choice =
                strategy == .interleaved
                ? bobs : (best(target) { nonce, _ in first.digits(guess, nonce) } ?? choices[0]).0
            let hers = try #require(await first.give(.nonce, choice)).value
            await second.give(.nonce, ownNonce)
            couldHaveChosen = best(target) { nonce, _ in first.digits(hers, nonce) } != nil
        }
        let digits = shown.withLock { $0 }
        return Trial(
            alices: try #require(digits[.dialer].flatMap { Int($0) }),
            bobs: try #require(digits[.acceptor].flatMap { Int($0) }),
            couldHaveChosen: couldHaveChosen)
    }

    @Test(
        "a middleman who knows one side's digits gets three others from the other side, and then none",
        arguments: roles)
    func repeatedRuns(side: ChannelRole) async throws {
        var random = Random(seed: Self.seed)
        let device = try PairingDevice()
        let shown = Locked(0)
        let way = TrustPolicy.Pairing.comparison { _ in
            shown.withLock { $0 += 1 }
            return false
        }
        var runs = 0
        for number in 0..<10 {
            let leg = try Leg(side, device, way, random: &random)
            // He knows the digits as soon as he has the side's nonce. Every second time he leaves
            // then, so that the acceptor's person sees nothing.
            if side == .dialer {
                guard await !leg.meet().isEmpty else { continue }
                if number.isMultiple(of: 2) { await leg.give(.nonce, random.bytes(32)) }
            } else {
                let nonce = random.bytes(32)
                guard await !leg.commit(nonce).isEmpty else { continue }
                if number.isMultiple(of: 2) { await leg.give(.nonce, nonce) }
            }
            runs += 1
        }
        #expect(runs == 3)
        #expect(shown.withLock { $0 } == 2)
        #expect(device.names.isEmpty && device.pending.isEmpty)
    }

    @Test("a commitment that is passed on, and another nonce than the promised, are refused")
    func otherNonce() async throws {
        var random = Random(seed: Self.seed)
        let (alice, bob) = (try PairingDevice(), try PairingDevice())
        let silent = TrustPolicy.Pairing.comparison { _ in
            Issue.record("digits are shown")
            return true
        }
        let first = try Leg(.dialer, alice, .comparison { _ in true }, random: &random)
        let second = try Leg(.acceptor, bob, silent, random: &random)
        let commitment = await first.meet()
        _ = await second.meet()
        let bobs = try #require(await second.give(.commit, commitment))
        let hers = try #require(await first.give(.nonce, bobs.value))
        await second.give(.nonce, hers.value)
        #expect(second.error?.code == .protocolViolation)
        // After Bob's nonce, Mallory would choose a nonce of which the digits are those that he wants.
        let other = try Leg(.acceptor, bob, silent, random: &random)
        _ = await other.commit(random.bytes(32))
        await other.give(.nonce, random.bytes(32))
        #expect(other.error?.code == .protocolViolation)
        #expect(bob.names.isEmpty && bob.pending.isEmpty)
    }

    @Test(
        "the control: digits that are a part of the handshake's hash agree after some tries, if there are four"
    )
    func digitsOfHashes() {
        var random = Random(seed: Self.seed)
        // Mallory makes new ephemeral keys on both channels; each gives another hash.
        func digits() -> UInt64 {
            sha256(random.bytes(32)).prefix(8).reduce(0) { $0 << 8 | UInt64($1) } % 10_000
        }
        let alices = Set((0..<200).map { _ in digits() })
        let tries = (1...20_000).first { _ in alices.contains(digits()) }
        #expect(tries != nil)
    }
}

/// The channel between Mallory and one of the sides, on that side.
private final class Leg {
    struct Reply {
        let step: PairingStep?
        let value: [UInt8]
    }

    let mallory: Fingerprint
    private(set) var error: ChannelError?
    private let side: ChannelRole
    private let own: Fingerprint
    private let hash: [UInt8]
    private let way: UInt8
    private let exchange: PairingExchange
    private var last: Reply?

    init(
        _ side: ChannelRole, _ device: PairingDevice, _ way: TrustPolicy.Pairing,
        _ mallory: Fingerprint, _ hash: [UInt8]
    ) throws {
        self.side = side
        self.mallory = mallory
        self.hash = hash
        own = device.key
        self.way = way.number
        exchange = PairingExchange(
            try PairingRun.policy(way, device, name: "peer"),
            .init(role: side, own: device.key, peer: mallory, handshakeHash: hash))
    }

    convenience init(
        _ side: ChannelRole, _ device: PairingDevice, _ way: TrustPolicy.Pairing,
        random: inout Random
    ) throws {
        try self.init(
            side, device, way, Fingerprint(digest: random.bytes(32)), random.bytes(32))
    }

    /// What is public in CPace, as the page says it.
    var context: CPace.Context {
        let keys = [own.digest, mallory.digest]
        let isDialer = side == .dialer
        return CPace.Context(
            channel: Array("blesec/1 pairing, draft-irtf-cfrg-cpace-21".utf8), session: hash,
            initiator: Array("blesec/1 pairing dialer".utf8) + keys[isDialer ? 0 : 1],
            responder: Array("blesec/1 pairing acceptor".utf8) + keys[isDialer ? 1 : 0])
    }

    var isDialers: Bool { side == .dialer }

    private func keys(_ key: [UInt8]?) -> [UInt8] {
        let mallorys = key ?? mallory.digest
        return isDialers ? own.digest + mallorys : mallorys + own.digest
    }

    /// The digits for the dialer's nonce and the acceptor's, also with another key and hash.
    func digits(
        _ dialers: [UInt8], _ acceptors: [UInt8], key: [UInt8]? = nil, hash: [UInt8]? = nil
    ) -> Int {
        let digest = sha256(
            Self.digitsLabel, keys(key), hash ?? self.hash, dialers, acceptors)
        return Int(digest.prefix(8).reduce(UInt64(0)) { $0 << 8 | UInt64($1) } % 1_000_000)
    }

    private static let digitsLabel = Array("blesec/1 pairing digits".utf8)

    /// Exchanges `begin`; returns what the dialer sends next, and from an acceptor nothing.
    func meet() async -> [UInt8] {
        await advance()
        await give(.begin, [way, 0])
        return isDialers ? last?.value ?? [] : []
    }

    /// Commits to a nonce as the dialer; returns the acceptor's, or nothing.
    func commit(_ nonce: [UInt8]) async -> [UInt8] {
        _ = await meet()
        let commitment = sha256(
            Array("blesec/1 pairing commitment".utf8) + keys(nil) + hash + nonce)
        return await give(.commit, commitment)?.value ?? []
    }

    /// Sends a record; returns the last record that the side answers with, if it does.
    @discardableResult
    func give(_ step: PairingStep, _ value: [UInt8]) async -> Reply? {
        last = nil
        guard error == nil, exchange.wantsRecord else { return nil }
        do throws(ChannelError) {
            try exchange.receive([step.rawValue] + value)
        } catch {
            self.error = error
        }
        await advance()
        return last
    }

    private func advance() async {
        while error == nil, let question = exchange.question {
            do throws(ChannelError) {
                try exchange.didDecide(await PairingRun.answer(question))
            } catch {
                self.error = error
            }
        }
        while let record = exchange.nextRecord() {
            last = Reply(step: PairingStep(rawValue: record[0]), value: Array(record.dropFirst()))
        }
    }
}

/// A guess of the code on one channel, up to the answer whether it is right.
private final class Guess {
    let leg: Leg
    private let digits: String
    private let isDialers: Bool
    private var run: CPace?
    private var share: [UInt8] = []
    private var confirmation: [UInt8] = []

    init(_ digits: String, at leg: Leg) {
        self.leg = leg
        self.digits = digits
        isDialers = leg.isDialers
    }

    /// Goes as far as nothing has been answered yet.
    func offer() async {
        let first = await leg.meet()
        guard leg.error == nil else { return }
        let run = CPace(
            code: SecretBytes(copying: Array(digits.utf8).span), leg.context,
            isInitiator: !isDialers)
        if isDialers {
            share = first
        } else {
            share = await leg.give(.share, run.share)?.value ?? []
        }
        self.run = consume run
    }

    /// Whether the guess is right; nil if the side does not answer that.
    func test() async -> Bool? {
        guard let run = run.take() else { return nil }
        let own = run.share
        guard let keys = run.finish(peerShare: share) else { return nil }
        let (initiators, responders) = (
            keys.confirmation(ofInitiator: true), keys.confirmation(ofInitiator: false)
        )
        confirmation = responders
        if isDialers {
            // Her confirmation shows whether the guess is right.
            guard let reply = await leg.give(.share, own), reply.step == .confirm else {
                return nil
            }
            return reply.value == initiators
        }
        if let reply = await leg.give(.confirm, initiators) { return reply.step == .confirm }
        return leg.error?.reason.contains("the codes differ") == true ? false : nil
    }

    /// After a right guess, ends the pairing.
    func end() async {
        if isDialers {
            await leg.give(.confirm, confirmation)
        } else {
            await leg.give(.done, [])
        }
    }
}
