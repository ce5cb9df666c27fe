internal import BLESecNoise
internal import BLESecPrimitives

/// Handshakes of one Noise protocol, with empty payloads.
final class NoiseHandshakes: HandshakeSubject {
    /// The handshake's primitives alone, called from C. Reports call their time the limit.
    let reference: (any HandshakeReference)?
    private let protocolName: ProtocolName
    private let dialer: SideKeys
    private let acceptor: SideKeys

    /// A side's keys: made before the measurement, and used in every handshake.
    private struct SideKeys {
        let role: Role
        let localStatic: DHKeyPair
        let remoteStatic: [UInt8]?
        let psks: [PreSharedKey]
        /// The ephemeral key of the failed handshake that a fallback pattern continues; nil for
        /// other patterns.
        let carried: CarriedEphemeral?
    }

    /// - Throws: if no protocol has this name, or if a library lacks the curve.
    init(_ name: String) throws {
        let protocolName = try ProtocolName(name)
        let pattern = protocolName.pattern
        let pairs = try Role.allCases.map { _ in try DHKeyPair.generate(protocolName.curve) }
        let psks = try (0..<pattern.pskCount).map { _ in
            try PreSharedKey(SecretBytes(randomCount: PreSharedKey.length))
        }
        let ephemeral = pattern.isFallback ? try DHKeyPair.generate(protocolName.curve) : nil
        self.protocolName = protocolName
        reference = RawHandshake(protocolName)
        dialer = SideKeys(
            role: .initiator, localStatic: pairs[0],
            remoteStatic: pattern.requiresRemoteStatic(.initiator) ? pairs[1].publicKey : nil,
            psks: psks, carried: ephemeral.map { .local($0) })
        acceptor = SideKeys(
            role: .responder, localStatic: pairs[1],
            remoteStatic: pattern.requiresRemoteStatic(.responder) ? pairs[0].publicKey : nil,
            psks: psks, carried: ephemeral.map { .remote($0.publicKey) })
    }

    /// The names of XX in every suite, of every other pattern in the default suite, and of
    /// XXfallback, which Noise Pipes use if the first message of IK cannot be read.
    static var names: [String] {
        guard let xx = HandshakePattern.named("XX") else { return [] }
        var names: [ProtocolName] = []
        for curve in Curve.allCases {
            for aead in AEADAlgorithm.allCases {
                names += HashAlgorithm.allCases.map {
                    ProtocolName(pattern: xx, curve: curve, aead: aead, hash: $0)
                }
            }
        }
        names += HandshakePattern.all.filter { $0 != xx }.map { ProtocolName(pattern: $0) }
        return names.map(\.description) + ["Noise_XXfallback_25519_ChaChaPoly_SHA256"]
    }

    var name: String { protocolName.description }

    /// Not inlined, because the instructions of this function are counted for the report.
    @inline(never)
    func run(_ count: Int) throws -> HandshakeSample { try batch(count).sample }

    func finishedSides() throws -> (dialer: Side, acceptor: Side) { try batch(1).first }

    private func batch(_ count: Int) throws -> HandshakeBatch<Side> {
        var batch = HandshakeBatch(count) { Side() }
        try batch.step({ try begin($0, dialer) }, { try begin($0, acceptor) })
        for message in protocolName.pattern.messages {
            try batch.pass(fromDialers: message.sender == .initiator)
        }
        try batch.step({ try $0.finish() }, { try $0.finish() })
        guard batch.first.dialer.hash == batch.first.acceptor.hash else {
            throw BenchError.wrongResult(name)
        }
        return batch
    }

    private func begin(_ side: Side, _ keys: SideKeys) throws {
        side.handshake = try HandshakeState(
            protocolName: protocolName, role: keys.role, localStatic: keys.localStatic,
            remoteStatic: keys.remoteStatic, psks: keys.psks, carried: keys.carried)
    }

    final class Side: HandshakeSide {
        /// More than the length in bytes of any message with an empty payload.
        private static let room = 512

        fileprivate var handshake: HandshakeState?
        private(set) var message: [UInt8] = []
        private var transport: TransportState?

        var hash: [UInt8]? { transport?.handshakeHash }

        func write() throws {
            message = try [UInt8](capacity: Self.room) { output in
                try handshake?.writeMessage(into: &output)
            }
        }

        func read(_ message: [UInt8]) throws {
            _ = try [UInt8](capacity: Self.room) { payload in
                try handshake?.readMessage(message.span, payload: &payload)
            }
        }

        func takeTransport() throws -> TransportState {
            guard let taken = transport.take() else {
                throw BenchError.wrongResult("TransportState")
            }
            return taken
        }

        func finish() throws { transport = try handshake.take()?.split() }
    }
}
