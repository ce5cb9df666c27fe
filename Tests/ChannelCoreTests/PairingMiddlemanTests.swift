import BLESecLocking
import BLESecPrimitives
import FoundationEssentials
import Testing

@testable import BLESecChannelCore

/// Mallory is a middleman between Alice, who dials, and Bob, who listens. He has a channel with
/// each of them, with two different handshake hashes, and uses keys of his own. He knows everything
/// but the code.
@Suite("Middleman in a pairing")
struct PairingMiddlemanTests {
    static let roles = [ChannelRole.dialer, .acceptor]

    /// The seed of this run's random attacks: a fixed value, unless `BLESEC_SEED` sets another.
    static let seed: UInt64 = {
        let chosen = ProcessInfo.processInfo.environment["BLESEC_SEED"].flatMap { UInt64($0) }
        let seed = chosen ?? 1
        print("PairingMiddlemanTests: attacks from seed \(seed); BLESEC_SEED=N sets another")
        return seed
    }()

    // MARK: - By a code

    @Test(
        "whatever a middleman does, each side answers exactly three guesses, even if he cuts links early",
        arguments: roles)
    func threeAnswers(side: ChannelRole) async throws {
        var random = Random(seed: Self.seed)
        let device = try PairingDevice()
        for _ in 0..<40 {
            let code = try TrustPolicy.PairingCode("271828")
            var answers = 0
            for number in 0..<12 {
                // 0: the guess is not started. 1, 2: a wrong record ends the pairing. 3: the guess
                // is tested. The last four guesses are all tested, so that no try is left.
                let stage = number < 8 ? random.number(0...3) : 3
                let leg = try Leg(side, device, .code(code), random: &random)
                let guess = Guess(String(100_000 + random.number(0...99_999)), at: leg)
                if stage > 0 { await guess.start() }
                if stage == 1 { await leg.send(.confirm, random.bytes(63)) }
                if stage == 2 { await leg.send(.done, []) }
                if stage == 3, await guess.test() != nil { answers += 1 }
                #expect(answers <= 3 && code.triesLeft == 3 - answers)
            }
            #expect(answers == 3)
            let late = Guess("271828", at: try Leg(side, device, .code(code), random: &random))
            await late.start()
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
        for guess in guesses { await guess.start() }
        var answers: [Bool?] = []
        for guess in guesses { answers.append(await guess.test()) }
        #expect(answers == [false, false, false, nil, nil, nil, nil, nil])
        #expect(device.names.isEmpty)
    }

    @Test(
        "a middleman pairs if the right code is among his first three guesses at a side, and not later",
        arguments: roles, 1...5)
    func position(side: ChannelRole, position: Int) async throws {
        var random = Random(seed: Self.seed)
        let device = try PairingDevice()
        let code = try TrustPolicy.PairingCode("271828")
        var answers: [Bool?] = []
        for number in 1...5 {
            let leg = try Leg(side, device, .code(code), random: &random)
            let guess = Guess(number == position ? "271828" : "00000\(number)", at: leg)
            await guess.start()
            answers.append(await guess.test())
            guard answers.last == true else { continue }
            await guess.complete()
            #expect(device.names == ["peer": leg.mallory])
            break
        }
        let isInTime = position <= 3
        #expect(answers.contains(true) == isInTime)
        #expect(answers.compactMap { $0 }.count == min(position, 3))
        #expect(device.names.isEmpty == !isInTime)
        #expect(isInTime || device.pending.allSatisfy { !$0.isVerified })
    }

    @Test(
        "if a middleman relays shares and confirmations unchanged, neither side pairs",
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
        // The control: if hashes and keys are equal, there is no middleman.
        let isDirect = !hashesDiffer && !keysDiffer
        #expect(outcome.errors.isEmpty == isDirect)
        #expect((outcome.complete == [.dialer, .acceptor]) == isDirect)
        #expect(alice.names.isEmpty == !isDirect && bob.names.isEmpty == !isDirect)
        if !isDirect {
            #expect(outcome.errors[.acceptor]?.reason.contains("the codes differ") == true)
            #expect(alice.pending.allSatisfy { !$0.isVerified } && bob.pending.isEmpty)
        }
    }

    @Test("a side that gets its own share or confirmation back refuses it")
    func reflection() async throws {
        var random = Random(seed: Self.seed)
        let alice = try PairingDevice()
        let code = try TrustPolicy.PairingCode("271828")
        let shareLeg = try Leg(.dialer, alice, .code(code), random: &random)
        let ownShare = await shareLeg.exchangeBegin()
        await shareLeg.send(.share, ownShare)
        #expect(shareLeg.error?.code == .protocolViolation)
        #expect(code.triesLeft == 3)
        let confirmLeg = try Leg(.dialer, alice, .code(code), random: &random)
        _ = await confirmLeg.exchangeBegin()
        let guess = CPace(
            code: SecretBytes(copying: Array("000000".utf8).span), confirmLeg.context,
            isInitiator: false)
        let confirmation = await confirmLeg.send(.share, guess.share)
        await confirmLeg.send(.confirm, try #require(confirmation).value)
        #expect(confirmLeg.error?.reason.contains("the codes differ") == true)
        #expect(alice.names.isEmpty)
    }

    @Test(
        "a side that dials and listens at the same time with one code does not pair if Mallory relays records between its two links",
        arguments: [true, false])
    func bothRoles(hashesDiffer: Bool) async throws {
        var random = Random(seed: Self.seed)
        let alice = try PairingDevice()
        let code = try TrustPolicy.PairingCode("271828")
        let hash = random.bytes(32)
        let mallory = Fingerprint(digest: random.bytes(32))
        let dialingLeg = try Leg(.dialer, alice, .code(code), mallory, hash)
        let listeningLeg = try Leg(
            .acceptor, alice, .code(code), mallory, hashesDiffer ? random.bytes(32) : hash)
        let dialerShare = await dialingLeg.exchangeBegin()
        _ = await listeningLeg.exchangeBegin()
        let acceptorShare = try #require(await listeningLeg.send(.share, dialerShare))
        let confirmation = try #require(await dialingLeg.send(.share, acceptorShare.value))
        #expect(confirmation.step == .confirm)
        await listeningLeg.send(.confirm, confirmation.value)
        #expect(listeningLeg.error?.reason.contains("the codes differ") == true)
        #expect(alice.names.isEmpty && alice.pending.allSatisfy { !$0.isVerified })
    }

    // MARK: - By comparison

    /// What Mallory does to make both sides show the same digits.
    enum Strategy: CaseIterable {
        /// He completes the exchange with Bob first. Then he gets Alice's commitment, and chooses
        /// the nonce for her.
        case nonceForAlice
        /// He completes the exchange with Bob first. Then he chooses a key and a handshake hash for
        /// Alice.
        case keyForAlice
        /// He completes the exchange with Alice first. Then he chooses his nonce for Bob, and
        /// commits to it.
        case nonceForBob
        /// He completes the exchange with Alice first. Then he chooses a key and a handshake hash
        /// for Bob.
        case keyForBob
        /// He waits until he has Bob's nonce and Alice's commitment. Then he sends Bob's nonce to
        /// Alice.
        case interleaved
        /// As `interleaved`, but he chooses the nonce that he sends to Alice.
        case interleavedNonce
    }

    @Test(
        "digits agree no more often than by chance, because a middleman has to choose before he knows both nonces",
        arguments: Strategy.allCases)
    func comparison(strategy: Strategy) async throws {
        var random = Random(seed: Self.seed)
        let (alice, bob) = (try PairingDevice(), try PairingDevice())
        let trials = 400
        // What Mallory can choose from: nonces, or keys and hashes.
        let choices = (0..<100).map { _ in (random.bytes(32), random.bytes(32)) }
        var (agreements, lastTwoAgreements, possibleAgreements) = (0, 0, 0)
        for _ in 0..<trials {
            let trial = try await Self.trial(strategy, choices, alice, bob, &random)
            agreements += trial.aliceDigits == trial.bobDigits ? 1 : 0
            lastTwoAgreements += trial.aliceDigits % 100 == trial.bobDigits % 100 ? 1 : 0
            possibleAgreements += trial.couldHaveChosen ? 1 : 0
        }
        #expect(alice.names.isEmpty && bob.names.isEmpty)
        // By chance the last two digits agree in about 4 of 400 trials. More than 20 agreements
        // come by chance in fewer than one of 10^8 runs of this test.
        #expect(lastTwoAgreements <= 20, "\(lastTwoAgreements)")
        #expect(agreements <= 1)
        // The control: if Mallory knew the nonces when he chooses, 100 choices would make the last
        // two digits agree in 63% of the trials.
        #expect(possibleAgreements > trials / 2, "\(possibleAgreements)")
    }

    struct Trial {
        let aliceDigits: Int
        let bobDigits: Int
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
        // With `keyForAlice` and `keyForBob`, one of these legs is replaced later, by a leg with
        // the key and the hash that Mallory has chosen.
        var aliceLeg = try Leg(.dialer, alice, way(.dialer), random: &random)
        var bobLeg = try Leg(.acceptor, bob, way(.acceptor), random: &random)
        let ownNonce = random.bytes(32)
        // Mallory's guess of the nonce that he does not know yet.
        let guess = random.bytes(32)
        // The first choice with which the last two digits are those of `target`.
        func firstFit(_ target: Int, _ digits: ([UInt8], [UInt8]) -> Int) -> ([UInt8], [UInt8])? {
            choices.first { digits($0.0, $0.1) % 100 == target % 100 }
        }
        var couldHaveChosen = false
        switch strategy {
        case .nonceForAlice, .keyForAlice:
            let bobNonce = await bobLeg.commit(ownNonce)
            await bobLeg.send(.nonce, ownNonce)
            let target = bobLeg.digits(ownNonce, bobNonce)
            if strategy == .nonceForAlice {
                _ = await aliceLeg.exchangeBegin()
                let choice =
                    firstFit(target) { nonce, _ in aliceLeg.digits(guess, nonce) } ?? choices[0]
                let aliceNonce = try #require(await aliceLeg.send(.nonce, choice.0)).value
                couldHaveChosen =
                    firstFit(target) { nonce, _ in aliceLeg.digits(aliceNonce, nonce) } != nil
            } else {
                let choice =
                    firstFit(target) { aliceLeg.digits(guess, ownNonce, key: $0, hash: $1) }
                    ?? choices[0]
                aliceLeg = try Leg(
                    .dialer, alice, way(.dialer), Fingerprint(digest: choice.0), choice.1)
                _ = await aliceLeg.exchangeBegin()
                let aliceNonce = try #require(await aliceLeg.send(.nonce, ownNonce)).value
                couldHaveChosen =
                    firstFit(target) { aliceLeg.digits(aliceNonce, ownNonce, key: $0, hash: $1) }
                    != nil
            }
        case .nonceForBob, .keyForBob:
            _ = await aliceLeg.exchangeBegin()
            let aliceNonce = try #require(await aliceLeg.send(.nonce, ownNonce)).value
            let target = aliceLeg.digits(aliceNonce, ownNonce)
            if strategy == .nonceForBob {
                let choice =
                    firstFit(target) { nonce, _ in bobLeg.digits(nonce, guess) } ?? choices[0]
                let bobNonce = await bobLeg.commit(choice.0)
                await bobLeg.send(.nonce, choice.0)
                couldHaveChosen =
                    firstFit(target) { nonce, _ in bobLeg.digits(nonce, bobNonce) } != nil
            } else {
                let choice =
                    firstFit(target) { bobLeg.digits(ownNonce, guess, key: $0, hash: $1) }
                    ?? choices[0]
                bobLeg = try Leg(
                    .acceptor, bob, way(.acceptor), Fingerprint(digest: choice.0), choice.1)
                let bobNonce = await bobLeg.commit(ownNonce)
                await bobLeg.send(.nonce, ownNonce)
                couldHaveChosen =
                    firstFit(target) { bobLeg.digits(ownNonce, bobNonce, key: $0, hash: $1) } != nil
            }
        case .interleaved, .interleavedNonce:
            _ = await aliceLeg.exchangeBegin()
            let bobNonce = await bobLeg.commit(ownNonce)
            let target = bobLeg.digits(ownNonce, bobNonce)
            let choice =
                strategy == .interleaved
                ? bobNonce
                : (firstFit(target) { nonce, _ in aliceLeg.digits(guess, nonce) } ?? choices[0]).0
            let aliceNonce = try #require(await aliceLeg.send(.nonce, choice)).value
            await bobLeg.send(.nonce, ownNonce)
            couldHaveChosen =
                firstFit(target) { nonce, _ in aliceLeg.digits(aliceNonce, nonce) } != nil
        }
        let digits = shown.withLock { $0 }
        return Trial(
            aliceDigits: try #require(digits[.dialer].flatMap { Int($0) }),
            bobDigits: try #require(digits[.acceptor].flatMap { Int($0) }),
            couldHaveChosen: couldHaveChosen)
    }

    @Test(
        "a middleman who waits for certain digits gets three runs from a side, and then none",
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
            // In every second run he sends his nonce, and the side shows its digits. In the others
            // he leaves before that.
            if side == .dialer {
                guard await !leg.exchangeBegin().isEmpty else { continue }
                if number.isMultiple(of: 2) { await leg.send(.nonce, random.bytes(32)) }
            } else {
                let nonce = random.bytes(32)
                guard await !leg.commit(nonce).isEmpty else { continue }
                if number.isMultiple(of: 2) { await leg.send(.nonce, nonce) }
            }
            runs += 1
        }
        #expect(runs == 3)
        #expect(shown.withLock { $0 } == 2)
        #expect(device.names.isEmpty && device.pending.isEmpty)
    }

    @Test(
        "a relayed commitment and its nonce, and a nonce that does not fit its commitment, are refused"
    )
    func otherNonce() async throws {
        var random = Random(seed: Self.seed)
        let (alice, bob) = (try PairingDevice(), try PairingDevice())
        let neverShown = TrustPolicy.Pairing.comparison { _ in
            Issue.record("digits are shown")
            return true
        }
        let aliceLeg = try Leg(.dialer, alice, .comparison { _ in true }, random: &random)
        let bobLeg = try Leg(.acceptor, bob, neverShown, random: &random)
        let commitment = await aliceLeg.exchangeBegin()
        _ = await bobLeg.exchangeBegin()
        let bobNonce = try #require(await bobLeg.send(.commit, commitment))
        let aliceNonce = try #require(await aliceLeg.send(.nonce, bobNonce.value))
        await bobLeg.send(.nonce, aliceNonce.value)
        #expect(bobLeg.error?.code == .protocolViolation)
        // If Mallory could replace his nonce after he has Bob's nonce, he could choose the digits.
        let other = try Leg(.acceptor, bob, neverShown, random: &random)
        _ = await other.commit(random.bytes(32))
        await other.send(.nonce, random.bytes(32))
        #expect(other.error?.code == .protocolViolation)
        #expect(bob.names.isEmpty && bob.pending.isEmpty)
    }
}

/// One side's exchange on its channel with Mallory, who acts as the side's peer.
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
    private var lastReply: Reply?

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
            try PairingRun.rule(way, device, name: "peer"),
            .init(role: side, own: device.key, peer: mallory, handshakeHash: hash))
    }

    convenience init(
        _ side: ChannelRole, _ device: PairingDevice, _ way: TrustPolicy.Pairing,
        random: inout Random
    ) throws {
        try self.init(
            side, device, way, Fingerprint(digest: random.bytes(32)), random.bytes(32))
    }

    /// The public inputs of CPace, as `docs/wire-format.md` defines them.
    var context: CPace.Context {
        let keys = [own.digest, mallory.digest]
        let isDialer = side == .dialer
        return CPace.Context(
            channel: Array("blesec/1 pairing, draft-irtf-cfrg-cpace-21".utf8), session: hash,
            initiator: Array("blesec/1 pairing dialer".utf8) + keys[isDialer ? 0 : 1],
            responder: Array("blesec/1 pairing acceptor".utf8) + keys[isDialer ? 1 : 0])
    }

    var sideDials: Bool { side == .dialer }

    private func keys(_ key: [UInt8]?) -> [UInt8] {
        let malloryKey = key ?? mallory.digest
        return sideDials ? own.digest + malloryKey : malloryKey + own.digest
    }

    /// The digits for these nonces. `key` and `hash` replace Mallory's key and the handshake hash.
    func digits(
        _ dialerNonce: [UInt8], _ acceptorNonce: [UInt8], key: [UInt8]? = nil, hash: [UInt8]? = nil
    ) -> Int {
        let digest = sha256(
            Self.digitsLabel, keys(key), hash ?? self.hash, dialerNonce, acceptorNonce)
        return Int(digest.prefix(8).reduce(UInt64(0)) { $0 << 8 | UInt64($1) } % 1_000_000)
    }

    private static let digitsLabel = Array("blesec/1 pairing digits".utf8)

    /// Exchanges `begin`. If the side dials, returns the value of its next record, else nothing.
    func exchangeBegin() async -> [UInt8] {
        await advance()
        await send(.begin, [way, 0])
        return sideDials ? lastReply?.value ?? [] : []
    }

    /// Commits to a nonce as the dialer. Returns the acceptor's nonce, or nothing if it refuses.
    func commit(_ nonce: [UInt8]) async -> [UInt8] {
        _ = await exchangeBegin()
        let commitment = sha256(
            Array("blesec/1 pairing commitment".utf8) + keys(nil) + hash + nonce)
        return await send(.commit, commitment)?.value ?? []
    }

    /// Passes a record to the side. Returns the last record that the side sends in answer, if any.
    @discardableResult
    func send(_ step: PairingStep, _ value: [UInt8]) async -> Reply? {
        lastReply = nil
        guard error == nil, exchange.wantsRecord else { return nil }
        do throws(ChannelError) {
            try exchange.receive([step.rawValue] + value)
        } catch {
            self.error = error
        }
        await advance()
        return lastReply
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
            lastReply = Reply(
                step: PairingStep(rawValue: record[0]), value: Array(record.dropFirst()))
        }
    }
}

/// A guess of the code on one leg, until the side answers whether it is right.
private final class Guess {
    let leg: Leg
    private let digits: String
    private let sideDials: Bool
    private var run: CPace?
    private var share: [UInt8] = []
    private var confirmation: [UInt8] = []

    init(_ digits: String, at leg: Leg) {
        self.leg = leg
        self.digits = digits
        sideDials = leg.sideDials
    }

    /// Exchanges `begin`, and gets the side's share. The side has not yet answered whether the
    /// guess is right.
    func start() async {
        let first = await leg.exchangeBegin()
        guard leg.error == nil else { return }
        let run = CPace(
            code: SecretBytes(copying: Array(digits.utf8).span), leg.context,
            isInitiator: !sideDials)
        if sideDials {
            share = first
        } else {
            share = await leg.send(.share, run.share)?.value ?? []
        }
        self.run = consume run
    }

    /// Tests the guess: returns whether it is right, or nil if the side does not answer.
    func test() async -> Bool? {
        guard let run = run.take() else { return nil }
        let own = run.share
        guard let keys = run.finish(peerShare: share) else { return nil }
        let initiatorConfirmation = keys.confirmation(ofInitiator: true)
        confirmation = keys.confirmation(ofInitiator: false)
        if sideDials {
            // The side's confirmation shows whether the guess is right.
            guard let reply = await leg.send(.share, own), reply.step == .confirm else {
                return nil
            }
            return reply.value == initiatorConfirmation
        }
        if let reply = await leg.send(.confirm, initiatorConfirmation) {
            return reply.step == .confirm
        }
        return leg.error?.reason.contains("the codes differ") == true ? false : nil
    }

    /// Completes the pairing, after a right guess.
    func complete() async {
        if sideDials {
            await leg.send(.confirm, confirmation)
        } else {
            await leg.send(.done, [])
        }
    }
}
