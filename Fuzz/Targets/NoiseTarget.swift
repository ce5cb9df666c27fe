internal import BLESecChannelCore
@testable internal import BLESecNoise
internal import BLESecPrimitives

extension FuzzTarget {
    /// Noise without channels: a handshake of any pattern, then transport messages in order, then
    /// datagrams with any nonces.
    static let noise = FuzzTarget(name: "noise") { input in
        var script = Script(input)
        let patterns = HandshakePattern.all
        var pattern = patterns[script.number(below: patterns.count)]
        for _ in 0..<script.number(below: 3) {
            let modifier = PatternModifier.psk(script.number(below: 5))
            pattern = (try? pattern.applying(modifier)) ?? pattern
        }
        let name = ProtocolName(
            pattern: pattern, curve: .x25519, aead: script.choice(AEADAlgorithm.allCases),
            hash: script.choice(HashAlgorithm.allCases))
        var scene = NoiseScene(name)
        guard scene.shakeHands(&script) else { return }
        scene.exchangeTransport(&script)
    } seeds: {
        // The script of four unchanged handshake messages.
        let messages: [UInt8] = [0, 3, 1, 2, 3, 0, 0, 0, 2, 4, 5, 0, 1, 9]
        var seeds: [[UInt8]] = []
        for pattern in 0..<UInt8(HandshakePattern.all.count) {
            // The choices of the cipher and of the hash.
            let suite: [UInt8] = [pattern & 1, pattern & 3]
            seeds.append([pattern, 0] + suite + messages + messages)
            seeds.append([pattern, 1, pattern % 3] + suite + messages + [1, 0, 0, 0])
            seeds.append([pattern, 0] + suite + [1, 0, 7, 0])
        }
        return seeds
    }
}

private struct NoiseScene: ~Copyable {
    private var initiator: HandshakeState
    private var responder: HandshakeState

    init(_ name: ProtocolName) {
        initiator = Self.begin(name, .initiator)
        responder = Self.begin(name, .responder)
    }

    private static func begin(_ name: ProtocolName, _ role: Role) -> HandshakeState {
        let pattern = name.pattern
        let keys: [Role: DHKeyPair] = [
            .initiator: Devices.dialer.keyPair, .responder: Devices.acceptor.keyPair,
        ]
        var state = must {
            try HandshakeState(
                protocolName: name, role: role, localStatic: keys[role],
                remoteStatic: pattern.requiresRemoteStatic(role) ? keys[role.peer]?.publicKey : nil,
                psks: Array(Devices.preSharedKeys.prefix(pattern.pskCount)))
        }
        let ephemeral = Devices.ephemerals[role == .initiator ? .dialer : .acceptor]
        if let ephemeral { state.useFixedEphemeral(ephemeral) }
        return state
    }

    /// Runs the handshake, and returns whether it was completed; both sides must then have the same
    /// hash.
    mutating func shakeHands(_ script: inout Script) -> Bool {
        while !initiator.isFinished {
            let isIntact =
                initiator.isMyTurn
                ? Self.step(&initiator, &responder, &script)
                : Self.step(&responder, &initiator, &script)
            guard isIntact else { return false }
        }
        precondition(initiator.handshakeHash == responder.handshakeHash)
        return true
    }

    /// Carries one message, and returns whether the message arrived unchanged. Checks that a reader
    /// that refuses a message has failed, and so refuses every later call, too.
    private static func step(
        _ writer: inout HandshakeState, _ reader: inout HandshakeState, _ script: inout Script
    ) -> Bool {
        let kind = script.number(below: 3)
        let payload = script.piece()
        let length = must { try writer.messageLength(forPayload: payload.count) }
        let message = must {
            try [UInt8](capacity: length) { output throws(NoiseError) in
                try writer.writeMessage(payload: payload.span, into: &output)
            }
        }
        precondition(message.count == length)
        let arrived =
            switch kind {
            case 0: message
            case 1: script.damage(message)
            default: script.piece()
            }
        let read = try? [UInt8](capacity: arrived.count) { output throws(NoiseError) in
            try reader.readMessage(arrived.span, payload: &output)
        }
        guard arrived != message else {
            precondition(read == payload, "an unchanged message is refused, or its payload differs")
            return true
        }
        precondition(read != nil || reader.isFailed, "an error that does not end the handshake")
        var hasFailed = false
        do {
            _ = try reader.messageLength(forPayload: 0)
        } catch {
            hasFailed = error == .failed
        }
        precondition(read != nil || hasFailed)
        return false
    }

    /// Sends transport messages from the initiator to the responder, and then datagrams.
    consuming func exchangeTransport(_ script: inout Script) {
        var sender: TransportState
        var receiver: TransportState
        do throws(NoiseError) {
            sender = try initiator.split()
            receiver = try responder.split()
        } catch {
            fatalError("\(error)")
        }
        for _ in 0..<script.number(below: 8) {
            let payload = script.piece()
            let message = Self.seal(&sender, payload)
            let arrived = script.flag() ? script.damage(message) : message
            let opened = try? [UInt8](capacity: arrived.count) { output throws(NoiseError) in
                try receiver.decrypt(arrived.span, into: &output)
            }
            precondition(arrived == message ? opened == payload : opened == nil)
            guard opened != nil else { return }
            guard script.flag() else { continue }
            must { try sender.rekeySend() }
            must { try receiver.rekeyReceive() }
        }
        Self.exchangeDatagrams(
            StatelessTransport(sender), StatelessTransport(receiver), &script)
    }

    private static func seal(_ state: inout TransportState, _ payload: [UInt8]) -> [UInt8] {
        must {
            try [UInt8](capacity: payload.count + TransportState.overhead) {
                output throws(NoiseError) in
                try state.encrypt(payload.span, into: &output)
            }
        }
    }

    /// Sends datagrams with any nonces in any order; each nonce may be accepted only once.
    private static func exchangeDatagrams(
        _ sender: consuming StatelessTransport, _ receiver: consuming StatelessTransport,
        _ script: inout Script
    ) {
        var window = ReplayWindow()
        var acceptedNonces: Set<UInt64> = []
        while !script.isOver {
            let nonce = script.take(3).reduce(sender.firstNonce) { $0 << 8 | UInt64($1) }
            var buffer = script.piece()
            let payload = buffer
            buffer += Array(repeating: 0, count: TransportState.overhead)
            var span = buffer.mutableSpan
            guard (try? sender.encrypt(inPlace: &span, count: payload.count, nonce: nonce)) != nil
            else { continue }
            var arrived = script.flag() ? script.damage(buffer) : buffer
            let isIntact = arrived == buffer
            var arrivedSpan = arrived.mutableSpan
            let count = try? receiver.decrypt(
                inPlace: &arrivedSpan, count: arrivedSpan.count, nonce: nonce)
            precondition(
                (count != nil) == isIntact,
                "a changed datagram is accepted, or an unchanged one refused")
            guard let count else { continue }
            precondition(Array(arrived.prefix(count)) == payload)
            let isNew = window.isNew(nonce)
            precondition(window.accept(nonce) == isNew)
            precondition(
                !isNew || acceptedNonces.insert(nonce).inserted, "a nonce is accepted twice")
        }
    }
}
