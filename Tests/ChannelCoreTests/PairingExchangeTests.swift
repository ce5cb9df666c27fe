import BLESecLocking
import BLESecPrimitives
import Testing

@testable import BLESecChannelCore

/// Two sides that pair, records that are lost or changed, and what is stored meanwhile.
@Suite("Pairing exchange")
struct PairingExchangeTests {
    enum Way: String, CaseIterable, CustomTestStringConvertible {
        case invitation, code, comparison
        var testDescription: String { rawValue }

        /// A way for each side, such that the two sides can pair.
        func ways(
            _ inviter: PairingDevice
        ) throws -> (dialer: TrustPolicy.Pairing, acceptor: TrustPolicy.Pairing) {
            switch self {
            case .invitation:
                let made = PairingInvitation(from: inviter.key, now: 1_800_000_000)
                return (.invitation(try PairingInvitation(parsing: made.uri)), .invitation(made))
            case .code:
                let made = TrustPolicy.PairingCode()
                return (.code(try TrustPolicy.PairingCode(made.digits)), .code(made))
            case .comparison:
                let digits = Locked<[String]>([])
                let confirm: @Sendable (String) async -> Bool = { shown in
                    digits.withLock { $0.append(shown) }
                    return digits.withLock { $0.allSatisfy { $0 == shown } }
                }
                return (.comparison(confirm: confirm), .comparison(confirm: confirm))
            }
        }
    }

    @Test(
        "two sides pair, and each then knows the other's key, and nothing is pending",
        arguments: Way.allCases)
    func pairs(way: Way) async throws {
        let (alice, bob) = (try PairingDevice(), try PairingDevice())
        let ways = try way.ways(bob)
        let outcome = try await PairingRun().pair(alice, ways.dialer, bob, ways.acceptor)
        #expect(outcome.errors.isEmpty, "\(outcome.errors)")
        #expect(outcome.complete == [.dialer, .acceptor])
        #expect(alice.names == ["bob": bob.key] && alice.pending.isEmpty)
        #expect(bob.names == ["alice": alice.key] && bob.pending.isEmpty)
        // The code, the invitation or the comparison cannot be used again.
        switch ways.acceptor {
        case .code(let code): #expect(code.triesLeft == 0 && code.refusal != nil)
        case .invitation(let invitation): #expect(invitation.refusal != nil)
        case .comparing(let comparison): #expect(comparison.triesLeft == 0)
        }
    }

    @Test(
        "a link cut after any record leaves at most a pending key, unless both sides have confirmed; the next meeting completes the pairing",
        arguments: Way.allCases)
    func cuts(way: Way) async throws {
        var completedCount = 0
        for cut in 0...12 {
            let (alice, bob) = (try PairingDevice(), try PairingDevice())
            let ways = try way.ways(bob)
            var run = PairingRun()
            run.recordsBeforeCut = cut
            let outcome = try await run.pair(alice, ways.dialer, bob, ways.acceptor)
            #expect(outcome.errors.isEmpty, "\(outcome.errors)")
            let bothConfirmed = outcome.confirmed == [.dialer, .acceptor]
            if !bothConfirmed {
                #expect(alice.names.isEmpty && bob.names.isEmpty, "cut after \(cut) records")
            }
            for device in [alice, bob] {
                #expect(device.names.isEmpty || device.pending.isEmpty)
                #expect(device.pending.count <= 1)
            }
            // The dialer stores first: if the acceptor has stored the dialer, the dialer has stored
            // the acceptor.
            #expect(bob.names.isEmpty || !alice.names.isEmpty)
            guard outcome.complete != [.dialer, .acceptor] else { continue }
            // Alice and Bob meet again, in exchanged roles if `cut` is odd. If each has kept the
            // other as known or pending, the first pairing has to be completed without a code: to
            // test this, the sides get different codes. Otherwise both sides use the same new code,
            // invitation or comparison.
            let canComplete = [alice, bob].allSatisfy { !$0.names.isEmpty || !$0.pending.isEmpty }
            let newWays =
                canComplete
                ? try Way.code.ways(bob) : try way.ways(cut.isMultiple(of: 2) ? bob : alice)
            let (first, second) = cut.isMultiple(of: 2) ? (alice, bob) : (bob, alice)
            let wrongCode = TrustPolicy.Pairing.code(TrustPolicy.PairingCode(length: 12))
            let last = try await PairingRun().pair(
                first, canComplete ? wrongCode : newWays.dialer, second, newWays.acceptor,
                peerNames: cut.isMultiple(of: 2) ? ("bob", "alice") : ("alice", "bob"))
            #expect(last.errors.isEmpty, "cut after \(cut) records: \(last.errors)")
            #expect(alice.names == ["bob": bob.key] && alice.pending.isEmpty)
            #expect(bob.names == ["alice": alice.key] && bob.pending.isEmpty)
            completedCount += canComplete ? 1 : 0
        }
        #expect(completedCount >= 2)
    }

    @Test("a wrong code is refused, and after the third try neither side's code is valid")
    func wrongCodes() async throws {
        let (alice, bob) = (try PairingDevice(), try PairingDevice())
        let right = try TrustPolicy.PairingCode("123456")
        let wrong = try TrustPolicy.PairingCode("123457")
        for tries in 1...3 {
            let outcome = try await PairingRun().pair(alice, .code(wrong), bob, .code(right))
            #expect(outcome.errors[.acceptor]?.code == .untrusted)
            #expect(outcome.errors[.acceptor]?.reason.contains("the codes differ") == true)
            #expect(right.triesLeft == 3 - tries && wrong.triesLeft == 3 - tries)
        }
        let late = try await PairingRun().pair(
            alice, .code(try TrustPolicy.PairingCode("123456")), bob, .code(right))
        #expect(late.errors[.acceptor]?.reason.contains("was tried 3 times") == true)
        #expect(late.complete.isEmpty && alice.names.isEmpty && bob.names.isEmpty)
    }

    @Test(
        "a try is spent before the answer shows whether the guess is right, even if the link is lost"
    )
    func spentBeforehand() async throws {
        for cut in [4, 5] {
            let (alice, bob) = (try PairingDevice(), try PairingDevice())
            let code = try TrustPolicy.PairingCode("2468")
            let guess = try TrustPolicy.PairingCode("2469")
            var run = PairingRun()
            run.recordsBeforeCut = cut
            _ = try await run.pair(alice, .code(guess), bob, .code(code))
            // After four records the dialer has made its confirmation, but the acceptor has not
            // received it.
            #expect(guess.triesLeft == 2)
            #expect(code.triesLeft == (cut == 4 ? 3 : 2))
        }
    }

    /// The error of a channel with this device, after one side has refused the other.
    private static func refusal(
        with device: PairingDevice, _ code: ChannelError.Code = .untrusted
    ) -> ChannelError {
        var error = ChannelError(code, "")
        error.claimed = device.claim
        return error
    }

    @Test(
        "a listener gives up when no try is left; if the code is reserved for one peer, only when that peer is refused"
    )
    func listenerGivesUp() async throws {
        let (alice, bob, mallory) = (
            try PairingDevice(), try PairingDevice(), try PairingDevice()
        )
        for isLastRight in [false, true] {
            let code = try TrustPolicy.PairingCode("123456")
            let way = TrustPolicy.Pairing.code(code)
            func isOver(_ error: ChannelError) -> Bool { way.isOver(after: error, as: .acceptor) }
            for _ in 0..<2 {
                _ = try await PairingRun().pair(
                    mallory, .code(try TrustPolicy.PairingCode("654321")), bob, way)
                #expect(!isOver(Self.refusal(with: mallory)))
            }
            // If the last guess is right, the link is cut when the acceptor has confirmed.
            var run = PairingRun()
            run.recordsBeforeCut = 5
            let guess = isLastRight ? "123456" : "654321"
            let outcome = try await run.pair(
                alice, .code(try TrustPolicy.PairingCode(guess)), bob, way)
            #expect(outcome.confirmed.contains(.acceptor) == isLastRight && code.triesLeft == 0)
            #expect(!isOver(ChannelError(.truncated, "")) && !isOver(ChannelError(.busy, "")))
            #expect(isOver(Self.refusal(with: mallory)) == !isLastRight)
            #expect(isOver(Self.refusal(with: alice)))
        }
    }

    @Test(
        "a dialer gives up after the other side refuses its code or invitation, but not after a refusal by another device"
    )
    func dialerGivesUp() throws {
        let (bob, other) = (try PairingDevice(), try PairingDevice())
        let made = PairingInvitation(from: bob.key, now: 1_800_000_000)
        let invitation = TrustPolicy.Pairing.invitation(try PairingInvitation(parsing: made.uri))
        let code = try TrustPolicy.PairingCode("123456")
        let comparison = TrustPolicy.PairingComparison { _ in true }
        for errorCode in [ChannelError.Code.refused, .untrusted] {
            #expect(invitation.isOver(after: Self.refusal(with: bob, errorCode), as: .dialer))
            #expect(!invitation.isOver(after: Self.refusal(with: other, errorCode), as: .dialer))
            // A peer that refuses before it shows a key may be anybody.
            #expect(!invitation.isOver(after: ChannelError(errorCode, ""), as: .dialer))
            // Neither the code nor the comparison has been tried yet.
            #expect(
                !TrustPolicy.Pairing.code(code).isOver(
                    after: Self.refusal(with: bob, errorCode), as: .dialer))
            #expect(
                !TrustPolicy.Pairing.comparing(comparison).isOver(
                    after: Self.refusal(with: bob, errorCode), as: .dialer))
        }
        try comparison.spend()
        #expect(
            TrustPolicy.Pairing.comparing(comparison).isOver(
                after: Self.refusal(with: bob, .refused), as: .dialer))
        try code.spend()
        let way = TrustPolicy.Pairing.code(code)
        #expect(way.isOver(after: Self.refusal(with: bob, .refused), as: .dialer))
        #expect(!way.isOver(after: ChannelError(.timedOut, ""), as: .dialer))
    }

    @Test("a code that is too old is refused by the exchange and by the trust policy")
    func oldCode() async throws {
        let (alice, bob) = (try PairingDevice(), try PairingDevice())
        let code = try TrustPolicy.PairingCode("123456", lifetime: .zero)
        let outcome = try await PairingRun().pair(
            alice, .code(try TrustPolicy.PairingCode("123456")), bob, .code(code))
        #expect(outcome.errors[.acceptor]?.reason == "the code is too old")
        #expect(outcome.complete.isEmpty)
        let policy = TrustPolicy.pairing(.code(code), store: bob.store, name: "alice")
        let identity = try PeerIdentity.publicKey(IdentityKey.generate().publicKey, curve: .x25519)
        guard case .lookUp(let lookUp) = policy.decide(ClaimedIdentity(identity)),
            case .refuse = lookUp()
        else { return #expect(Bool(false), "an old code admits a peer") }
    }

    @Test(
        "if one side's person does not confirm the digits, neither side pairs",
        arguments: [ChannelRole.dialer, .acceptor])
    func differentDigits(refuser: ChannelRole) async throws {
        let (alice, bob) = (try PairingDevice(), try PairingDevice())
        func way(_ role: ChannelRole) -> TrustPolicy.Pairing {
            .comparison { _ in role != refuser }
        }
        let outcome = try await PairingRun().pair(alice, way(.dialer), bob, way(.acceptor))
        #expect(outcome.errors[refuser]?.code == .untrusted)
        #expect(outcome.complete.isEmpty && alice.names.isEmpty && bob.names.isEmpty)
        #expect(outcome.confirmed.count <= 1)
    }

    @Test("if the program ends a comparison while a person decides, neither side pairs")
    func endedMeanwhile() async throws {
        let (alice, bob) = (try PairingDevice(), try PairingDevice())
        let comparisonToEnd = Locked<TrustPolicy.PairingComparison?>(nil)
        let comparison = TrustPolicy.PairingComparison { _ in
            comparisonToEnd.withLock { $0?.close() }
            return true
        }
        comparisonToEnd.withLock { $0 = comparison }
        let outcome = try await PairingRun().pair(
            alice, .comparison { _ in true }, bob, .comparing(comparison))
        // Otherwise `comparisonToEnd` and the comparison would keep each other alive.
        comparisonToEnd.withLock { $0 = nil }
        #expect(outcome.errors[.acceptor]?.code == .untrusted)
        #expect(outcome.complete.isEmpty && alice.names.isEmpty && bob.names.isEmpty)
    }

    @Test(
        "a side whose program ends the pairing stores nobody from then on, unless both sides have confirmed",
        arguments: Way.allCases, [ChannelRole.dialer, .acceptor])
    func endedAtRecord(way: Way, role: ChannelRole) async throws {
        var wasRefused = false
        for number in 0..<8 {
            let (alice, bob) = (try PairingDevice(), try PairingDevice())
            let ways = try way.ways(bob)
            let device = role == .dialer ? alice : bob
            var namesThen: [String: Fingerprint]?
            var mayStillStore = false
            var run = PairingRun()
            run.tamper = { index, _, payload in
                if index == number {
                    namesThen = device.names
                    // The acceptor keeps the dialer as pending only when both have confirmed.
                    mayStillStore = role == .acceptor && !device.pending.isEmpty
                    switch role == .dialer ? ways.dialer : ways.acceptor {
                    case .invitation(let invitation): invitation.close()
                    case .code(let code): code.close()
                    case .comparing(let comparison): comparison.close()
                    }
                }
                return payload
            }
            let outcome = try await run.pair(alice, ways.dialer, bob, ways.acceptor)
            guard let namesThen else { break }
            #expect(device.names == namesThen || mayStillStore, "record \(number)")
            #expect(device.pending.isEmpty, "record \(number)")
            if outcome.errors[role]?.code == .untrusted { wasRefused = true }
        }
        #expect(wasRefused)
    }

    @Test(
        "a peer that has lost its store pairs again, and nothing stays pending",
        arguments: Way.allCases, [ChannelRole.dialer, .acceptor])
    func pairsAgain(way: Way, forgetfulSide: ChannelRole) async throws {
        let (alice, bob) = (try PairingDevice(), try PairingDevice())
        for round in 0..<2 {
            let ways = try way.ways(bob)
            let outcome = try await PairingRun().pair(alice, ways.dialer, bob, ways.acceptor)
            #expect(outcome.errors.isEmpty, "\(round): \(outcome.errors)")
            #expect(alice.names == ["bob": bob.key] && alice.pending.isEmpty)
            #expect(bob.names == ["alice": alice.key] && bob.pending.isEmpty)
            let device = forgetfulSide == .dialer ? alice : bob
            device.store.content.withLock { $0 = PairingStore.Content() }
        }
    }

    @Test("if the sides pair in different ways, the pairing ends, and each error names both ways")
    func differentWays() async throws {
        let (alice, bob) = (try PairingDevice(), try PairingDevice())
        let code = TrustPolicy.Pairing.code(TrustPolicy.PairingCode())
        let outcome = try await PairingRun().pair(
            alice, code, bob, .comparison { _ in true })
        for role in [ChannelRole.dialer, .acceptor] {
            let reason = outcome.errors[role]?.reason ?? ""
            #expect(reason.contains("by a code") && reason.contains("by comparing digits"))
        }
    }

    @Test(
        "if the acceptor's store fails, the pairing ends; the dialer stores the acceptor only if the acceptor has confirmed",
        arguments: Way.allCases)
    func failingStore(way: Way) async throws {
        for failingChange in 0..<2 {
            let (alice, bob) = (try PairingDevice(), try PairingDevice())
            let calls = Locked(0)
            bob.store.beforeChange.withLock {
                $0 = { () throws(ChannelError) in
                    let number = calls.withLock { count in
                        count += 1
                        return count - 1
                    }
                    if number == failingChange {
                        throw ChannelError(.cannotCreate, "the disk is full")
                    }
                }
            }
            let ways = try way.ways(bob)
            let outcome = try await PairingRun().pair(alice, ways.dialer, bob, ways.acceptor)
            #expect(outcome.errors[.acceptor]?.reason == "the disk is full")
            // Bob's first change keeps Alice as pending, before his confirmation leaves. The second
            // stores her, after she has his confirmation.
            #expect(alice.names.isEmpty == (failingChange == 0))
        }
    }

    @Test(
        "the pairing ends if the step or the length of any record is changed, or the last byte of a share, commitment, nonce or confirmation",
        arguments: Way.allCases)
    func changedRecords(way: Way) async throws {
        let (alice, bob) = (try PairingDevice(), try PairingDevice())
        let ways = try way.ways(bob)
        let records = try await PairingRun().pair(alice, ways.dialer, bob, ways.acceptor).records
        for (number, record) in records.enumerated() {
            // The last change is only for records with a share, commitment, nonce or confirmation.
            // The last byte of `begin` is a standing, and another standing may be permitted.
            let changeCount = record.payload.count > 3 ? 7 : 6
            for change in 0..<changeCount {
                let (alice, bob) = (try PairingDevice(), try PairingDevice())
                let ways = try way.ways(bob)
                var run = PairingRun()
                run.tamper = { index, _, payload in
                    guard index == number else { return payload }
                    switch change {
                    case 0: return [payload[0] ^ 0x40] + payload.dropFirst()
                    case 1: return payload + [0]
                    case 2: return []
                    case 3: return [(payload[0] + 1) % 7] + payload.dropFirst()
                    case 4: return payload.isEmpty ? [] : Array(payload.dropLast())
                    case 5: return [99] + payload
                    default:
                        var changed = payload
                        changed[changed.count - 1] ^= 1
                        return changed
                    }
                }
                let outcome = try await run.pair(alice, ways.dialer, bob, ways.acceptor)
                #expect(!outcome.errors.isEmpty, "record \(number), change \(change)")
                #expect(outcome.complete != [.dialer, .acceptor])
            }
        }
    }

    @Test("a name that is bound to another key is not given to a new peer")
    func takenName() async throws {
        let (alice, bob, eve) = (try PairingDevice(), try PairingDevice(), try PairingDevice())
        try alice.store.bind("bob", to: eve.key)
        let policy = TrustPolicy.pairing(
            .code(TrustPolicy.PairingCode()), store: alice.store, name: "bob")
        let rule = try #require(policy.pairingRule)
        guard case .refuse(let reason) = try rule.verdict(on: bob.key) else {
            return #expect(Bool(false), "a taken name is given away")
        }
        #expect(reason.contains("bob is known with \(eve.key)"))
    }

    @Test(
        "if the name gets another key during the last confirmations, the side gives up, and nothing stays pending",
        arguments: Way.allCases, [ChannelRole.dialer, .acceptor])
    func nameTakenMeanwhile(way: Way, role: ChannelRole) async throws {
        let (alice, bob, eve) = (try PairingDevice(), try PairingDevice(), try PairingDevice())
        let ways = try way.ways(bob)
        let (device, name, peer) = role == .dialer ? (alice, "bob", bob) : (bob, "alice", alice)
        var run = PairingRun()
        run.tamper = { _, sender, payload in
            if sender == .acceptor, payload.first == PairingStep.confirm.rawValue {
                device.store.content.withLock { $0.names[name] = eve.key }
            }
            return payload
        }
        let outcome = try await run.pair(alice, ways.dialer, bob, ways.acceptor)
        var error = try #require(outcome.errors[role])
        #expect(error.code == .untrusted && !outcome.complete.contains(role))
        #expect(error.reason.contains("\(name) is known with \(eve.key)"))
        #expect(error.reason.contains("choose another name, and pair again"))
        #expect(device.names == [name: eve.key] && device.pending.isEmpty)
        error.claimed = peer.claim
        let ownWay = role == .dialer ? ways.dialer : ways.acceptor
        // By a comparison, an acceptor never gives up by itself.
        #expect(ownWay.isOver(after: error, as: role) == (role == .dialer || way != .comparison))
    }

    @Test("the error with which a listener gives up says that its code cannot be tried again")
    func triesInFinalError() async throws {
        let (alice, bob) = (try PairingDevice(), try PairingDevice())
        let way = TrustPolicy.Pairing.code(try TrustPolicy.PairingCode("123456"))
        var errors: [ChannelError] = []
        for _ in 0..<3 {
            let outcome = try await PairingRun().pair(
                alice, .code(try TrustPolicy.PairingCode("654321")), bob, way)
            errors.append(try #require(outcome.errors[.acceptor]))
            if errors.count < 3 { #expect(way.finalError(after: errors[0], as: .acceptor) == nil) }
        }
        #expect(errors[0].reason.contains("this code can be tried 2 more times"))
        // A link may report its failure only after other links have used the remaining tries.
        for error in errors {
            let reason = try #require(way.finalError(after: error, as: .acceptor)).reason
            #expect(reason.hasPrefix("the codes differ: "), "\(reason)")
            #expect(reason.hasSuffix("; this code cannot be tried again, make a new one"))
        }
        let late = try await PairingRun().pair(
            alice, .code(try TrustPolicy.PairingCode("123456")), bob, way)
        let refusal = try #require(late.errors[.acceptor])
        #expect(way.finalError(after: refusal, as: .acceptor)?.reason == refusal.reason)
        #expect(way.finalError(after: ChannelError(.truncated, ""), as: .acceptor) == nil)
    }

    @Test(
        "a peer whose key is kept as pending cannot complete a pairing whose code it did not know")
    func pendingOfAttacker() async throws {
        // Eve's code is wrong. Alice keeps Eve's key as pending before she sends her confirmation.
        let (alice, eve) = (try PairingDevice(), try PairingDevice())
        var run = PairingRun()
        run.recordsBeforeCut = 5
        _ = try await run.pair(
            alice, .code(try TrustPolicy.PairingCode("123456")), eve,
            .code(try TrustPolicy.PairingCode("654321")))
        #expect(alice.pending.map(\.isVerified) == [false])
        // Eve claims that she has verified Alice, with a transcript that she has made up.
        try eve.store.keepPending(
            TrustPolicy.PendingPeer(
                name: "alice", key: alice.key, transcript: Array(repeating: 1, count: 32),
                isVerified: true))
        // She dials, so that Alice is the first to get a proof, and has to refuse it.
        let code = try TrustPolicy.PairingCode("1111")
        let outcome = try await PairingRun().pair(
            eve, .code(try TrustPolicy.PairingCode("2222")), alice, .code(code),
            peerNames: ("alice", "bob"))
        #expect(outcome.errors[.acceptor]?.code == .untrusted)
        #expect(
            outcome.errors[.acceptor]?.reason.contains("the peer has kept another one") == true)
        #expect(outcome.complete.isEmpty && alice.names.isEmpty && alice.pending.isEmpty)
        // Eve claims to know Alice, and dials. The pairing runs in full, and Eve's code is wrong.
        let secondAlice = try PairingDevice()
        _ = try await run.pair(
            secondAlice, .code(try TrustPolicy.PairingCode("123456")), eve,
            .code(try TrustPolicy.PairingCode("654321")))
        try eve.store.bind("alice", to: secondAlice.key)
        let last = try await PairingRun().pair(
            eve, .code(try TrustPolicy.PairingCode("2222")), secondAlice, .code(code),
            peerNames: ("alice", "bob"))
        #expect(last.errors[.acceptor]?.code == .untrusted)
        #expect(last.errors[.acceptor]?.reason.contains("the codes differ") == true)
        #expect(last.complete.isEmpty && secondAlice.names.isEmpty)
        #expect(secondAlice.pending.map(\.isVerified) == [false])
    }

    @Test(
        "an exchange that fails does not remove a pending entry that another exchange has made meanwhile"
    )
    func entryOfAnotherExchange() async throws {
        let (alice, bob) = (try PairingDevice(), try PairingDevice())
        var run = PairingRun()
        run.recordsBeforeCut = 5
        let ways = try Way.code.ways(bob)
        _ = try await run.pair(alice, ways.dialer, bob, ways.acceptor)
        let other = TrustPolicy.PendingPeer(
            name: "alice", key: alice.key, transcript: [UInt8](repeating: 7, count: 32),
            isVerified: true)
        // In Alice's next run with Bob, her proof is changed. Before Bob has the proof, another
        // exchange replaces his entry for Alice.
        var later = PairingRun()
        later.tamper = { _, role, payload in
            guard role == .dialer, payload.first == PairingStep.settle.rawValue else {
                return payload
            }
            bob.store.content.withLock { $0.pending[alice.key] = other }
            return payload.dropLast() + [payload[32] ^ 1]
        }
        let next = try Way.code.ways(bob)
        let outcome = try await later.pair(alice, next.dialer, bob, next.acceptor)
        #expect(outcome.errors[.acceptor]?.code == .untrusted)
        #expect(bob.pending == [other])
    }

    @Test("a peer that is known or pending under another name gets no new name without the code")
    func otherNames() async throws {
        let (alice, mallory) = (try PairingDevice(), try PairingDevice())
        try alice.store.bind("mallory", to: mallory.key)
        let transcript = [UInt8](repeating: 7, count: 32)
        func claim(_ verified: Bool) throws {
            try mallory.store.keepPending(
                TrustPolicy.PendingPeer(
                    name: "alice", key: alice.key, transcript: transcript, isVerified: verified))
        }
        func pair() async throws -> PairingRun.Outcome {
            try await PairingRun().pair(
                alice, .code(try TrustPolicy.PairingCode("123456")), mallory,
                .code(try TrustPolicy.PairingCode("654321")))
        }
        for verified in [true, false] {
            try claim(verified)
            #expect(try await pair().complete.isEmpty)
        }
        try mallory.store.bind("alice", to: alice.key)
        #expect(try await pair().complete.isEmpty)
        // The same if Alice keeps Mallory's key as pending under another name.
        try alice.store.keepPending(
            TrustPolicy.PendingPeer(
                name: "phone", key: mallory.key, transcript: transcript, isVerified: true))
        #expect(try await pair().complete.isEmpty)
        #expect(alice.names == ["mallory": mallory.key])
    }

    @Test("two sides that already know each other can pair again")
    func again() async throws {
        let (alice, bob) = (try PairingDevice(), try PairingDevice())
        for _ in 0..<2 {
            let ways = try Way.code.ways(bob)
            let outcome = try await PairingRun().pair(alice, ways.dialer, bob, ways.acceptor)
            #expect(outcome.errors.isEmpty && outcome.complete == [.dialer, .acceptor])
        }
    }

    @Test(
        "a pairing that is cut twice, with the roles exchanged in between, is completed at the third meeting"
    )
    func twoCuts() async throws {
        let (alice, bob) = (try PairingDevice(), try PairingDevice())
        var run = PairingRun()
        run.recordsBeforeCut = 5
        let ways = try Way.code.ways(bob)
        _ = try await run.pair(alice, ways.dialer, bob, ways.acceptor)
        #expect(alice.pending.map(\.isVerified) == [false])
        #expect(bob.pending.map(\.isVerified) == [true])
        // Bob dials, and stores Alice. She does not receive the last record, and keeps him as
        // pending.
        run.recordsBeforeCut = 4
        let next = try Way.code.ways(bob)
        _ = try await run.pair(
            bob, next.dialer, alice, next.acceptor, peerNames: ("alice", "bob"))
        #expect(bob.names == ["alice": alice.key])
        #expect(alice.names.isEmpty && alice.pending.map(\.isVerified) == [true])
        let last = try Way.code.ways(bob)
        let outcome = try await PairingRun().pair(alice, last.dialer, bob, last.acceptor)
        #expect(outcome.complete == [.dialer, .acceptor])
        #expect(alice.names == ["bob": bob.key] && alice.pending.isEmpty)
    }

    @Test("an abandoned run of a comparison counts as a try, and no fourth run begins")
    func givenUpComparisons() async throws {
        let (alice, bob) = (try PairingDevice(), try PairingDevice())
        let (askedByAlice, askedByBob) = (Locked(0), Locked(0))
        func comparison(counting asked: Locked<Int>) -> TrustPolicy.Pairing {
            .comparison { _ in
                asked.withLock { $0 += 1 }
                return true
            }
        }
        let bobsComparison = comparison(counting: askedByBob)
        for _ in 0..<3 {
            var run = PairingRun()
            // The acceptor's nonce arrives, and the dialer's nonce is lost.
            run.recordsBeforeCut = 4
            let outcome = try await run.pair(
                alice, comparison(counting: askedByAlice), bob, bobsComparison)
            #expect(outcome.errors.isEmpty)
        }
        // The dialer has both nonces in each run, and the acceptor in none.
        #expect(askedByAlice.withLock { $0 } == 3)
        #expect(askedByBob.withLock { $0 } == 0)
        let last = try await PairingRun().pair(
            alice, comparison(counting: askedByAlice), bob, bobsComparison)
        #expect(last.errors[.acceptor]?.reason.contains("was tried 3 times") == true)
        #expect(last.records.count < 4)
    }
}
