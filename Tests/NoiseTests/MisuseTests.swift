import BLESecNoise
import BLESecPrimitives
import Testing

@Suite struct MisuseTests {
    static let kk = "Noise_KK_25519_ChaChaPoly_SHA256"
    static let xx = "Noise_XX_25519_ChaChaPoly_SHA256"

    private func makeHandshake(
        _ name: String, _ role: Role = .initiator, localStatic: DHKeyPair? = nil,
        remoteStatic: [UInt8]? = nil, psks: [PreSharedKey] = [], carried: CarriedEphemeral? = nil
    ) throws {
        _ = try HandshakeState(
            protocolName: ProtocolName(name), role: role, localStatic: localStatic,
            remoteStatic: remoteStatic, psks: psks, carried: carried)
    }

    @Test("a handshake without a key that its pattern needs is refused")
    func missing() throws {
        let pair = try DHKeyPair.generate(.x25519)
        #expect(throws: NoiseError.missingKey(.localStatic)) { try makeHandshake(Self.xx) }
        #expect(throws: NoiseError.missingKey(.remoteStatic)) {
            try makeHandshake(Self.kk, localStatic: pair)
        }
        #expect(throws: NoiseError.missingKey(.localEphemeral)) {
            try makeHandshake("Noise_NNfallback_25519_ChaChaPoly_SHA256")
        }
        #expect(throws: NoiseError.missingKey(.remoteEphemeral)) {
            try makeHandshake("Noise_NNfallback_25519_ChaChaPoly_SHA256", .responder)
        }
    }

    @Test(
        "a remote static key or an ephemeral that the pattern does not need beforehand is refused")
    func unexpected() throws {
        let pair = try DHKeyPair.generate(.x25519)
        #expect(throws: NoiseError.unexpectedKey(.remoteStatic)) {
            try makeHandshake(Self.xx, localStatic: pair, remoteStatic: pair.publicKey)
        }
        #expect(throws: NoiseError.unexpectedKey(.localEphemeral)) {
            try makeHandshake(Self.xx, localStatic: pair, carried: .local(pair))
        }
        #expect(throws: NoiseError.unexpectedKey(.remoteEphemeral)) {
            try makeHandshake(Self.xx, localStatic: pair, carried: .remote(pair.publicKey))
        }
    }

    @Test("a pattern with both sides' ephemerals as pre-messages cannot be run")
    func bothEphemerals() throws {
        let pattern = try HandshakePattern(
            name: "ZZ", initiatorPreMessage: [.e], responderPreMessage: [.e], messages: [[.ee]])
        let name = ProtocolName(pattern: pattern)
        let pair = try DHKeyPair.generate(.x25519)
        #expect(throws: NoiseError.missingKey(.remoteEphemeral)) {
            _ = try HandshakeState(protocolName: name, role: .initiator, carried: .local(pair))
        }
        #expect(throws: NoiseError.missingKey(.localEphemeral)) {
            _ = try HandshakeState(
                protocolName: name, role: .initiator, carried: .remote(pair.publicKey))
        }
    }

    @Test("a key of another curve, of a wrong length or in a form that is not canonical is refused")
    func wrongKey() throws {
        let pair = try DHKeyPair.generate(.x25519)
        let x448Pair = try DHKeyPair.generate(.x448)
        #expect(throws: NoiseError.wrongKey(.localStatic)) {
            try makeHandshake(Self.xx, localStatic: x448Pair)
        }
        let notCanonical = [UInt8](repeating: 0xFF, count: 32)
        for key in [x448Pair.publicKey, [], notCanonical] {
            #expect(throws: NoiseError.wrongKey(.remoteStatic)) {
                try makeHandshake(Self.kk, localStatic: pair, remoteStatic: key)
            }
        }
        let fallback = "Noise_NNfallback_25519_ChaChaPoly_SHA256"
        #expect(throws: NoiseError.wrongKey(.localEphemeral)) {
            try makeHandshake(fallback, carried: .local(x448Pair))
        }
        #expect(throws: NoiseError.wrongKey(.remoteEphemeral)) {
            try makeHandshake(fallback, .responder, carried: .remote([1]))
        }
    }

    @Test("a handshake with more or fewer psks than its pattern needs is refused")
    func pskCount() throws {
        let psks = try Parties(.x25519).psks
        for count in [0, 1, 3] {
            #expect(throws: NoiseError.wrongPSKCount(expected: 2, given: count)) {
                try makeHandshake(
                    "Noise_NNpsk0+psk2_25519_ChaChaPoly_SHA256", psks: Array(psks.prefix(count)))
            }
        }
        #expect(throws: NoiseError.wrongPSKCount(expected: 0, given: 1)) {
            try makeHandshake("Noise_NN_25519_ChaChaPoly_SHA256", psks: [psks[0]])
        }
    }

    @Test("a psk has 32 bytes")
    func pskLength() {
        for count in [0, 31, 33] {
            #expect(throws: CryptoError.wrongLength(expected: 32, actual: count)) {
                _ = try PreSharedKey(SecretBytes(count: count))
            }
        }
    }

    @Test("a psk prints only as <redacted>")
    func pskDescription() throws {
        let psk = try PreSharedKey(SecretBytes(randomCount: 32))
        var dumped = ""
        dump(psk, to: &dumped)
        #expect("\(psk)" == "<redacted>")
        #expect(dumped == "- <redacted> #0\n")
    }

    @Test("an output without room for the message stays empty, and the handshake ends")
    func smallOutput() throws {
        let name = try ProtocolName("Noise_NN_25519_ChaChaPoly_SHA256")
        var state = try Parties(.x25519).handshake(name, .initiator)
        let payload: [UInt8] = [1, 2, 3]
        let message = [UInt8](capacity: 34) { output in
            #expect(throws: NoiseError.outputTooSmall(needed: 35)) {
                try state.writeMessage(payload: payload.span, into: &output)
            }
        }
        #expect(message.isEmpty)
        #expect(throws: NoiseError.failed) { try state.write() }
    }

    @Test(
        "an offset without room for the message is refused, and changes nothing",
        arguments: [60, 1 << 40, Int.max])
    func offsetBeyondBuffer(offset: Int) throws {
        let name = try ProtocolName("Noise_NN_25519_ChaChaPoly_SHA256")
        var pair = try Pair(name, try Parties(.x25519))
        try pair.run()
        var transport = try pair.split()
        var buffer = [UInt8](repeating: 7, count: 64)
        let (needed, isTooMuch) = offset.addingReportingOverflow(20)
        #expect(throws: NoiseError.outputTooSmall(needed: isTooMuch ? .max : needed)) {
            var span = buffer.mutableSpan
            try transport.initiator.encrypt(inPlace: &span, at: offset, count: 4)
        }
        #expect(buffer == [UInt8](repeating: 7, count: 64))
    }

    @Test("a message of 65,535 bytes is accepted, and a longer one is refused")
    func longMessage() throws {
        let name = try ProtocolName("Noise_NN_25519_ChaChaPoly_SHA256")
        let parties = try Parties(.x25519)
        var pair = try Pair(name, parties)
        let longest = [UInt8](repeating: 1, count: 65_535 - 32)
        #expect(try pair.step(longest) == longest)
        var state = try parties.handshake(name, .initiator)
        #expect(throws: NoiseError.messageTooLong(65_536)) { try state.write(longest + [1]) }
    }

    @Test("with a payload near Int.max, the length of a message is Int.max")
    func messageLengthNearMax() throws {
        let name = try ProtocolName("Noise_NN_25519_ChaChaPoly_SHA256")
        let state = try Parties(.x25519).handshake(name, .initiator)
        for (payload, expected) in [(3, 35), (Int.max - 31, Int.max), (Int.max, Int.max)] {
            let length = try state.messageLength(forPayload: payload)
            #expect(length == expected)
        }
    }

    @Test("a finished handshake refuses to read and write")
    func finished() throws {
        let name = try ProtocolName("Noise_NN_25519_ChaChaPoly_SHA256")
        var pair = try Pair(name, Parties(.x25519))
        try pair.run()
        #expect(throws: NoiseError.handshakeFinished) { try pair.initiator.write() }
        #expect(throws: NoiseError.handshakeFinished) { try pair.responder.read([]) }
    }

    @Test("a low-order ephemeral and a static key that is not canonical are refused")
    func badPeerKeys() throws {
        let parties = try Parties(.x25519)
        let nn = try ProtocolName("Noise_NN_25519_ChaChaPoly_SHA256")
        var responder = try parties.handshake(nn, .responder)
        _ = try responder.read([UInt8](repeating: 0, count: 32))
        #expect(throws: NoiseError.invalidPublicKey) { try responder.write() }
        // IN sends the static key in clear. With its highest bit set, the key is another encoding
        // of the same point.
        let name = try ProtocolName("Noise_IN_25519_ChaChaPoly_SHA256")
        var initiator = try parties.handshake(name, .initiator)
        var inResponder = try parties.handshake(name, .responder)
        var message = try initiator.write()
        message[63] |= 0x80
        #expect(throws: NoiseError.invalidPublicKey) { try inResponder.read(message) }
    }

    @Test(
        "a handshake with a wrong psk, static key or prologue fails at its first tag",
        arguments: ["psk", "static key", "prologue"])
    func wrongInput(_ wrong: String) throws {
        let name = try ProtocolName("Noise_KKpsk0_25519_ChaChaPoly_SHA256")
        let (parties, others) = (try Parties(.x25519), try Parties(.x25519))
        var initiator = try parties.handshake(name, .initiator, prologue: [1])
        var responder = try HandshakeState(
            protocolName: name, role: .responder, prologue: [wrong == "prologue" ? 2 : 1].span,
            localStatic: parties.responder,
            remoteStatic: (wrong == "static key" ? others : parties).initiator.publicKey,
            psks: [parties.psks[wrong == "psk" ? 1 : 0]])
        let message = try initiator.write()
        #expect(throws: NoiseError.authenticationFailed) { try responder.read(message) }
    }
}
