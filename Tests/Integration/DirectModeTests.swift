import Glibc
import TestSupport
import Testing

extension Integration {
    /// `--direct` against `noiseprotocol`, an independent implementation.
    @Suite struct DirectModeTests {
        /// A protocol, which sides prove a key in it, and what its initiator must know beforehand.
        struct Case: Sendable, CustomTestStringConvertible {
            let name: String
            /// Whether the initiator must know the responder's key.
            var needsKey = false
            /// Whether the dialer proves a key.
            var proves = true
            /// Whether the listener proves a key, if the dialer does.
            var provesListener = true
            /// The options of `blesec keygen` for this protocol.
            var keygen: [String] = []

            var testDescription: String { name }
        }

        static let cases = [
            Case(name: "Noise_XX_25519_ChaChaPoly_SHA256"),
            Case(name: "Noise_XX_25519_AESGCM_SHA512", keygen: ["--hash", "SHA512"]),
            Case(
                name: "Noise_XX_448_ChaChaPoly_BLAKE2b",
                keygen: ["--curve", "x448", "--hash", "BLAKE2b"]),
            Case(
                name: "Noise_IK_25519_AESGCM_BLAKE2s", needsKey: true,
                keygen: ["--hash", "BLAKE2s"]),
            Case(name: "Noise_NN_25519_ChaChaPoly_SHA256", proves: false),
        ]

        let folder = ScratchFolder()

        @Test("a dialer exchanges 1 MiB each way with a noiseprotocol responder", arguments: cases)
        func dialing(_ it: Case) throws {
            let fixture = try Fixture(it, in: folder)
            let peer = try fixture.peer("responder")
            _ = try peer.line("listening")
            let tool = try fixture.tool("connect")
            try fixture.check(tool, peer)
        }

        @Test(
            "a listener exchanges 1 MiB each way with a noiseprotocol initiator", arguments: cases)
        func listening(_ it: Case) throws {
            let fixture = try Fixture(it, in: folder)
            let tool = try fixture.tool("listen")
            _ = try tool.line("listening on ")
            let peer = try fixture.peer("initiator")
            try fixture.check(tool, peer)
        }

        @Test(
            "a noiseprotocol initiator proves itself with its first transport message",
            arguments: [
                Case(name: "Noise_IX_25519_ChaChaPoly_SHA256"),
                Case(name: "Noise_KN_25519_ChaChaPoly_SHA256", provesListener: false),
            ])
        func lateProof(_ it: Case) throws {
            let fixture = try Fixture(it, in: folder)
            let tool = try fixture.tool("listen")
            _ = try tool.line("listening on ")
            let peer = try fixture.peer("initiator")
            try fixture.check(tool, peer)
        }

        @Test(
            "an attacker that has only the pinned public key gets no channel",
            arguments: ["IX", "IN", "KN", "KX"], [true, false])
        func unproven(_ pattern: String, leaves: Bool) throws {
            let key = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
            let made = try Tool.run("keygen", folder.file("key"))
            try #require(made.status == 0, "\(made.errors)")
            let path = folder.file("socket")
            let tool = try Tool.start([
                "listen", "unix:" + path, "--direct", "--protocol",
                "Noise_\(pattern)_25519_ChaChaPoly_SHA256", "--peer", key, "--identity",
                folder.file("key"), "--timeout", leaves ? "50" : "2",
            ])
            _ = try tool.line("listening on ")
            let attacker = RawSocket.dialing(path)
            let ephemeral = ToolPair.noise(31, seed: 5) + [0]
            let message =
                ephemeral + (pattern.hasPrefix("I") ? [UInt8](repeating: 1, count: 32) : [])
            attacker.send([0, UInt8(message.count)] + message)
            if leaves {
                attacker.close()
                _ = try tool.line("blesec: no channel with ")
                tool.signal(SIGINT)
            }
            let outcome = try tool.wait()
            #expect(outcome.status == (leaves ? 130 : 75), "\(outcome.errors)")
            #expect(!outcome.errors.contains("channel ready"))
            #expect(outcome.output == [])
            #expect(
                outcome.errors.contains("the peer closed the link before it proved its key")
                    == leaves,
                "\(outcome.errors)")
        }

        @Test("a noiseprotocol responder whose key is not pinned gets no channel")
        func wrongKey() throws {
            let fixture = try Fixture(Self.cases[0], in: folder)
            let peer = try fixture.peer("responder")
            _ = try peer.line("listening")
            let other = try Tool.run("keygen", folder.file("other"))
            let line = try #require(other.text.split(separator: "\n").last)
            let tool = try Tool.start([
                "connect", fixture.endpoint, "--direct", "--peer",
                String(line.dropFirst("fingerprint: ".count)),
            ])
            Tool.expect(try tool.wait(with: [peer]), status: 77, "is not among the expected")
            #expect(try peer.wait().errors.contains("peer ") == false)
        }
    }
}

/// A tool and a peer for one protocol, with keys and data for both.
private struct Fixture {
    private static let script = #filePath.replacing(
        "DirectModeTests.swift", with: "Peers/noise_peer.py")
    private static let python = #filePath.replacing(
        "Tests/Integration/DirectModeTests.swift", with: ".build/venv/bin/python")

    let it: Integration.DirectModeTests.Case
    let folder: ScratchFolder
    let up = ToolPair.noise(1 << 20, seed: 11)
    let down = ToolPair.noise((1 << 20) + 7, seed: 12)
    /// The tool's public key.
    let toolKey: String
    /// The peer's keys, in base64.
    let peerPrivate: String
    let peerKey: String

    init(_ it: Integration.DirectModeTests.Case, in folder: ScratchFolder) throws {
        self.it = it
        self.folder = folder
        let made = try Tool.run(arguments: ["keygen", folder.file("key")] + it.keygen)
        try #require(made.status == 0, "\(made.errors)")
        let line = try #require(made.text.split(separator: "\n").first)
        toolKey = String(line.dropFirst("public-key: ".count))
        // The peer's key is as long as the tool's key: 32 or 56 bytes.
        let count = toolKey.count > 44 ? 56 : 32
        let bytes = folder.write("peer-private", ToolPair.noise(count, seed: 13))
        peerPrivate = try Subprocess.run("base64", ["-w0", bytes]).text
        let shown = try Subprocess.run(Self.python, [Self.script, "public", it.name, peerPrivate])
        try #require(
            shown.status == 0,
            "make test, or tools/install --python, makes .build/venv: \(shown.errors)")
        peerKey = String(shown.text.dropLast())
        folder.write("up", up)
    }

    var endpoint: String { "unix:" + folder.file("socket") }

    func tool(_ command: String) throws -> Subprocess {
        let trust =
            it.proves ? ["--peer", peerKey, "--identity", folder.file("key")] : ["--anyone"]
        return try Tool.start(
            [command, endpoint, "--direct", "--protocol", it.name] + trust,
            input: .file(folder.file("up")), output: folder.file("from-peer"), within: 60)
    }

    func peer(_ role: String) throws -> Subprocess {
        let known = it.needsKey && role == "initiator" ? [toolKey] : []
        return try Subprocess(
            Self.python,
            [Self.script, role, it.name, peerPrivate, folder.file("socket")] + known,
            input: .bytes(down), within: 60)
    }

    func check(_ tool: Subprocess, _ peer: Subprocess) throws {
        let outcomes = try Subprocess.wait([tool, peer])
        #expect(outcomes.map(\.status) == [0, 0], "\(outcomes.map(\.errors))")
        #expect(outcomes[1].output == up)
        #expect(folder.read("from-peer") == down)
        #expect(outcomes[0].errors.contains("channel ready: \(it.name) with "))
        #expect(outcomes[1].errors.contains("ended by an empty message"))
        if it.proves, it.provesListener {
            #expect(outcomes[1].errors.contains("peer \(toolKey)\n"))
        }
    }
}
