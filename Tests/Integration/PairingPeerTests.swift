import BLESec
import BLESecLocking
import TestSupport
import Testing

extension Integration {
    /// Channels that pair with `pairing_peer.py`, a peer that is written from the wire-format page
    /// and CPace's draft on top of `noiseprotocol` and libsodium's ristretto255.
    @Suite(.timeLimit(.minutes(3))) struct PairingPeerTests {
        enum Way: String, CaseIterable, Sendable, CustomTestStringConvertible {
            case invitation, code, comparison
            var testDescription: String { rawValue }
        }

        /// The roles of the Python peer. The library has the other role.
        static let roles = [ChannelRole.dialer, .acceptor]

        @Test("CPace in Python agrees with the draft's vectors")
        func vectors() throws {
            let outcome = try Subprocess.run(PairingPeer.python, [PairingPeer.folder + "cpace.py"])
            #expect(outcome.status == 0, "\(outcome.errors)")
            #expect(outcome.text == "the draft's vectors agree\n")
        }

        @Test(
            "a Python peer pairs in either role, both sides store each other, and messages follow",
            arguments: Way.allCases, roles)
        func pairs(way: Way, role: ChannelRole) async throws {
            let (peer, library) = (try PairingPeer(), try PairingLibrary())
            let meeting = try library.meeting(way, role, with: peer, "bob")
            let outcome = try await meeting.run("bob")
            #expect(outcome.error == nil, "\(String(describing: outcome.error))")
            #expect(outcome.peer == "paired known=1 pending=0")
            #expect(try library.knownPeers() == ["peer": peer.key("bob")])
            #expect(try library.store.pendingPeers().isEmpty)
            if way == .comparison {
                #expect(outcome.digits?.count == 6 && outcome.digits == library.digits)
            }
            await meeting.end()
        }

        @Test(
            "the acceptor refuses a wrong code twice, and the next try with the right code succeeds",
            arguments: roles)
        func wrongCode(role: ChannelRole) async throws {
            let (peer, library) = (try PairingPeer(), try PairingLibrary())
            let meeting = try library.meeting(.code, role, with: peer, "bob")
            for tries in 1...2 {
                let wrong = try await meeting.run("bob", value: "654321")
                // The acceptor is first to have the other side's confirmation, and refuses it.
                if role == .dialer {
                    #expect(wrong.error?.code == .untrusted)
                    #expect(wrong.error?.reason.contains("the codes differ") == true)
                    #expect(wrong.peer == "refused 1 known=0 pending=0")
                } else {
                    #expect(wrong.error?.code == .refused)
                    #expect(wrong.peer == "refuses known=0 pending=0")
                }
                #expect(library.code.triesLeft == 3 - tries)
                #expect(try library.knownPeers().isEmpty)
                #expect(try library.store.pendingPeers().isEmpty)
            }
            let right = try await meeting.run("bob")
            #expect(right.error == nil && right.peer.hasPrefix("paired"), "\(right)")
            #expect(library.code.triesLeft == 0)
            #expect(try library.knownPeers() == ["peer": peer.key("bob")])
            await meeting.end()
        }

        @Test("after three wrong codes, the right code is also refused", arguments: roles)
        func threeTries(role: ChannelRole) async throws {
            let (peer, library) = (try PairingPeer(), try PairingLibrary())
            let meeting = try library.meeting(.code, role, with: peer, "bob")
            for number in 0..<3 {
                let wrong = try await meeting.run("bob-\(number)", value: "654321")
                #expect(wrong.error != nil && !wrong.peer.hasPrefix("paired"))
            }
            let late = try await meeting.run("bob")
            #expect(late.error?.code == .untrusted)
            #expect(late.error?.reason.contains("tried 3 times") == true, "\(late)")
            #expect(try library.knownPeers().isEmpty)
            await meeting.end()
        }

        /// A meeting in which the peer closes the link before the pairing is complete.
        struct Interruption: Sendable, CustomTestStringConvertible {
            /// The peer's role.
            let role: ChannelRole
            /// The peer's argument `cut`: the step in place of which the peer closes the link. In
            /// the step `unstored` the peer would store the library's key.
            let cut: String
            /// What the library's channel fails with; nil if the library has already paired.
            let code: ChannelError.Code?
            /// How many keys the library then knows, and how many the peer knows.
            let known: [Int]

            var testDescription: String { "\(role) \(cut)" }
        }

        static let interruptions = [
            // Only the dialer has kept its peer, as pending: it does so before it sends `confirm`.
            Interruption(role: .dialer, cut: "confirm", code: .truncated, known: [0, 0]),
            Interruption(role: .dialer, cut: "unstored", code: .mayBePaired, known: [0, 0]),
            Interruption(role: .dialer, cut: "done", code: .mayBePaired, known: [0, 1]),
            Interruption(role: .acceptor, cut: "confirm", code: .mayBePaired, known: [0, 0]),
            Interruption(role: .acceptor, cut: "unstored", code: nil, known: [1, 0]),
        ]

        @Test(
            "the next meeting completes an interrupted pairing, without a code if both sides have kept that pairing",
            arguments: interruptions, [1, 2, 3, 4, 5, 6])
        func interrupted(_ interruption: Interruption, variant: Int) async throws {
            // Variants 1 to 3 are the three ways, with the same roles at the second meeting. Variants 4
            // to 6 are the three ways, with exchanged roles at the second meeting.
            let way = Way.allCases[variant % 3]
            let secondRole = variant > 3 ? interruption.role.peer : interruption.role
            let (peer, library) = (try PairingPeer(), try PairingLibrary())
            let firstMeeting = try library.meeting(way, interruption.role, with: peer, "bob")
            let firstOutcome = try await firstMeeting.run("bob", "cut=\(interruption.cut)")
            await firstMeeting.end()
            // If `code` is nil, the library has paired, and the cut ends a channel that is ready.
            if interruption.code == nil {
                #expect(
                    firstOutcome.error?.code == .truncated || firstOutcome.error?.code == .link,
                    "\(firstOutcome)")
            } else {
                #expect(firstOutcome.error?.code == interruption.code, "\(firstOutcome)")
            }
            let onlyPeerHasKept = interruption.code == .truncated
            #expect(
                firstOutcome.peer.hasPrefix("cut known=\(interruption.known[1])"),
                "\(firstOutcome)")
            #expect(try library.knownPeers().count == interruption.known[0])
            let kept = try library.store.pendingPeers()
            #expect(kept.count == (onlyPeerHasKept || interruption.known[0] == 1 ? 0 : 1))
            let bobsKey = try peer.key("bob")
            #expect(kept.allSatisfy { $0.key == bobsKey && $0.name == "peer" })
            // As the dialer with a code, the library has not verified the peer.
            let isVerified = way != .code || interruption.role == .dialer
            #expect(kept.allSatisfy { $0.isVerified == isVerified })
            // They meet again by a code. If only the peer has kept the pairing, the code is needed, and
            // both sides have the same code. Otherwise their codes differ.
            try library.makeCode()
            let laterMeeting = try library.meeting(.code, secondRole, with: peer, "bob")
            let secondOutcome = try await laterMeeting.run(
                "bob", value: onlyPeerHasKept ? "123456" : "654321")
            #expect(
                secondOutcome.error == nil && secondOutcome.peer == "paired known=1 pending=0",
                "\(secondOutcome)")
            #expect(try library.knownPeers() == ["peer": bobsKey])
            #expect(try library.store.pendingPeers().isEmpty)
            // Both know each other now, and need no code.
            let thirdOutcome = try await laterMeeting.run("bob", value: "111111")
            #expect(
                thirdOutcome.error == nil && thirdOutcome.peer == "paired known=1 pending=0",
                "\(thirdOutcome)")
            await laterMeeting.end()
        }

        /// What a hostile peer sends in place of its records, and what the library's channel fails
        /// with.
        struct Attack: Sendable, CustomTestStringConvertible {
            let way: Way
            /// The peer's role.
            let role: ChannelRole
            /// What the peer sends, as an argument of `pairing_peer.py`.
            let words: String
            let code: ChannelError.Code

            init(_ way: Way, _ role: ChannelRole, _ words: String, _ code: ChannelError.Code) {
                self.way = way
                self.role = role
                self.words = words
                self.code = code
            }

            var testDescription: String { "\(way.rawValue) \(role) \(words)" }
        }

        /// Shares that are not valid: the identity, which is all zeros; encodings that are
        /// negative, not canonical or of no element; and points of small order of edwards25519 and
        /// curve25519.
        private static let invalidElements = [
            String(repeating: "00", count: 32),
            "01" + String(repeating: "00", count: 31),
            "02" + String(repeating: "00", count: 31),
            "ed" + String(repeating: "ff", count: 30) + "7f",
            "ec" + String(repeating: "ff", count: 30) + "7f",
            String(repeating: "00", count: 31) + "80",
            String(repeating: "ff", count: 32),
            "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        ]

        /// Attacks that a peer can make in either role.
        private static func attacksInEitherRole(_ role: ChannelRole) -> [Attack] {
            let violation = ChannelError.Code.protocolViolation
            var attacks = invalidElements.map {
                Attack(.code, role, "share=01\($0)", violation)
            }
            attacks += [
                // The first record.
                Attack(.code, role, "begin=", violation),
                Attack(.code, role, "begin=00", violation),
                Attack(.code, role, "begin=short", violation),
                Attack(.code, role, "begin=long", violation),
                Attack(.code, role, "begin=000204", violation),
                Attack(.code, role, "begin=0002ff", violation),
                Attack(.code, role, "begin=070200", violation),
                Attack(.code, role, "begin=ff0200", violation),
                Attack(.code, role, "begin=03", violation),
                Attack(.code, role, "begin=000000", .untrusted),
                Attack(.code, role, "begin=000400", .untrusted),
                Attack(.code, role, "begin=00ff00", .untrusted),
                Attack(.code, role, "begin=000300", .untrusted),
                Attack(.code, role, "begin=own+own", violation),
                // The share.
                Attack(.code, role, "share=short", violation),
                Attack(.code, role, "share=long", violation),
                Attack(.code, role, "share=01", violation),
                Attack(.code, role, "share=own+own", violation),
                Attack(.code, role, "share=03", violation),
                Attack(.code, role, "share=02" + String(repeating: "00", count: 64), violation),
                Attack(.code, role, "share=06" + String(repeating: "00", count: 32), violation),
                Attack(.code, role, "share=05" + String(repeating: "00", count: 32), violation),
                // The confirmation.
                Attack(.code, role, "confirm=flipped", .untrusted),
                Attack(.code, role, "confirm=02" + String(repeating: "00", count: 64), .untrusted),
                Attack(.code, role, "confirm=02", violation),
                Attack(.code, role, "confirm=short", violation),
                Attack(.code, role, "confirm=long", violation),
                Attack(.code, role, "confirm=03", violation),
                Attack(.code, role, "confirm=000200", violation),
                Attack(
                    .invitation, role, "confirm=02" + String(repeating: "00", count: 64), violation),
                Attack(.invitation, role, "confirm=03", violation),
                Attack(.invitation, role, "confirm=long", violation),
                Attack(
                    .comparison, role, "confirm=02" + String(repeating: "00", count: 64), violation),
                Attack(.comparison, role, "confirm=03", violation),
                Attack(.comparison, role, "nonce=short", violation),
                Attack(.comparison, role, "nonce=long", violation),
                Attack(.comparison, role, "nonce=02", violation),
                // Records of other types, of which only `reject` (07) may come during a pairing.
                Attack(.code, role, "share=00:68656c6c6f+own", violation),
                Attack(.code, role, "confirm=01:68656c6c6f", violation),
                Attack(.code, role, "confirm=02:00", violation),
                Attack(.invitation, role, "confirm=08:0000000000000000+own", violation),
                Attack(.comparison, role, "nonce=03:", violation),
                Attack(.code, role, "share=05:", violation),
                Attack(.code, role, "begin=06:" + String(repeating: "00", count: 32), violation),
                Attack(.code, role, "share=07:01" + String(repeating: "00", count: 31), .refused),
                Attack(.code, role, "share=7f:", violation),
                // Padding. With the peer's other bytes, it exceeds 32 KiB.
                Attack(.code, role, "share=fill16500+fill16500+own", .limitExceeded),
                Attack(.invitation, role, "confirm=fill33000+own", .limitExceeded),
                Attack(.code, role, "confirm=fill32600", .limitExceeded),
            ]
            return attacks
        }

        /// Attacks that a peer can make in one role only.
        private static let attacksInOneRole = [
            Attack(.code, .acceptor, "share=echo", .protocolViolation),
            Attack(.code, .acceptor, "confirm=echo", .untrusted),
            Attack(.code, .acceptor, "begin=echo+03", .protocolViolation),
            Attack(.comparison, .acceptor, "nonce=echo", .protocolViolation),
            Attack(.code, .dialer, "confirm=own+own", .protocolViolation),
            Attack(.invitation, .dialer, "confirm=own+own", .protocolViolation),
            Attack(.comparison, .dialer, "confirm=own+own", .protocolViolation),
            Attack(.code, .dialer, "done=long", .protocolViolation),
            Attack(.code, .dialer, "done=00:68656c6c6f+own", .protocolViolation),
            Attack(.comparison, .dialer, "nonce=flipped", .protocolViolation),
            Attack(.comparison, .dialer, "nonce=echo", .protocolViolation),
            Attack(.comparison, .dialer, "commit=short", .protocolViolation),
            Attack(.comparison, .dialer, "commit=own+own", .protocolViolation),
            Attack(.comparison, .dialer, "commit=03", .protocolViolation),
        ]

        @Test(
            "records that are malformed or out of place end the channel, no key becomes known, and the next peer is served",
            arguments: Way.allCases, roles)
        func hostile(way: Way, role: ChannelRole) async throws {
            let peer = try PairingPeer(within: 110)
            let attacks = (Self.attacksInEitherRole(role) + Self.attacksInOneRole)
                .filter { $0.way == way && $0.role == role }
            try #require(attacks.count >= 5)
            for (number, attack) in attacks.enumerated() {
                let library = try PairingLibrary()
                let (eve, bob) = ("eve-\(number)", "bob-\(number)")
                var meeting = try library.meeting(
                    way, role, with: peer, way == .invitation ? eve : bob)
                let outcome = try await meeting.run(eve, attack.words)
                #expect(
                    outcome.peer.hasPrefix("closed") || outcome.peer.hasPrefix("refused 1"),
                    "\(attack): \(outcome)")
                #expect(try library.knownPeers().isEmpty, "\(attack)")
                let evesKey = try peer.key(eve)
                let kept = try library.store.pendingPeers()
                #expect(kept.allSatisfy { $0.key == evesKey }, "\(attack)")
                // After its own confirmation, the library may not know whether the peer has paired.
                #expect(
                    outcome.error?.code == attack.code
                        || outcome.error?.code == .mayBePaired && !kept.isEmpty,
                    "\(attack): \(outcome)")
                if role == .acceptor, attack.words.hasPrefix("confirm=fill") {
                    // Anyone on the link can send too many bytes, so these bytes do not show whether
                    // the peer has paired.
                    #expect(outcome.error?.code == .mayBePaired, "\(attack): \(outcome)")
                }
                // The first peer that proves an invitation's secret owns the invitation, and may
                // try again. A code or a comparison belongs to the first peer that was verified:
                // the next one needs a new code or comparison.
                let honest = way == .invitation ? eve : bob
                // A dialer has confirmed the digits before it gets the acceptor's confirmation.
                let hasConfirmedDigits =
                    way == .comparison && role == .acceptor && attack.words.hasPrefix("confirm")
                if way != .invitation, kept.contains(where: \.isVerified) || hasConfirmedDigits {
                    await meeting.end()
                    try library.makeCode()
                    meeting = try library.meeting(way, role, with: peer, bob)
                }
                let next = try await meeting.run(honest)
                #expect(
                    next.error == nil && next.peer.hasPrefix("paired known=1"),
                    "\(attack): \(next)")
                #expect(try library.knownPeers() == ["peer": peer.key(honest)])
                await meeting.end()
            }
        }

        @Test("padding of less than 32 KiB has no effect", arguments: roles)
        func padding(role: ChannelRole) async throws {
            let (peer, library) = (try PairingPeer(), try PairingLibrary())
            let meeting = try library.meeting(.code, role, with: peer, "bob")
            let outcome = try await meeting.run(
                "bob", "share=fill10000+own+fill0 confirm=fill10000+own done=fill9000+own")
            #expect(outcome.error == nil && outcome.peer.hasPrefix("paired"), "\(outcome)")
            await meeting.end()
        }

        @Test("a second confirmation, after the pairing, ends the channel")
        func repeatedLate() async throws {
            let (peer, library) = (try PairingPeer(), try PairingLibrary())
            let meeting = try library.meeting(.code, .acceptor, with: peer, "bob")
            let outcome = try await meeting.run("bob", "confirm=own+own")
            #expect(outcome.error?.code == .protocolViolation, "\(outcome)")
            await meeting.end()
        }

        @Test(
            "a peer that does not know the code gains nothing, whatever it claims in `begin` to have stored",
            arguments: roles, [0, 1, 2, 3])
        func claims(role: ChannelRole, claim: Int) async throws {
            let (peer, library) = (try PairingPeer(), try PairingLibrary())
            let meeting = try library.meeting(.code, role, with: peer, "bob")
            // A stranger, whom the library has not seen before.
            let stranger = try await meeting.run("eve", "claim=\(claim)", value: "654321")
            #expect(stranger.error.map { [.untrusted, .refused].contains($0.code) } == true)
            #expect(stranger.peer.hasPrefix("refuse"), "\(stranger)")
            #expect(try library.knownPeers().isEmpty)
            await meeting.end()
            // A key that the library, as the dialer, has kept as pending after a wrong guess: the
            // peer has closed the link, and has not refused.
            let secondLibrary = try PairingLibrary()
            let guessMeeting = try secondLibrary.meeting(.code, .acceptor, with: peer, "bob")
            _ = try await guessMeeting.run("mallory", "cut=reject", value: "654321")
            #expect(try secondLibrary.store.pendingPeers().map(\.isVerified) == [false])
            await guessMeeting.end()
            let nextMeeting = try secondLibrary.meeting(.code, role, with: peer, "bob")
            let again = try await nextMeeting.run("mallory", "claim=\(claim)", value: "654321")
            // As the dialer, the library sends its proof if the peer claims to have kept a pairing.
            let sendsProof = role == .acceptor && [1, 2].contains(claim)
            #expect(
                again.error.map {
                    [.untrusted, .refused, sendsProof ? .mayBePaired : .refused].contains($0.code)
                } == true, "\(again)")
            #expect(again.peer.hasPrefix("refuse"), "\(again)")
            #expect(try secondLibrary.knownPeers().isEmpty)
            // The next peer is served, and the attempt to complete an earlier pairing leaves
            // nothing behind.
            let bob = try await nextMeeting.run("bob")
            #expect(bob.error == nil && bob.peer.hasPrefix("paired"), "\(bob)")
            #expect(try secondLibrary.knownPeers() == ["peer": peer.key("bob")])
            await nextMeeting.end()
        }

        @Test(
            "a wrong proof of an earlier pairing is refused, and the library forgets that pairing",
            arguments: roles, ["settle=flipped", "settle=06" + String(repeating: "00", count: 32)])
        func wrongProof(role: ChannelRole, words: String) async throws {
            let (peer, library) = (try PairingPeer(), try PairingLibrary())
            let firstMeeting = try library.meeting(.code, .acceptor, with: peer, "bob")
            _ = try await firstMeeting.run("bob", "cut=confirm")
            #expect(try library.store.pendingPeers().count == 1)
            await firstMeeting.end()
            let laterMeeting = try library.meeting(.code, role, with: peer, "bob")
            let outcome = try await laterMeeting.run("bob", words)
            #expect(outcome.error?.code == .untrusted, "\(outcome)")
            #expect(
                outcome.error?.reason.contains("the peer has kept another one") == true,
                "\(outcome)")
            #expect(outcome.peer == "refused 1 known=0 pending=1")
            #expect(try library.knownPeers().isEmpty && library.store.pendingPeers().isEmpty)
            let last = try await laterMeeting.run("bob")
            #expect(last.error == nil && last.peer == "paired known=1 pending=0", "\(last)")
            await laterMeeting.end()
        }

        @Test(
            "a malformed proof ends the channel, and so does another record in its place",
            arguments: roles)
        func malformedProof(role: ChannelRole) async throws {
            for words in ["settle=short", "settle=long", "settle=03", "settle=02", "begin=own+03"] {
                let (peer, library) = (try PairingPeer(), try PairingLibrary())
                let firstMeeting = try library.meeting(.code, .acceptor, with: peer, "bob")
                _ = try await firstMeeting.run("bob", "cut=confirm")
                await firstMeeting.end()
                let laterMeeting = try library.meeting(.code, role, with: peer, "bob")
                let outcome = try await laterMeeting.run("bob", words)
                // The library has sent no `done`, so the peer has not stored the library's key, and
                // the error is not `mayBePaired`.
                #expect(outcome.error?.code == .protocolViolation, "\(words): \(outcome)")
                #expect(try library.knownPeers().isEmpty)
                let last = try await laterMeeting.run("bob")
                #expect(last.error == nil && last.peer == "paired known=1 pending=0", "\(last)")
                await laterMeeting.end()
            }
        }

        @Test("an invitation that one peer has begun to use admits no other peer")
        func seenInvitation() async throws {
            let (peer, library) = (try PairingPeer(), try PairingLibrary())
            let meeting = try library.meeting(.invitation, .dialer, with: peer, "bob")
            // Nobody can begin without the secret.
            let (uri, secret) = (
                meeting.value, try #require(meeting.value.firstRange(of: "secret="))
            )
            let guess = uri.replacingCharacter(
                at: secret.upperBound, with: uri[secret.upperBound] == "A" ? "B" : "A")
            let blind = try await meeting.run("eve", value: guess)
            #expect(blind.error?.code == .authenticationFailed, "\(blind)")
            #expect(blind.peer.hasPrefix("closed"), "\(blind)")
            _ = try await meeting.run("bob", "cut=confirm")
            let eve = try await meeting.run("eve")
            #expect(eve.error?.code == .untrusted && eve.peer.hasPrefix("refused 1"), "\(eve)")
            let bob = try await meeting.run("bob")
            #expect(bob.error == nil && bob.peer.hasPrefix("paired"), "\(bob)")
            // Bob is known now, and may come again; nobody else may.
            let known = try await meeting.run("bob")
            #expect(known.error == nil && known.peer.hasPrefix("paired"), "\(known)")
            let late = try await meeting.run("eve")
            #expect(late.error?.code == .untrusted && late.peer.hasPrefix("refused 1"), "\(late)")
            await meeting.end()
        }

        @Test("digits that either person refuses end the pairing on both sides", arguments: roles)
        func differentDigits(role: ChannelRole) async throws {
            let (peer, library) = (try PairingPeer(), try PairingLibrary())
            let meeting = try library.meeting(.comparison, role, with: peer, "bob")
            let refusedByPeer = try await meeting.run("bob", "answer=no")
            #expect(
                refusedByPeer.error?.code == .refused && refusedByPeer.peer.hasPrefix("refuses"),
                "\(refusedByPeer)")
            library.confirms.withLock { $0 = false }
            let refusedHere = try await meeting.run("bob")
            #expect(
                refusedHere.error?.code == .untrusted && refusedHere.peer.hasPrefix("refused 1"),
                "\(refusedHere)")
            #expect(try library.knownPeers().isEmpty)
            library.confirms.withLock { $0 = true }
            let confirmed = try await meeting.run("bob")
            #expect(confirmed.error == nil && confirmed.peer.hasPrefix("paired"), "\(confirmed)")
            await meeting.end()
        }
    }
}

/// The program `pairing_peer.py`, which answers one request after another.
private final class PairingPeer {
    static let folder = #filePath.replacing("PairingPeerTests.swift", with: "Peers/")
    static let python = #filePath.replacing(
        "Tests/Integration/PairingPeerTests.swift", with: ".build/venv/bin/python")

    private let program: Subprocess
    private var count = 0

    init(within seconds: Double = 60) throws {
        program = try Subprocess(
            Self.python, [Self.folder + "pairing_peer.py"], input: .keptOpen, within: seconds)
    }

    /// Sends a request, and returns its number.
    func request(_ words: String) -> Int {
        program.send(Array((words + "\n").utf8))
        count += 1
        return count
    }

    /// Waits for a line that begins with the request's number and `word`; returns its rest.
    func answer(_ number: Int, _ word: String) throws -> String {
        let prefix = "\(number) \(word)"
        return String(try program.line(prefix).dropFirst(prefix.count).drop { $0 == " " })
    }

    func key(_ device: String) throws -> Fingerprint {
        let text = try answer(request("key device=\(device)"), "key")
        return try #require(Fingerprint(text))
    }
}

/// The side that the library plays: an identity, a file of known peers, and a code.
private final class PairingLibrary {
    let folder = ScratchFolder()
    let identity: IdentityKey
    let store: KnownPeersFile
    private(set) var code: TrustPolicy.PairingCode
    /// Whether the person on this side confirms the digits.
    let confirms = Locked(true)
    private let shown = Locked<String?>(nil)
    private var count = 0

    init() throws {
        identity = try IdentityKey.generate()
        store = KnownPeersFile(folder.file("known_peers"))
        code = try TrustPolicy.PairingCode("123456")
    }

    /// Makes the same code anew, with all tries.
    func makeCode() throws { code = try TrustPolicy.PairingCode("123456") }

    /// The digits that were shown last.
    var digits: String? { shown.withLock { $0 } }

    func knownPeers() throws -> [String: Fingerprint] {
        Dictionary(uniqueKeysWithValues: try store.peers().map { ($0.name, $0.key) })
    }

    /// Prepares meetings in which the peer has this role. With an invitation, if the peer is the
    /// acceptor, the peer's device `inviter` invites.
    func meeting(
        _ way: Integration.PairingPeerTests.Way, _ role: ChannelRole, with peer: PairingPeer,
        _ inviter: String
    ) throws -> PairingMeeting {
        let pairing: TrustPolicy.Pairing
        var value = "123456"
        switch way {
        case .invitation where role == .dialer:
            let invitation = PairingInvitation(from: identity.fingerprint, now: 1_800_000_000)
            pairing = .invitation(invitation)
            value = invitation.uri
        case .invitation:
            value = try peer.answer(peer.request("invite device=\(inviter)"), "invitation")
            pairing = .invitation(try PairingInvitation(parsing: value))
        case .code: pairing = .code(code)
        case .comparison:
            pairing = .comparison { [confirms, shown] digits in
                shown.withLock { $0 = digits }
                return confirms.withLock { $0 }
            }
        }
        var configuration = ChannelConfiguration(
            identity: identity, trust: .pairing(pairing, store: store, name: "peer"))
        configuration.timeouts.ready = .seconds(5)
        count += 1
        return PairingMeeting(
            peer: peer, role: role, configuration: configuration,
            socket: folder.file("socket-\(count)"), words: "way=\(way.rawValue) value=",
            value: value)
    }
}

/// One or more meetings of the library with the peer, which has the same role in each.
private final class PairingMeeting {
    struct Outcome {
        /// What the library's channel has failed with; nil if the library has paired, and the channel
        /// has ended without an error.
        let error: ChannelError?
        /// The outcome that the peer reports, in the words of `pairing_peer.py`.
        let peer: String
        /// The digits that the peer shows.
        var digits: String?
    }

    private let peer: PairingPeer
    private let role: ChannelRole
    private let configuration: ChannelConfiguration
    private let socket: String
    private let words: String
    /// The invitation or the code.
    let value: String
    private var host: PairingHost?

    init(
        peer: PairingPeer, role: ChannelRole, configuration: ChannelConfiguration, socket: String,
        words: String, value: String
    ) {
        self.peer = peer
        self.role = role
        self.configuration = configuration
        self.socket = socket
        self.words = words
        self.value = value
    }

    /// Meets a device of the peer on one link. `value` stands in place of the invitation or the
    /// code, and `more` has further values of the request.
    func run(
        _ device: String, _ more: String = "", value: String? = nil
    ) async throws -> Outcome {
        let rest = "device=\(device) socket=\(socket) \(words)\(value ?? self.value) \(more)"
        let number: Int
        let error: ChannelError?
        let report: String
        switch role {
        case .dialer:
            if host == nil {
                host = try await PairingHost(
                    Endpoint(parsing: "unix:\(socket)"), configuration)
            }
            let host = try #require(host)
            number = peer.request("dial \(rest)")
            report = try peer.answer(number, "outcome")
            error = try #require(await host.ends.first { _ in true }).error
        case .acceptor:
            number = peer.request("accept \(rest)")
            _ = try peer.answer(number, "listening")
            let endpoint = try Endpoint(parsing: "unix:\(socket)")
            let dialing = Task(executorPreference: EventLoop.shared) { [configuration] in
                await PairingHost.useChannel {
                    () async throws(ChannelError) in
                    try await SecureChannel.dial(endpoint, configuration: configuration)
                }
            }
            report = try peer.answer(number, "outcome")
            error = await dialing.value.error
        }
        let digits =
            report.hasPrefix("paired") && words.contains("comparison")
            ? try peer.answer(number, "digits") : nil
        return Outcome(error: error, peer: report, digits: digits)
    }

    func end() async { await host?.listener.close() }
}

/// A listener of the library that talks to whoever has paired, and reports how each link has ended.
private final class PairingHost: Sendable {
    struct End: Sendable {
        let error: ChannelError?
    }

    let listener: SecureListener
    let ends: AsyncStream<End>

    init(_ endpoint: Endpoint, _ configuration: ChannelConfiguration) async throws {
        let listener = try await SecureListener.listen(on: endpoint, configuration: configuration)
        let failures = await listener.failures()
        let (ends, continuation) = AsyncStream.makeStream(of: End.self)
        Task(executorPreference: EventLoop.shared) {
            for await failure in failures { continuation.yield(End(error: failure.error)) }
        }
        Task(executorPreference: EventLoop.shared) {
            for try await channel in listener.channels {
                continuation.yield(await Self.useChannel { channel })
            }
        }
        self.listener = listener
        self.ends = ends
    }

    /// Opens a channel, exchanges a message, and closes.
    static func useChannel(
        _ open: @Sendable () async throws(ChannelError) -> SecureChannel
    ) async -> End {
        do throws(ChannelError) {
            let channel = try await open()
            try await channel.send(Array("from the library".utf8))
            let message = try await channel.receive()
            guard message == Array("from the peer".utf8) else {
                throw ChannelError(.internal, "another message has arrived")
            }
            try await channel.close()
            return End(error: nil)
        } catch {
            return End(error: error)
        }
    }
}

extension String {
    fileprivate func replacingCharacter(at index: Index, with character: Character) -> String {
        String(self[..<index]) + String(character) + String(self[self.index(after: index)...])
    }
}
