import BLESecNoise
import BLESecNoiseVectors
import BLESecPrimitives
import Testing

@Suite struct VectorTests {
    @Test(
        "every vector of an independent implementation is reproduced byte for byte",
        arguments: TestVectors.all)
    func replay(_ file: String) throws {
        let vectors = try TestVectors.load(file)
        #expect(!vectors.isEmpty)
        for vector in vectors {
            let outcome = vector.run()
            #expect(outcome == .passed, "\(vector.protocolName)")
        }
    }

    @Test("the failure of a vector with one changed byte names the byte and its message or hash")
    func mismatch() throws {
        let vector = try #require(try TestVectors.load("interactive").last)
        for index in vector.messages.indices {
            let last = vector.messages[index].ciphertext.count - 1
            for byte in [0, last] {
                var changed = vector
                changed.messages[index].ciphertext[byte] ^= 1
                #expect(changed.failure?.part == .message(index))
                #expect(changed.failure?.byteIndex == byte)
            }
        }
        var changed = vector
        changed.handshakeHash?[5] ^= 1
        #expect(changed.failure?.part == .handshakeHash)
        #expect(changed.failure?.byteIndex == 5)
    }

    @Test("the failure for a message of wrong length names the byte where the shorter message ends")
    func lengths() throws {
        let vector = try #require(try TestVectors.load("interactive").first)
        let count = vector.messages[1].ciphertext.count
        var longer = vector
        longer.messages[1].ciphertext.append(0)
        #expect(longer.failure?.byteIndex == count)
        var shorter = vector
        shorter.messages[1].ciphertext.removeLast()
        #expect(shorter.failure?.part == .message(1))
        #expect(shorter.failure?.byteIndex == count - 1)
    }

    @Test("sides with different prologues or psks fail at the first message, which cannot be read")
    func disagreement() throws {
        let vector = try #require(try TestVectors.load("psk").first)
        var otherPrologue = vector
        otherPrologue.responder.prologue += [0]
        #expect(otherPrologue.failure?.part == .message(0))
        #expect(otherPrologue.failure?.reason.contains("cannot be read") == true)
        var otherPSK = vector
        otherPSK.responder.psks[0][0] ^= 1
        #expect(otherPSK.failure?.part == .message(0))
    }

    @Test("a vector with an incomplete handshake or a missing or wrong key fails with the reason")
    func missing() throws {
        let vector = try #require(try TestVectors.load("interactive").first { $0.isBasicIK })
        var short = vector
        short.messages.removeLast(short.messages.count - 1)
        #expect(short.failure?.part == .message(1))
        let changes: [(String, (inout NoiseVector) -> Void)] = [
            ("init_static is missing", { $0.initiator.staticKey = nil }),
            ("init_ephemeral is missing", { $0.initiator.ephemeral = nil }),
            ("init_remote_static is missing", { $0.initiator.remoteStatic = nil }),
            ("resp_static is missing", { $0.responder.staticKey = nil }),
            ("resp_ephemeral has 31 bytes", { $0.responder.ephemeral?.removeLast() }),
            ("init_remote_static has 0 bytes", { $0.initiator.remoteStatic = [] }),
            (
                "takes 0 pre-shared keys, not 1",
                { $0.initiator.psks = [[UInt8](repeating: 1, count: 32)] }
            ),
            ("init_psks[0]", { $0.initiator.psks = [[]] }),
        ]
        for (reason, change) in changes {
            var changed = vector
            change(&changed)
            #expect(changed.failure?.reason.contains(reason) == true, "\(reason)")
        }
    }

    @Test("valid keys that a vector's pattern does not use change nothing")
    func unusedKeys() throws {
        var vector = try #require(try TestVectors.load("interactive").first { $0.isBasicNN })
        vector.initiator.staticKey = [UInt8](repeating: 1, count: 32)
        vector.initiator.remoteStatic = [UInt8](repeating: 2, count: 32)
        #expect(vector.run() == .passed)
        vector.responder.staticKey = [UInt8](repeating: 3, count: 32)
        vector.initiator.remoteStatic = try keyPair(vector.responder.staticKey).publicKey
        #expect(vector.run() == .passed)
    }

    @Test(
        "a key of wrong length, or a remote_static that is not the other side's key, fails even if the pattern does not use it"
    )
    func wrongUnusedKeys() throws {
        let vectors = try TestVectors.load("interactive")
        let nn = try #require(vectors.first { $0.isBasicNN })
        let ik = try #require(vectors.first { $0.isBasicIK })
        let wrong = [UInt8](repeating: 0x42, count: 32)
        let changes: [(NoiseVector, String, (inout NoiseVector) -> Void)] = [
            (nn, "init_static has 3 bytes", { $0.initiator.staticKey = [1, 2, 3] }),
            (nn, "resp_static has 0 bytes", { $0.responder.staticKey = [] }),
            (nn, "resp_remote_static has 33 bytes", { $0.responder.remoteStatic = wrong + [1] }),
            (
                ik, "init_remote_static is not the public key of resp_static",
                { $0.initiator.remoteStatic = wrong }
            ),
            (
                ik, "resp_remote_static is not the public key of init_static",
                { $0.responder.remoteStatic = wrong }
            ),
        ]
        for (vector, reason, change) in changes {
            var changed = vector
            change(&changed)
            #expect(changed.failure?.reason.contains(reason) == true, "\(reason)")
        }
    }

    @Test(
        "an unsupported protocol is skipped, and the result names the unknown part",
        arguments: [
            ("Noise_XX_25519_ChaChaPoly_SHA3", "'SHA3'"),
            ("Noise_NNhfs_25519+NewHope_ChaChaPoly_SHA256", "'hfs'"),
            ("NoisePSK_NN_25519_AESGCM_SHA256", "not a protocol name"),
            ("", "not a protocol name"),
        ])
    func skipped(_ name: String, _ part: String) throws {
        var vector = try #require(try TestVectors.load("interactive").first)
        vector.protocolName = name
        guard case .skipped(let reason) = vector.run() else {
            Issue.record("\(name) was run")
            return
        }
        #expect(reason.contains(part), "\(reason)")
    }

    @Test("a failed attempt and its fallback in one vector are run one after the other")
    func compound() throws {
        let xx = try ProtocolName("Noise_XX_25519_AESGCM_BLAKE2s")
        var vector = try VectorMaker(seed: 5, names: [xx]).vector(at: 0)
        vector.protocolName = "Noise_XXfallback_25519_AESGCM_BLAKE2s"
        vector.attemptedPattern = "IK"
        // This is not Bob's key, so Bob cannot read the attempt.
        vector.initiator.remoteStatic = try DHKeyPair.generate(.x25519).publicKey
        let prologue = vector.initiator.prologue
        let alice = try keyPair(vector.initiator.staticKey)
        let bob = try keyPair(vector.responder.staticKey)
        // Makes the messages of both handshakes with BLESecNoise alone, without `VectorWalk`.
        var attempt = try HandshakeState(
            protocolName: ProtocolName("Noise_IK_25519_AESGCM_BLAKE2s"), role: .initiator,
            prologue: prologue.span, localStatic: alice,
            remoteStatic: vector.initiator.remoteStatic)
        attempt.useFixedEphemeral(try keyPair(vector.initiator.ephemeral))
        let first = try attempt.write(vector.messages[0].payload)
        vector.messages[0].ciphertext = first
        let name = try ProtocolName(vector.protocolName)
        var initiator = try HandshakeState(
            fallback: name, after: attempt, prologue: prologue.span,
            localStatic: alice)
        var responder = try HandshakeState(
            fallback: name, answering: first.span,
            prologue: prologue.span, localStatic: bob)
        responder.useFixedEphemeral(try keyPair(vector.responder.ephemeral))
        vector.messages[1].ciphertext = try responder.write(vector.messages[1].payload)
        _ = try initiator.read(vector.messages[1].ciphertext)
        vector.messages[2].ciphertext = try initiator.write(vector.messages[2].payload)
        _ = try responder.read(vector.messages[2].ciphertext)
        vector.handshakeHash = initiator.handshakeHash
        var bobTransport = try responder.split()
        var aliceTransport = try initiator.split()
        for index in 3..<vector.messages.count {
            let payload = vector.messages[index].payload
            vector.messages[index].ciphertext =
                try index.isMultiple(of: 2)
                ? aliceTransport.encrypt(payload) : bobTransport.encrypt(payload)
        }
        #expect(vector.run() == .passed)
        // With Bob's real key, Bob can read the attempt, so no fallback may follow.
        vector.initiator.remoteStatic = bob.publicKey
        var readableAttempt = try HandshakeState(
            protocolName: ProtocolName("Noise_IK_25519_AESGCM_BLAKE2s"), role: .initiator,
            prologue: prologue.span, localStatic: alice,
            remoteStatic: vector.initiator.remoteStatic)
        readableAttempt.useFixedEphemeral(try keyPair(vector.initiator.ephemeral))
        vector.messages[0].ciphertext = try readableAttempt.write(vector.messages[0].payload)
        #expect(vector.failure?.part == .message(0))
        #expect(vector.failure?.reason.contains("does not fall back") == true)
    }

    @Test(
        "the vectors cover every pattern, suite and psk position, all psks at once, and every fallback"
    )
    func coverage() throws {
        var names: Set<String> = []
        for file in TestVectors.all {
            names.formUnion(try TestVectors.load(file).map(\.protocolName))
        }
        #expect(names.count >= 4_000)
        for pattern in HandshakePattern.all {
            let places = (0...pattern.messages.count).map { "psk\($0)" }
            var variants = ([""] + places + [places.joined(separator: "+")]).map {
                pattern.name + $0
            }
            if (try? pattern.applying(.fallback)) != nil {
                // A fallback has one message less than its pattern, and so one psk place less.
                variants += ["", "+psk0", "+" + places[places.count - 2]].map {
                    pattern.name + "fallback" + $0
                }
            }
            for variant in variants {
                for suite in suites { #expect(names.contains("Noise_\(variant)_\(suite)")) }
            }
        }
    }

    private func keyPair(_ privateKey: [UInt8]?) throws -> DHKeyPair {
        let key = try #require(privateKey)
        return try DHKeyPair(curve: .x25519, privateKey: SecretBytes(copying: key.span))
    }

    /// The last three parts of a protocol name, in every combination.
    private var suites: [String] {
        ["25519", "448"].flatMap { curve in
            ["ChaChaPoly", "AESGCM"].flatMap { cipher in
                ["SHA256", "SHA512", "BLAKE2s", "BLAKE2b"].map { "\(curve)_\(cipher)_\($0)" }
            }
        }
    }
}

extension NoiseVector {
    /// How the vector fails; nil if it does not.
    fileprivate var failure: VectorFailure? {
        switch run() {
        case .failed(let failure): failure
        case .passed, .skipped: nil
        }
    }

    fileprivate var isBasicIK: Bool { protocolName == "Noise_IK_25519_ChaChaPoly_SHA256" }
    fileprivate var isBasicNN: Bool { protocolName == "Noise_NN_25519_ChaChaPoly_SHA256" }
}
