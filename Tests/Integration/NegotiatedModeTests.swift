import TestSupport
import Testing

extension Integration {
    /// The tool against a counterpart that is written from the wire-format page on top of
    /// `noiseprotocol`, with padding, pings and messages of various sizes.
    @Suite struct NegotiatedModeTests {
        /// The protocols that the dialer offers, and the only one that the acceptor supports.
        struct Case: Sendable, CustomTestStringConvertible {
            let offers: [String]
            let accepted: String

            var testDescription: String { "\(offers.joined(separator: ", ")) to \(accepted)" }
        }

        private static let chaCha = "Noise_XX_25519_ChaChaPoly_SHA256"
        private static let aes = "Noise_XX_25519_AESGCM_SHA256"
        private static let known = "Noise_IK_25519_ChaChaPoly_SHA256"

        static let cases = [
            Case(offers: [chaCha], accepted: chaCha),
            Case(offers: [known], accepted: known),
            // The acceptor switches to the second offer.
            Case(offers: [aes, chaCha], accepted: chaCha),
        ]

        let folder = ScratchFolder()

        @Test(
            "a dialer exchanges 1 MB each way with a counterpart, with or without features",
            arguments: cases, [true, false])
        func dialing(_ it: Case, hasFeatures: Bool) throws {
            let fixture = try NegotiatedFixture(in: folder, hasFeatures: hasFeatures)
            let peer = try fixture.peer("acceptor", [it.accepted])
            _ = try peer.line("listening")
            let tool = try fixture.tool("connect", it.offers)
            try fixture.check(tool, peer, it.accepted)
        }

        @Test(
            "a listener exchanges 1 MB each way with a counterpart, with or without features",
            arguments: cases, [true, false])
        func listening(_ it: Case, hasFeatures: Bool) throws {
            let fixture = try NegotiatedFixture(in: folder, hasFeatures: hasFeatures)
            let tool = try fixture.tool("listen", [it.accepted])
            _ = try tool.line("listening on ")
            let peer = try fixture.peer("dialer", it.offers)
            try fixture.check(tool, peer, it.accepted)
        }
    }
}

/// A tool and a counterpart, with keys and data for both.
private struct NegotiatedFixture {
    private static let script = #filePath.replacing(
        "NegotiatedModeTests.swift", with: "Peers/negotiated_peer.py")
    private static let python = #filePath.replacing(
        "Tests/Integration/NegotiatedModeTests.swift", with: ".build/venv/bin/python")

    let folder: ScratchFolder
    let hasFeatures: Bool
    let up = ToolPair.noise(1_000_000, seed: 21)
    let down = ToolPair.noise(1_000_007, seed: 22)
    /// The tool's public key, and the peer's keys, in base64.
    let toolKey: String
    let peerPrivate: String
    let peerKey: String

    init(in folder: ScratchFolder, hasFeatures: Bool) throws {
        self.folder = folder
        self.hasFeatures = hasFeatures
        let made = try Tool.run("keygen", folder.file("key"))
        let line = try #require(made.text.split(separator: "\n").first)
        toolKey = String(line.dropFirst("public-key: ".count))
        let secret = folder.write("peer-private", ToolPair.noise(32, seed: 23))
        peerPrivate = try Subprocess.run("base64", ["-w0", secret]).text
        let shown = try Subprocess.run(Self.python, [Self.script, "public", peerPrivate])
        try #require(
            shown.status == 0,
            "make test, or tools/install --python, makes .build/venv: \(shown.errors)")
        peerKey = String(shown.text.dropLast())
        folder.write("up", up)
    }

    func tool(_ command: String, _ protocols: [String]) throws -> Subprocess {
        try Tool.start(
            [
                command, "unix:" + folder.file("socket"), "--peer", peerKey,
                "--identity", folder.file("key"),
            ] + protocols.flatMap { ["--protocol", $0] },
            input: .file(folder.file("up")), output: folder.file("from-peer"), within: 60)
    }

    func peer(_ role: String, _ protocols: [String]) throws -> Subprocess {
        try Subprocess(
            "env",
            [
                "PEER_KEY=\(toolKey)", "PEER_FEATURES=\(hasFeatures ? 1 : 0)", Self.python,
                Self.script, role, peerPrivate,
                folder.file("socket"),
            ] + protocols, input: .bytes(down), within: 60)
    }

    func check(_ tool: Subprocess, _ peer: Subprocess, _ name: String) throws {
        let outcomes = try Subprocess.wait([tool, peer])
        #expect(outcomes.map(\.status) == [0, 0], "\(outcomes.map(\.errors))")
        #expect(outcomes[1].output == up)
        #expect(folder.read("from-peer") == down)
        #expect(outcomes[0].errors.contains("channel ready: \(name) with "))
        #expect(outcomes[1].errors.contains("ready \(toolKey) \(name)"))
        #expect(outcomes[1].errors.contains("complete"))
    }
}
