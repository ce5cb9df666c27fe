import Glibc
import TestSupport
import Testing

extension Integration {
    /// `--direct` against `noiseprotocol`, an independent implementation.
    @Suite struct DirectModeTests {
        /// A protocol, with what a test must know about its handshake.
        struct Case: Sendable, CustomTestStringConvertible {
            let name: String
            /// Whether the initiator must know the responder's key beforehand.
            var initiatorKnowsKey = false
            /// Whether the dialer proves a key.
            var dialerProvesKey = true
            /// Whether the listener proves a key.
            var listenerProvesKey = true
            /// The options of `blesec keygen` for this protocol.
            var keygenOptions: [String] = []

            var testDescription: String { name }
        }

        static let cases = [
            Case(name: "Noise_XX_25519_ChaChaPoly_SHA256"),
            Case(name: "Noise_XX_25519_AESGCM_SHA512", keygenOptions: ["--hash", "SHA512"]),
            Case(
                name: "Noise_XX_448_ChaChaPoly_BLAKE2b",
                keygenOptions: ["--curve", "x448", "--hash", "BLAKE2b"]),
            Case(
                name: "Noise_IK_25519_AESGCM_BLAKE2s", initiatorKnowsKey: true,
                keygenOptions: ["--hash", "BLAKE2s"]),
            Case(
                name: "Noise_NN_25519_ChaChaPoly_SHA256", dialerProvesKey: false,
                listenerProvesKey: false),
        ]

        let folder = ScratchFolder()

        @Test("a dialer exchanges 1 MiB each way with a noiseprotocol responder", arguments: cases)
        func dialing(_ testCase: Case) throws {
            let sides = try ToolWithPeer(testCase, in: folder)
            let peer = try sides.startPeer("responder")
            _ = try peer.line("listening")
            let tool = try sides.startTool("connect")
            try sides.check(tool, peer)
        }

        @Test(
            "a listener exchanges 1 MiB each way with a noiseprotocol initiator", arguments: cases)
        func listening(_ testCase: Case) throws {
            let sides = try ToolWithPeer(testCase, in: folder)
            let tool = try sides.startTool("listen")
            _ = try tool.line("listening on ")
            let peer = try sides.startPeer("initiator")
            try sides.check(tool, peer)
        }

        @Test(
            "a noiseprotocol initiator proves itself with its first transport message",
            arguments: [
                Case(name: "Noise_IX_25519_ChaChaPoly_SHA256"),
                Case(name: "Noise_KN_25519_ChaChaPoly_SHA256", listenerProvesKey: false),
            ])
        func lateProof(_ testCase: Case) throws {
            let sides = try ToolWithPeer(testCase, in: folder)
            let tool = try sides.startTool("listen")
            _ = try tool.line("listening on ")
            let peer = try sides.startPeer("initiator")
            try sides.check(tool, peer)
        }

        @Test(
            "an attacker that has only the pinned public key gets no channel",
            arguments: ["IX", "IN", "KN", "KX"], [true, false])
        func unproven(_ pattern: String, attackerCloses: Bool) throws {
            // 32 bytes of 1; the attacker does not know the private key.
            let pinnedKey = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
            let made = try Tool.run("keygen", folder.file("key"))
            try #require(made.status == 0, "\(made.errors)")
            let path = folder.file("socket")
            let tool = try Tool.start([
                "listen", "unix:" + path, "--direct", "--protocol",
                "Noise_\(pattern)_25519_ChaChaPoly_SHA256", "--peer", pinnedKey, "--identity",
                folder.file("key"), "--timeout", attackerCloses ? "50" : "2",
            ])
            _ = try tool.line("listening on ")
            let attacker = RawSocket.dialing(path)
            let ephemeral = ToolPair.pseudoRandomBytes(31, seed: 5) + [0]
            // In a pattern that begins with I, the initiator's key follows in clear.
            let message =
                ephemeral + (pattern.hasPrefix("I") ? [UInt8](repeating: 1, count: 32) : [])
            attacker.send([0, UInt8(message.count)] + message)
            if attackerCloses {
                attacker.close()
                _ = try tool.line("blesec: no channel with ")
                tool.signal(SIGINT)
            }
            let outcome = try tool.wait()
            #expect(outcome.status == (attackerCloses ? 130 : 75), "\(outcome.errors)")
            #expect(!outcome.errors.contains("channel ready"))
            #expect(outcome.output == [])
            #expect(
                outcome.errors.contains("the peer closed the link before it proved its key")
                    == attackerCloses,
                "\(outcome.errors)")
        }

        @Test("a noiseprotocol responder whose key is not pinned gets no channel")
        func wrongKey() throws {
            let sides = try ToolWithPeer(Self.cases[0], in: folder)
            let peer = try sides.startPeer("responder")
            _ = try peer.line("listening")
            let otherIdentity = try Tool.run("keygen", folder.file("other"))
            let line = try #require(otherIdentity.text.split(separator: "\n").last)
            let tool = try Tool.start([
                "connect", sides.endpoint, "--direct", "--peer",
                String(line.dropFirst("fingerprint: ".count)),
            ])
            Tool.expect(
                try tool.wait(whileServing: [peer]), status: 77, "is not among the expected")
            #expect(
                try peer.wait().errors.contains("peer ") == false,
                "the responder does not report the tool's key: the handshake was not finished")
        }
    }
}

/// The tool, and `noiseprotocol` as its peer, for one protocol, with keys and data for both.
private struct ToolWithPeer {
    private static let script = #filePath.replacing(
        "DirectModeTests.swift", with: "Peers/noise_peer.py")
    private static let python = #filePath.replacing(
        "Tests/Integration/DirectModeTests.swift", with: ".build/venv/bin/python")

    let testCase: Integration.DirectModeTests.Case
    let folder: ScratchFolder
    let fromTool = ToolPair.pseudoRandomBytes(1 << 20, seed: 11)
    let fromPeer = ToolPair.pseudoRandomBytes((1 << 20) + 7, seed: 12)
    /// The tool's public key, in base64.
    let toolPublicKey: String
    /// The peer's private and public key, in base64.
    let peerPrivateKey: String
    let peerPublicKey: String

    init(_ testCase: Integration.DirectModeTests.Case, in folder: ScratchFolder) throws {
        self.testCase = testCase
        self.folder = folder
        let made = try Tool.run(arguments: ["keygen", folder.file("key")] + testCase.keygenOptions)
        try #require(made.status == 0, "\(made.errors)")
        let line = try #require(made.text.split(separator: "\n").first)
        toolPublicKey = String(line.dropFirst("public-key: ".count))
        // The peer's key is as long as the tool's key: 32 or 56 bytes.
        let count = toolPublicKey.count > 44 ? 56 : 32
        let bytes = folder.write("peer-private", ToolPair.pseudoRandomBytes(count, seed: 13))
        peerPrivateKey = try Subprocess.run("base64", ["-w0", bytes]).text
        let shown = try Subprocess.run(
            Self.python, [Self.script, "public", testCase.name, peerPrivateKey])
        try #require(
            shown.status == 0,
            "make test, or tools/install --python, makes .build/venv: \(shown.errors)")
        peerPublicKey = String(shown.text.dropLast())
        folder.write("from-tool", fromTool)
    }

    var endpoint: String { "unix:" + folder.file("socket") }

    /// Starts `blesec listen` or `blesec connect` in direct mode; its output goes to `from-peer`.
    func startTool(_ command: String) throws -> Subprocess {
        let trust =
            testCase.dialerProvesKey
            ? ["--peer", peerPublicKey, "--identity", folder.file("key")] : ["--anyone"]
        return try Tool.start(
            [command, endpoint, "--direct", "--protocol", testCase.name] + trust,
            input: .file(folder.file("from-tool")), output: folder.file("from-peer"), within: 60)
    }

    /// Starts the peer as `initiator` or `responder`.
    func startPeer(_ role: String) throws -> Subprocess {
        let responderKey = testCase.initiatorKnowsKey && role == "initiator" ? [toolPublicKey] : []
        return try Subprocess(
            Self.python,
            [Self.script, role, testCase.name, peerPrivateKey, folder.file("socket")]
                + responderKey,
            input: .bytes(fromPeer), within: 60)
    }

    /// Waits for both sides, and expects that all bytes have arrived and, if both sides prove keys,
    /// that the peer reports the tool's key.
    func check(_ tool: Subprocess, _ peer: Subprocess) throws {
        let outcomes = try Subprocess.wait([tool, peer])
        #expect(outcomes.map(\.status) == [0, 0], "\(outcomes.map(\.errors))")
        #expect(outcomes[1].output == fromTool)
        #expect(folder.read("from-peer") == fromPeer)
        #expect(outcomes[0].errors.contains("channel ready: \(testCase.name) with "))
        #expect(outcomes[1].errors.contains("ended by an empty message"))
        if testCase.dialerProvesKey, testCase.listenerProvesKey {
            #expect(outcomes[1].errors.contains("peer \(toolPublicKey)\n"))
        }
    }
}
