import BLESecNoise
import BLESecPrimitives
import Testing

@Suite struct HandshakeTests {
    static let patterns = ["XX", "NN", "IK", "KK", "NK"]

    @Test(
        "with every cipher and hash, both sides agree on handshake hash, static keys and session keys",
        arguments: patterns)
    func agreement(_ pattern: String) throws {
        for aead in ["ChaChaPoly", "AESGCM"] {
            for hash in ["SHA256", "SHA512", "BLAKE2s", "BLAKE2b"] {
                let name = try ProtocolName("Noise_\(pattern)_25519_\(aead)_\(hash)")
                try expectAgreement(name)
            }
        }
    }

    private func expectAgreement(_ name: ProtocolName) throws {
        let parties = try Parties(name.curve)
        var pair = try Pair(name, parties, prologue: [7, 7])
        for index in name.pattern.messages.indices {
            let payload = [UInt8](repeating: UInt8(index), count: 10 * index)
            #expect(try pair.step(payload) == payload)
        }
        let hash = pair.initiator.handshakeHash
        let responderHash = pair.responder.handshakeHash
        #expect(hash == responderHash)
        #expect(hash.count == name.hash.digestLength)
        var sessions = try pair.split()
        for role in Role.allCases {
            let remoteStatic =
                role == .initiator
                ? sessions.initiator.remoteStatic : sessions.responder.remoteStatic
            #expect((remoteStatic != nil) == name.pattern.requiresLocalStatic(role.peer))
            if let remoteStatic {
                #expect(remoteStatic == parties.staticKeyPair(of: role.peer).publicKey)
            }
        }
        for count in [0, 1, 500, 1000] {
            let plaintext = [UInt8](repeating: 3, count: count)
            #expect(
                try sessions.responder.decrypt(sessions.initiator.encrypt(plaintext)) == plaintext)
            #expect(
                try sessions.initiator.decrypt(sessions.responder.encrypt(plaintext)) == plaintext)
        }
    }

    @Test("sides with different prologues fail at the first encrypted payload")
    func prologue() throws {
        let name = try ProtocolName("Noise_NN_25519_ChaChaPoly_SHA256")
        let parties = try Parties(.x25519)
        var initiator = try parties.handshake(name, .initiator, prologue: [1])
        var responder = try parties.handshake(name, .responder, prologue: [2])
        _ = try responder.read(initiator.write())
        let answer = try responder.write()
        #expect(throws: NoiseError.authenticationFailed) { try initiator.read(answer) }
        #expect(throws: NoiseError.failed) { try initiator.read(answer) }
        let isFailed = initiator.isFailed
        #expect(isFailed)
    }

    @Test("reading or writing out of turn ends the handshake")
    func outOfTurn() throws {
        let name = try ProtocolName("Noise_XX_25519_ChaChaPoly_SHA256")
        let parties = try Parties(.x25519)
        var initiator = try parties.handshake(name, .initiator)
        #expect(throws: NoiseError.outOfTurn) { try initiator.read([]) }
        #expect(throws: NoiseError.failed) { try initiator.write() }
        var responder = try parties.handshake(name, .responder)
        #expect(throws: NoiseError.outOfTurn) { try responder.write() }
        #expect(throws: NoiseError.failed) { try responder.read([]) }
    }

    @Test("an unfinished handshake does not split")
    func unfinished() throws {
        let name = try ProtocolName("Noise_XX_25519_ChaChaPoly_SHA256")
        let parties = try Parties(.x25519)
        #expect(throws: NoiseError.handshakeUnfinished) {
            let state = try parties.handshake(name, .initiator)
            _ = try state.split()
        }
    }

    @Test("a message's ephemeral is available to its writer and to its reader")
    func ephemerals() throws {
        let name = try ProtocolName("Noise_NN_25519_ChaChaPoly_SHA256")
        var pair = try Pair(name, Parties(.x25519))
        let before = pair.initiator.localEphemeralPublicKey
        #expect(before == nil)
        _ = try pair.step()
        let (sent, read) = (pair.initiator.localEphemeralPublicKey, pair.responder.remoteEphemeral)
        #expect(sent != nil)
        #expect(sent == read)
    }

    @Test("the peer's static key is available as soon as the message with it is read")
    func remoteStatic() throws {
        let name = try ProtocolName("Noise_XX_25519_ChaChaPoly_SHA256")
        let parties = try Parties(.x25519)
        var pair = try Pair(name, parties)
        _ = try pair.step()
        #expect(pair.remoteStatic(knownTo: .initiator) == nil)
        _ = try pair.step()
        #expect(pair.remoteStatic(knownTo: .initiator) == parties.responder.publicKey)
        #expect(pair.remoteStatic(knownTo: .responder) == nil)
        _ = try pair.step()
        #expect(pair.remoteStatic(knownTo: .responder) == parties.initiator.publicKey)
    }
}
