import BLESecNoise
import BLESecNoiseVectors
import BLESecPrimitives
import FoundationEssentials
import Testing

/// The seed of this run's property tests: a fixed value, unless `BLESEC_SEED` sets another.
enum PropertySeed {
    static let value: UInt64 = {
        let given = ProcessInfo.processInfo.environment["BLESEC_SEED"].flatMap { UInt64($0) }
        let seed = given ?? 34
        print("NoiseTests: properties from seed \(seed); BLESEC_SEED=N takes another")
        return seed
    }()

    /// Random numbers that depend on the seed and on `label`.
    static func generator(_ label: String) -> SeededGenerator {
        SeededGenerator(seed: label.utf8.reduce(value) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 })
    }
}

/// One protocol and two parties, whose handshake runs repeatedly, each time with one change.
///
/// Static keys, ephemerals, psks and, unless it is given, the suite come from the seed.
struct Exchange {
    let name: ProtocolName
    let payload: [UInt8]
    private let parties: Parties
    private let ephemerals: [Role: DHKeyPair]

    init(_ pattern: HandshakePattern, suite: (Curve, AEADAlgorithm, HashAlgorithm)? = nil) throws {
        var generator = PropertySeed.generator(pattern.name)
        let suite = suite ?? (.any(&generator), .any(&generator), .any(&generator))
        name = ProtocolName(pattern: pattern, curve: suite.0, aead: suite.1, hash: suite.2)
        parties = try Parties(name.curve, &generator)
        payload = generator.bytes(Int.random(in: 0...20, using: &generator))
        var ephemerals: [Role: DHKeyPair] = [:]
        for role in Role.allCases { ephemerals[role] = try name.curve.keyPair(&generator) }
        self.ephemerals = ephemerals
    }

    /// The seed and the protocol, for an issue's text.
    var note: Comment { "seed \(PropertySeed.value), \(name)" }

    /// How one side's data differs from what the other side believes.
    enum Difference {
        case prologue
        case psk(Int)
        /// The other party's static key, where it is known beforehand.
        case remoteStatic
    }

    /// One side before the first message.
    func side(_ role: Role, _ difference: Difference? = nil) throws -> HandshakeState {
        let pattern = name.pattern
        var carried: CarriedEphemeral?
        if pattern.isFallback {
            let ephemeral = try #require(ephemerals[.initiator])
            carried = role == .initiator ? .local(ephemeral) : .remote(ephemeral.publicKey)
        }
        var prologue: [UInt8] = [1, 2]
        var psks = Array(parties.psks.prefix(pattern.pskCount))
        var remoteStatic =
            pattern.requiresRemoteStatic(role) ? parties.statics(of: role.peer).publicKey : nil
        switch difference {
        case .prologue: prologue = [1, 2, 0]
        case .psk(let index): psks[index] = parties.psks[parties.psks.count - 1]
        case .remoteStatic: remoteStatic = parties.unrelated.publicKey
        case nil: break
        }
        var state = try HandshakeState(
            protocolName: name, role: role, prologue: prologue.span,
            localStatic: parties.statics(of: role), remoteStatic: remoteStatic, psks: psks,
            carried: carried)
        if let ephemeral = ephemerals[role] { state.useFixedEphemeral(ephemeral) }
        return state
    }

    /// The static key of `role`.
    func publicKey(of role: Role) -> [UInt8] { parties.statics(of: role).publicKey }

    /// The length of each message.
    var lengths: [Int] {
        name.pattern.messages.indices.map {
            payload.count + name.pattern.overhead(ofMessage: $0, keyLength: name.curve.keyLength)
        }
    }

    /// Whether the payload of message `index` has a tag.
    private func isAuthenticated(_ index: Int) -> Bool {
        let tokens = name.pattern.messages[index].tokens
        let keys = tokens.count { $0 == .e || $0 == .s } * name.curve.keyLength
        let overhead = name.pattern.overhead(ofMessage: index, keyLength: name.curve.keyLength)
        return overhead > keys
    }

    /// Expects that a difference, or a change of message `index`, is detected at the latest by the
    /// first authenticated message from `index` on, `index` included. A reader may detect it
    /// earlier: a key in clear or a length can be invalid by itself.
    func expectFailure(
        from index: Int, _ difference: Difference? = nil, of role: Role = .responder,
        changing: (inout [UInt8]) -> Void = { _ in },
        seen: (Int, [UInt8]) -> Void = { _, _ in },
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        let last = name.pattern.messages.indices.first { $0 >= index && isAuthenticated($0) }
        let deadline = try #require(last, "every handshake ends with a tag")
        var initiator = try side(.initiator, role == .initiator ? difference : nil)
        var responder = try side(.responder, role == .responder ? difference : nil)
        for step in 0...deadline {
            let isInitiators = initiator.isMyTurn
            var message =
                isInitiators ? try initiator.write(payload) : try responder.write(payload)
            seen(step, message)
            if step == index { changing(&message) }
            do {
                _ = isInitiators ? try responder.read(message) : try initiator.read(message)
            } catch {
                #expect(
                    step >= index, "failed before anything was wrong; \(note)",
                    sourceLocation: sourceLocation)
                let isFailed = isInitiators ? responder.isFailed : initiator.isFailed
                #expect(isFailed, note, sourceLocation: sourceLocation)
                return
            }
        }
        Issue.record(
            "message \(index) should fail, and nobody noticed; \(note)",
            sourceLocation: sourceLocation)
    }
}

extension CaseIterable {
    fileprivate static func any(_ generator: inout SeededGenerator) -> Self {
        guard let one = allCases.randomElement(using: &generator) else {
            preconditionFailure("a type without cases")
        }
        return one
    }
}
