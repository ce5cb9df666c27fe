import BLESecNoise
import BLESecPrimitives
import Testing

@Suite struct HandshakeTests {
    static let patterns = ["XX", "NN", "IK", "KK", "NK"]

    @Test(
        "with every cipher and hash, both sides agree on hash, static keys and session keys",
        arguments: patterns)
    func agreement(_ pattern: String) throws {
        for aead in ["ChaChaPoly", "AESGCM"] {
            for hash in ["SHA256", "SHA512", "BLAKE2s", "BLAKE2b"] {
                let name = try ProtocolName("Noise_\(pattern)_25519_\(aead)_\(hash)")
                try roundTrip(name)
            }
        }
    }

    private func roundTrip(_ name: ProtocolName) throws {
        let parties = try Parties(name.curve)
        var pair = try Pair(name, parties, prologue: [7, 7])
        for index in name.pattern.messages.indices {
            let payload = [UInt8](repeating: UInt8(index), count: 10 * index)
            #expect(try pair.step(payload) == payload)
        }
        let hashes = (pair.initiator.handshakeHash, pair.responder.handshakeHash)
        #expect(hashes.0 == hashes.1)
        #expect(hashes.0.count == name.hash.digestLength)
        var sessions = try pair.split()
        for role in Role.allCases {
            let remote =
                role == .initiator
                ? sessions.initiator.remoteStatic : sessions.responder.remoteStatic
            #expect((remote != nil) == name.pattern.requiresLocalStatic(role.peer))
            if let remote { #expect(remote == parties.statics(of: role.peer).publicKey) }
        }
        for count in [0, 1, 500, 1000] {
            let text = [UInt8](repeating: 3, count: count)
            #expect(
                try sessions.responder.decrypt(sessions.initiator.encrypt(text)) == text)
            #expect(
                try sessions.initiator.decrypt(sessions.responder.encrypt(text)) == text)
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

    @Test("a call in the wrong order ends the handshake")
    func outOfTurn() throws {
        let name = try ProtocolName("Noise_XX_25519_ChaChaPoly_SHA256")
        let parties = try Parties(.x25519)
        var initiator = try parties.handshake(name, .initiator)
        #expect(throws: NoiseError.outOfTurn) { try initiator.read([]) }
        #expect(throws: NoiseError.failed) { try initiator.write() }
        var responder = try parties.handshake(name, .responder)
        #expect(throws: NoiseError.outOfTurn) { try responder.write() }
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

    @Test("a side that has sent or read an ephemeral provides it")
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
        #expect(pair.remoteStatic(.initiator) == nil)
        _ = try pair.step()
        #expect(pair.remoteStatic(.initiator) == parties.responder.publicKey)
        #expect(pair.remoteStatic(.responder) == nil)
        _ = try pair.step()
        #expect(pair.remoteStatic(.responder) == parties.initiator.publicKey)
    }
}
