import BLESecNoise
import BLESecNoiseVectors
import BLESecPrimitives
import FoundationEssentials
import Testing

/// The seed of this run's property tests: a fixed value, unless `BLESEC_SEED` sets another.
enum PropertySeed {
    static let value: UInt64 = {
        let requested = ProcessInfo.processInfo.environment["BLESEC_SEED"].flatMap { UInt64($0) }
        let seed = requested ?? 34
        print("NoiseTests: the property tests use seed \(seed); set BLESEC_SEED=N to change it")
        return seed
    }()

    /// Random numbers that depend on the seed and on `label`.
    static func generator(_ label: String) -> SeededGenerator {
        SeededGenerator(seed: label.utf8.reduce(value) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 })
    }
}

/// One protocol and two parties. Their handshake can run repeatedly, each time with one fault.
///
/// Static keys, ephemerals, psks and the payload come from the seed; so does the suite, unless it
/// is an argument.
struct Exchange {
    let name: ProtocolName
    let payload: [UInt8]
    private let parties: Parties
    private let ephemerals: [Role: DHKeyPair]

    init(_ pattern: HandshakePattern, suite: (Curve, AEADAlgorithm, HashAlgorithm)? = nil) throws {
        var generator = PropertySeed.generator(pattern.name)
        let suite = suite ?? (.random(&generator), .random(&generator), .random(&generator))
        name = ProtocolName(pattern: pattern, curve: suite.0, aead: suite.1, hash: suite.2)
        parties = try Parties(name.curve, &generator)
        payload = generator.bytes(Int.random(in: 0...20, using: &generator))
        var ephemerals: [Role: DHKeyPair] = [:]
        for role in Role.allCases { ephemerals[role] = try name.curve.keyPair(&generator) }
        self.ephemerals = ephemerals
    }

    /// The seed and the protocol, for an issue's text.
    var note: Comment { "seed \(PropertySeed.value), \(name)" }

    /// The input in which one side disagrees with its peer.
    enum Difference {
        case prologue
        /// The psk at this index.
        case psk(Int)
        /// The static key that this side expects of its peer, if the pattern needs it beforehand.
        case remoteStatic
    }

    /// The handshake state of `role` before the first message; its input has `difference`, if any.
    func side(_ role: Role, _ difference: Difference? = nil) throws -> HandshakeState {
        let pattern = name.pattern
        var carried: CarriedEphemeral?
        if pattern.isFallback {
            let ephemeral = try #require(ephemerals[.initiator])
            carried = role == .initiator ? .local(ephemeral) : .remote(ephemeral.publicKey)
        }
        var prologue: [UInt8] = [1, 2]
        var psks = Array(parties.psks.prefix(pattern.pskCount))
        var remoteStatic = pattern.requiresRemoteStatic(role) ? publicKey(of: role.peer) : nil
        switch difference {
        case .prologue: prologue = [1, 2, 0]
        case .psk(let index): psks[index] = parties.psks[parties.psks.count - 1]
        case .remoteStatic: remoteStatic = parties.unrelated.publicKey
        case nil: break
        }
        var state = try HandshakeState(
            protocolName: name, role: role, prologue: prologue.span,
            localStatic: parties.staticKeyPair(of: role), remoteStatic: remoteStatic, psks: psks,
            carried: carried)
        if let ephemeral = ephemerals[role] { state.useFixedEphemeral(ephemeral) }
        return state
    }

    /// The static public key of `role`.
    func publicKey(of role: Role) -> [UInt8] { parties.staticKeyPair(of: role).publicKey }

    /// The length of each handshake message in bytes.
    var messageLengths: [Int] {
        name.pattern.messages.indices.map {
            payload.count + name.pattern.overhead(ofMessage: $0, keyLength: name.curve.keyLength)
        }
    }

    /// Whether the payload of message `index` has a tag.
    private func payloadHasTag(inMessage index: Int) -> Bool {
        let tokens = name.pattern.messages[index].tokens
        let publicKeyBytes = tokens.count { $0 == .e || $0 == .s } * name.curve.keyLength
        let overhead = name.pattern.overhead(ofMessage: index, keyLength: name.curve.keyLength)
        return overhead > publicKeyBytes
    }

    /// Runs the handshake with one fault, which takes effect in message `index`: `difference` on
    /// the side of `role`, or a change that `changing` makes to the message. `seen` gets the number
    /// and the bytes of each message before a change.
    ///
    /// Expects that a reader refuses a message: not before message `index`, and not after the first
    /// authenticated message from `index` on (`index` included). An unauthenticated message can be
    /// refused too, since a key in clear or a length can be invalid by itself.
    func expectFailure(
        from index: Int, _ difference: Difference? = nil, of role: Role = .responder,
        changing: (inout [UInt8]) -> Void = { _ in },
        seen: (Int, [UInt8]) -> Void = { _, _ in },
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        let firstWithTag = name.pattern.messages.indices.first {
            $0 >= index && payloadHasTag(inMessage: $0)
        }
        let lastStep = try #require(firstWithTag, "every handshake ends with a tag")
        var initiator = try side(.initiator, role == .initiator ? difference : nil)
        var responder = try side(.responder, role == .responder ? difference : nil)
        for step in 0...lastStep {
            let initiatorWrites = initiator.isMyTurn
            var message =
                initiatorWrites ? try initiator.write(payload) : try responder.write(payload)
            seen(step, message)
            if step == index { changing(&message) }
            do {
                _ = initiatorWrites ? try responder.read(message) : try initiator.read(message)
            } catch {
                #expect(
                    step >= index, "message \(step) failed before message \(index); \(note)",
                    sourceLocation: sourceLocation)
                let isFailed = initiatorWrites ? responder.isFailed : initiator.isFailed
                #expect(isFailed, note, sourceLocation: sourceLocation)
                return
            }
        }
        Issue.record(
            "messages \(index) to \(lastStep) were all accepted; \(note)",
            sourceLocation: sourceLocation)
    }
}

extension CaseIterable {
    fileprivate static func random(_ generator: inout SeededGenerator) -> Self {
        guard let value = allCases.randomElement(using: &generator) else {
            preconditionFailure("the type has no cases")
        }
        return value
    }
}
