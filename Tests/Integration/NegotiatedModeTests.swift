import TestSupport
import Testing

extension Integration {
    /// The tool against `negotiated_peer.py`, a Python peer that uses the package `noiseprotocol` for
    /// Noise, and implements everything else as `docs/wire-format.md` describes it. The peer sends
    /// padding, a ping, and messages of various sizes.
    @Suite struct NegotiatedModeTests {
        /// The protocols that the dialer offers, and the only protocol that the acceptor supports.
        struct Case: Sendable, CustomTestStringConvertible {
            let offers: [String]
            let accepted: String

            var testDescription: String { "\(offers.joined(separator: ", ")) to \(accepted)" }
        }

        private static let xxChaCha = "Noise_XX_25519_ChaChaPoly_SHA256"
        private static let xxAES = "Noise_XX_25519_AESGCM_SHA256"
        private static let ikChaCha = "Noise_IK_25519_ChaChaPoly_SHA256"

        static let cases = [
            Case(offers: [xxChaCha], accepted: xxChaCha),
            Case(offers: [ikChaCha], accepted: ikChaCha),
            // The acceptor switches to the second offer.
            Case(offers: [xxAES, xxChaCha], accepted: xxChaCha),
        ]

        let folder = ScratchFolder()

        @Test(
            "a dialer exchanges 1 MB each way with a Python peer, with and without feature bits",
            arguments: cases, [true, false])
        func dialing(_ protocols: Case, hasFeatures: Bool) throws {
            let fixture = try NegotiatedFixture(in: folder, hasFeatures: hasFeatures)
            let peer = try fixture.startPeer("acceptor", [protocols.accepted])
            _ = try peer.line("listening")
            let tool = try fixture.startTool("connect", protocols.offers)
            try fixture.check(tool, peer, protocols.accepted)
        }

        @Test(
            "a listener exchanges 1 MB each way with a Python peer, with and without feature bits",
            arguments: cases, [true, false])
        func listening(_ protocols: Case, hasFeatures: Bool) throws {
            let fixture = try NegotiatedFixture(in: folder, hasFeatures: hasFeatures)
            let tool = try fixture.startTool("listen", [protocols.accepted])
            _ = try tool.line("listening on ")
            let peer = try fixture.startPeer("dialer", protocols.offers)
            try fixture.check(tool, peer, protocols.accepted)
        }
    }
}

/// Starts a tool and a peer, with keys and data for both.
private struct NegotiatedFixture {
    private static let script = #filePath.replacing(
        "NegotiatedModeTests.swift", with: "Peers/negotiated_peer.py")
    private static let python = #filePath.replacing(
        "Tests/Integration/NegotiatedModeTests.swift", with: ".build/venv/bin/python")

    let folder: ScratchFolder
    let hasFeatures: Bool
    let fromTool = ToolPair.pseudoRandomBytes(1_000_000, seed: 21)
    let fromPeer = ToolPair.pseudoRandomBytes(1_000_007, seed: 22)
    /// The tool's public key, and the peer's private and public keys, in base64.
    let toolKey: String
    let peerPrivateKey: String
    let peerKey: String

    init(in folder: ScratchFolder, hasFeatures: Bool) throws {
        self.folder = folder
        self.hasFeatures = hasFeatures
        let made = try Tool.run("keygen", folder.file("key"))
        let line = try #require(made.text.split(separator: "\n").first)
        toolKey = String(line.dropFirst("public-key: ".count))
        let secret = folder.write("peer-private", ToolPair.pseudoRandomBytes(32, seed: 23))
        peerPrivateKey = try Subprocess.run("base64", ["-w0", secret]).text
        let shown = try Subprocess.run(Self.python, [Self.script, "public", peerPrivateKey])
        try #require(
            shown.status == 0,
            """
            the script failed: \(shown.errors); if .build/venv is missing, run `make test` or \
            `tools/install --python`
            """)
        peerKey = String(shown.text.dropLast())
        folder.write("from-tool", fromTool)
    }

    func startTool(_ command: String, _ protocols: [String]) throws -> Subprocess {
        try Tool.start(
            [
                command, "unix:" + folder.file("socket"), "--peer", peerKey,
                "--identity", folder.file("key"),
            ] + protocols.flatMap { ["--protocol", $0] },
            input: .file(folder.file("from-tool")), output: folder.file("from-peer"), within: 60)
    }

    func startPeer(_ role: String, _ protocols: [String]) throws -> Subprocess {
        try Subprocess(
            "env",
            [
                "PEER_KEY=\(toolKey)", "PEER_FEATURES=\(hasFeatures ? 1 : 0)", Self.python,
                Self.script, role, peerPrivateKey,
                folder.file("socket"),
            ] + protocols, input: .bytes(fromPeer), within: 60)
    }

    /// Checks that both ends have used the protocol `name`, have received all data, and have ended
    /// without errors.
    func check(_ tool: Subprocess, _ peer: Subprocess, _ name: String) throws {
        let outcomes = try Subprocess.wait([tool, peer])
        #expect(outcomes.map(\.status) == [0, 0], "\(outcomes.map(\.errors))")
        #expect(outcomes[1].output == fromTool)
        #expect(folder.read("from-peer") == fromPeer)
        #expect(outcomes[0].errors.contains("channel ready: \(name) with "))
        #expect(outcomes[1].errors.contains("ready \(toolKey) \(name)"))
        #expect(outcomes[1].errors.contains("complete"))
    }
}
