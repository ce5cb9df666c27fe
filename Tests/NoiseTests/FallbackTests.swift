import BLESecNoise
import BLESecPrimitives
import Testing

/// Noise Pipes (Noise §10.4): IK, and XXfallback when the responder cannot read
/// IK's first message.
@Suite struct FallbackTests {
    let ik: ProtocolName
    let fallback: ProtocolName
    let alice: DHKeyPair
    let bob: DHKeyPair
    /// Bob's former key pair, which Alice still expects. Bob no longer has it.
    let formerBob: DHKeyPair

    init() throws {
        ik = try ProtocolName("Noise_IK_25519_ChaChaPoly_SHA256")
        fallback = try ProtocolName("Noise_XXfallback_25519_AESGCM_BLAKE2b")
        alice = try DHKeyPair.generate(.x25519)
        bob = try DHKeyPair.generate(.x25519)
        formerBob = try DHKeyPair.generate(.x25519)
    }

    /// Alice's side of IK, whose first message Bob cannot read.
    private func attempt() throws -> HandshakeState {
        try HandshakeState(
            protocolName: ik, role: .initiator, localStatic: alice,
            remoteStatic: formerBob.publicKey)
    }

    @Test(
        "after an IK message that Bob cannot read, XXfallback continues with the message's ephemeral"
    )
    func pipes() throws {
        var attempt = try attempt()
        let first = try attempt.write([1])
        var reader = try HandshakeState(protocolName: ik, role: .responder, localStatic: bob)
        #expect(throws: NoiseError.authenticationFailed) { try reader.read(first) }

        var initiator = try HandshakeState(
            fallback: fallback, after: attempt, prologue: [5].span, localStatic: alice)
        var responder = try HandshakeState(
            fallback: fallback, answering: first.span, prologue: [5].span, localStatic: bob)
        let turns = (initiator.isMyTurn, responder.isMyTurn)
        #expect(turns == (false, true))
        #expect(try initiator.read(responder.write([2])) == [2])
        #expect(try responder.read(initiator.write([3])) == [3])
        let statics = (initiator.remoteStatic, responder.remoteStatic)
        #expect(statics == (bob.publicKey, alice.publicKey))
        let (aliceSide, bobSide) = (Box(try initiator.split()), Box(try responder.split()))
        #expect(aliceSide.value.handshakeHash == bobSide.value.handshakeHash)
        #expect(try bobSide.value.decrypt(aliceSide.value.encrypt([4])) == [4])
        #expect(try aliceSide.value.decrypt(bobSide.value.encrypt([5])) == [5])
    }

    @Test("Bob can answer with a fallback without first reading the message as IK")
    func unread() throws {
        var attempt = try attempt()
        let first = try attempt.write()
        var responder = try HandshakeState(
            fallback: fallback, answering: first.span, localStatic: bob)
        var initiator = try HandshakeState(fallback: fallback, after: attempt, localStatic: alice)
        #expect(try initiator.read(responder.write()).isEmpty)
    }

    @Test("a changed ephemeral is detected when the fallback's first message is read")
    func changed() throws {
        var attempt = try attempt()
        var first = try attempt.write()
        first[0] ^= 1
        var responder = try HandshakeState(
            fallback: fallback, answering: first.span, localStatic: bob)
        var initiator = try HandshakeState(fallback: fallback, after: attempt, localStatic: alice)
        let message = try responder.write()
        #expect(throws: NoiseError.authenticationFailed) { try initiator.read(message) }
    }

    @Test(
        "a fallback needs an initiator that has sent one message and read none, and a message with a whole ephemeral"
    )
    func tooEarlyOrLate() throws {
        #expect(throws: NoiseError.missingKey(.localEphemeral)) {
            _ = try HandshakeState(fallback: fallback, after: attempt(), localStatic: alice)
        }
        #expect(throws: NoiseError.missingKey(.localEphemeral)) {
            let reader = try HandshakeState(protocolName: ik, role: .responder, localStatic: bob)
            _ = try HandshakeState(fallback: fallback, after: reader, localStatic: alice)
        }
        #expect(throws: NoiseError.missingKey(.localEphemeral)) {
            var failed = try attempt()
            _ = try failed.write()
            _ = try? failed.read([])
            _ = try HandshakeState(fallback: fallback, after: failed, localStatic: alice)
        }
        // After the second message, neither side can fall back.
        for role in Role.allCases {
            #expect(throws: NoiseError.missingKey(.localEphemeral)) {
                let xx = try ProtocolName("Noise_XX_25519_ChaChaPoly_SHA256")
                var initiator = try HandshakeState(
                    protocolName: xx, role: .initiator, localStatic: alice)
                var responder = try HandshakeState(
                    protocolName: xx, role: .responder, localStatic: bob)
                _ = try responder.read(initiator.write())
                _ = try initiator.read(responder.write())
                switch role {
                case .initiator:
                    _ = try HandshakeState(
                        fallback: fallback, after: initiator, localStatic: alice)
                case .responder:
                    _ = try HandshakeState(fallback: fallback, after: responder, localStatic: bob)
                }
            }
        }
        // `initiator` is already in a fallback: another fallback would use the ephemeral in a third
        // protocol.
        #expect(throws: NoiseError.missingKey(.localEphemeral)) {
            var attempt = try attempt()
            let first = try attempt.write()
            var responder = try HandshakeState(
                fallback: fallback, answering: first.span, localStatic: bob)
            var initiator = try HandshakeState(
                fallback: fallback, after: attempt, localStatic: alice)
            _ = try initiator.read(responder.write())
            _ = try HandshakeState(fallback: fallback, after: initiator, localStatic: alice)
        }
        #expect(throws: NoiseError.messageTooShort(31)) {
            _ = try HandshakeState(
                fallback: fallback, answering: [UInt8](repeating: 1, count: 31).span,
                localStatic: bob)
        }
    }
}

/// A class around a noncopyable value, since a tuple cannot hold noncopyable values.
private final class Box {
    var value: TransportState
    init(_ value: consuming TransportState) { self.value = value }
}
