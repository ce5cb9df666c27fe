import BLESecNoise
import BLESecPrimitives
import Testing

@Suite struct PatternTests {
    @Test(
        "there are 3 one-way, 12 interactive and 23 deferred patterns, each with a name of its own")
    func table() {
        let names = HandshakePattern.all.map(\.name)
        #expect(Set(names).count == 38)
        #expect(names.count { $0.utf8.count == 1 } == 3)
        #expect(names.count { $0.utf8.count == 2 && !$0.contains("1") } == 12)
        #expect(names.count { $0.contains("1") } == 23)
    }

    @Test(
        "every pattern of the table follows the rules of Noise §7.3",
        arguments: HandshakePattern.all)
    func rules(_ pattern: HandshakePattern) throws {
        let rebuilt = try HandshakePattern(
            name: pattern.name, initiatorPreMessage: pattern.initiatorPreMessage,
            responderPreMessage: pattern.responderPreMessage,
            messages: pattern.messages.map(\.tokens))
        #expect(rebuilt == pattern)
    }

    @Test(
        "a deferred pattern has the tokens and pre-messages of its original pattern, without ss",
        arguments: HandshakePattern.all.filter { $0.name.contains("1") })
    func deferral(_ pattern: HandshakePattern) throws {
        let origin = try #require(HandshakePattern.named(String(pattern.name.filter { $0 != "1" })))
        let tokens = Set(pattern.messages.flatMap(\.tokens))
        let originTokens = Set(origin.messages.flatMap(\.tokens))
        // A deferred pattern leaves `ss` out: when one side's authentication is deferred, `ss` adds
        // nothing.
        #expect(tokens == originTokens.subtracting([Token.ss]))
        #expect(pattern.initiatorPreMessage == origin.initiatorPreMessage)
        #expect(pattern.responderPreMessage == origin.responderPreMessage)
    }

    @Test("psk tokens are where Noise §9.4 puts them")
    func psk() throws {
        let pattern = try ProtocolName("Noise_XXpsk0+psk3_25519_ChaChaPoly_SHA256").pattern
        #expect(pattern.messages[0].tokens == [.psk, .e])
        #expect(pattern.messages[1].tokens == [.e, .ee, .s, .es])
        #expect(pattern.messages[2].tokens == [.s, .se, .psk])
        #expect(pattern.pskPositions == [0, 3])
        #expect(pattern.pskCount == 2)
        let twoPSKs = try ProtocolName("Noise_NNpsk0+psk1_25519_ChaChaPoly_SHA256").pattern
        #expect(twoPSKs.messages[0].tokens == [.psk, .e, .psk])
    }

    @Test(
        "a psk modifier is refused if the pattern has no message for its number",
        arguments: [Int.min, -1, 4, .max])
    func pskPosition(_ position: Int) throws {
        let pattern = try #require(HandshakePattern.named("XX"))
        #expect(throws: PatternError.noSuchMessage(modifier: "psk\(position)", messages: 3)) {
            _ = try pattern.applying(.psk(position))
        }
    }

    @Test("a fallback makes the first message a pre-message and lets the responder begin")
    func fallback() throws {
        let pattern = try ProtocolName("Noise_XXfallback+psk0_25519_ChaChaPoly_SHA256").pattern
        #expect(pattern.initiatorPreMessage == [.e])
        #expect(pattern.messages[0].sender == .responder)
        #expect(pattern.messages[0].tokens == [.psk, .e, .ee, .s, .es])
        #expect(pattern.messages[1].sender == .initiator)
        #expect(pattern.isFallback)
        #expect(!pattern.isOneWay)
        let kn = try ProtocolName("Noise_KNfallback_25519_ChaChaPoly_SHA256").pattern
        #expect(kn.initiatorPreMessage == [.e, .s])
    }

    @Test("exactly the patterns N, K and X are one-way")
    func oneWay() {
        #expect(HandshakePattern.all.filter(\.isOneWay).map(\.name) == ["N", "K", "X"])
    }

    @Test("a pattern states which static keys each role needs, and which roles it authenticates")
    func keys() throws {
        let xx = try #require(HandshakePattern.named("XX"))
        let nk = try #require(HandshakePattern.named("NK"))
        let kk = try #require(HandshakePattern.named("KK"))
        for role in Role.allCases {
            #expect(xx.requiresLocalStatic(role))
            #expect(!xx.requiresRemoteStatic(role))
            #expect(kk.requiresLocalStatic(role))
            #expect(kk.requiresRemoteStatic(role))
            #expect(xx.authenticates(role))
        }
        #expect(!nk.requiresLocalStatic(.initiator))
        #expect(nk.requiresRemoteStatic(.initiator))
        #expect(nk.requiresLocalStatic(.responder))
        #expect(!nk.requiresRemoteStatic(.responder))
        #expect(!nk.authenticates(.initiator))
        #expect(nk.authenticates(.responder))
    }

    @Test("a negative number of messages proves as much as no message", arguments: [Int.min, -1])
    func provenAfterNegativeCount(_ count: Int) throws {
        for name in ["XX", "NN"] {
            let pattern = try #require(HandshakePattern.named(name))
            for role in Role.allCases {
                #expect(pattern.isProven(role, after: count) == (name == "NN"))
            }
        }
    }

    typealias Exposure = HandshakePattern.StaticKeyExposure

    /// A pattern, and who can see the initiator's and the responder's static key in it.
    static let exposures: [(name: String, initiator: Exposure, responder: Exposure)] = [
        ("XX", Exposure.protected(message: 2), Exposure.anyPeer(message: 1)),
        ("XN", Exposure.anyPeer(message: 2), Exposure.unused),
        ("NX", Exposure.unused, Exposure.anyPeer(message: 1)),
        ("IK", Exposure.protected(message: 0), Exposure.known),
        ("IX", Exposure.clear(message: 0), Exposure.protected(message: 1)),
        ("I1X", Exposure.clear(message: 0), Exposure.anyPeer(message: 1)),
        ("IK1", Exposure.clear(message: 0), Exposure.known),
        ("KK", Exposure.known, Exposure.known),
        ("NN", Exposure.unused, Exposure.unused),
        ("XX1", Exposure.protected(message: 2), Exposure.anyPeer(message: 1)),
        ("X1X1", Exposure.protected(message: 2), Exposure.anyPeer(message: 1)),
        ("X", Exposure.protected(message: 0), Exposure.known),
    ]

    @Test(
        "who can see a static key follows from the pattern's tokens before the key",
        arguments: exposures)
    func exposure(_ expected: (name: String, initiator: Exposure, responder: Exposure)) throws {
        let pattern = try #require(HandshakePattern.named(expected.name))
        #expect(pattern.staticKeyExposure(of: .initiator) == expected.initiator)
        #expect(pattern.staticKeyExposure(of: .responder) == expected.responder)
    }

    @Test("a psk before a static key protects it")
    func pskExposure() throws {
        let pattern = try #require(HandshakePattern.named("IX")).applying(.psk(0))
        #expect(pattern.staticKeyExposure(of: .initiator) == .protected(message: 0))
    }

    /// A pattern that breaks one rule.
    struct Broken: Sendable {
        /// The initiator's pre-message.
        var initiator: [Token] = []
        /// The responder's pre-message.
        var responder: [Token] = []
        let messages: [[Token]]
        let error: PatternError
    }

    static let broken: [Broken] = [
        Broken(messages: [[.e, .es]], error: .keyMissing(for: .es)),
        Broken(messages: [[.e], [.e, .ee, .ee]], error: .repeatedProduct(.ee)),
        Broken(messages: [[.e], [.e, .ee, .e]], error: .keySentTwice(.e, .responder)),
        Broken(messages: [], error: .noMessages),
        Broken(messages: [[.e]], error: .noSecret),
        Broken(responder: [.s], messages: [[.e], [.e, .s]], error: .keySentTwice(.s, .responder)),
        Broken(responder: [.s], messages: [[.e, .s], [.e]], error: .noSecret),
        Broken(initiator: [.ee], messages: [[.e]], error: .badPreMessage(.initiator)),
        Broken(initiator: [.s, .e], messages: [[.e]], error: .badPreMessage(.initiator)),
        Broken(
            initiator: [.s], messages: [[.e], [.e, .se], []],
            error: .encryptsWithoutEphemeral(.initiator, after: .se, needs: .ee)),
        Broken(
            responder: [.s], messages: [[.e, .es], [.e]],
            error: .encryptsWithoutEphemeral(.responder, after: .es, needs: .ee)),
        Broken(
            initiator: [.s], responder: [.s], messages: [[.ss]],
            error: .encryptsWithoutEphemeral(.initiator, after: .ss, needs: .es)),
        Broken(messages: [[.psk]], error: .pskWithoutEphemeral(.initiator)),
        Broken(messages: [[.psk, .e], [.psk]], error: .pskWithoutEphemeral(.responder)),
    ]

    @Test(
        "a pattern that breaks a rule is refused, and the error names the rule", arguments: broken)
    func rule(_ broken: Broken) {
        #expect(throws: broken.error) {
            _ = try HandshakePattern(
                name: "ZZ", initiatorPreMessage: broken.initiator,
                responderPreMessage: broken.responder, messages: broken.messages)
        }
    }

    @Test("a custom pattern may not use the name of a known pattern")
    func nameTaken() {
        #expect(throws: PatternError.nameTaken("XX")) {
            _ = try HandshakePattern(name: "XX", messages: [[.e], [.e, .ee]])
        }
    }

    @Test("a pattern name of more than 224 bytes, including modifiers, is refused")
    func nameTooLong() throws {
        let messages: [[Token]] = [[.e], [.e, .ee]]
        let longest = try HandshakePattern(
            name: String(repeating: "A", count: 224), messages: messages)
        let name = ProtocolName(pattern: longest, hash: .blake2b).description
        #expect(name.utf8.count == ProtocolName.maximumLength)
        #expect(throws: PatternError.nameTooLong(228)) { _ = try longest.applying(.psk(0)) }
        #expect(throws: PatternError.nameTooLong(225)) {
            _ = try HandshakePattern(name: String(repeating: "A", count: 225), messages: messages)
        }
    }

    @Test(
        "a custom pattern's name has only the letters A to Z and digits, and begins with a letter",
        arguments: ["", "1X", "xx", "X_X", "XX psk0", "É"])
    func badName(_ name: String) {
        #expect(throws: PatternError.badName(name)) {
            _ = try HandshakePattern(name: name, messages: [[.e], [.e, .ee]])
        }
    }
}
