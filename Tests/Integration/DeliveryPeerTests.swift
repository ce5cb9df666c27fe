import Glibc
import TestSupport
import Testing

extension Integration {
    /// The tool with `--persist` against `delivery_peer.py`, a peer that is written from the pages
    /// on delivery and on the wire format, on top of `noiseprotocol`. The peer closes links
    /// abruptly, after random numbers of bytes, and resumes on the next link, also inside a
    /// message. It checks what it receives and, without `--restarts`, fails if the tool closes a
    /// link.
    @Suite struct DeliveryPeerTests {
        let folder = ScratchFolder()

        @Test(
            "a dialer with --persist exchanges 400 KB each way with a Python peer that cuts links",
            arguments: [1, 2])
        func dialing(seed: Int) throws {
            let fixture = try DeliveryFixture(in: folder, count: 400_000)
            let peer = try fixture.startPeer("acceptor", ["--cuts", "5", "--seed", "\(seed)"])
            _ = try peer.line("listening")
            let tool = try fixture.startTool("connect", output: folder.file("from-peer"))
            try fixture.check(tool, peer, links: 6)
        }

        @Test(
            "a listener with --persist exchanges 400 KB each way with a Python peer that cuts links",
            arguments: [1, 2, 3, 4])
        func listening(seed: Int) throws {
            let fixture = try DeliveryFixture(in: folder, count: 400_000)
            let tool = try fixture.startTool("listen", output: folder.file("from-peer"))
            _ = try tool.line("listening on ")
            let peer = try fixture.startPeer("dialer", ["--cuts", "5", "--seed", "\(seed)"])
            try fixture.check(tool, peer, links: 6)
        }

        @Test(
            "if the link is cut while both sides end the channel, they end it on a new link",
            arguments: ["connect", "listen"])
        func cutAtEnd(command: String) throws {
            let fixture = try DeliveryFixture(in: folder, count: 10_000)
            // With this seed, the peer becomes complete and cuts the link 7 bytes later. So the
            // tool gets no `end`, and has to come back.
            let options = ["--cuts", "1", "--late", "--seed", "2"]
            let tool, peer: Subprocess
            if command == "connect" {
                peer = try fixture.startPeer("acceptor", options)
                _ = try peer.line("listening")
                tool = try fixture.startTool(command, output: folder.file("from-peer"))
            } else {
                tool = try fixture.startTool(command, output: folder.file("from-peer"))
                _ = try tool.line("listening on ")
                peer = try fixture.startPeer("dialer", options)
            }
            try fixture.check(tool, peer, links: 2)
        }

        @Test("a dialer that replaces a killed one gets the rest, and nothing twice")
        func replacing() throws {
            let fixture = try DeliveryFixture(in: folder, count: 2_000_000)
            let peer = try fixture.startPeer("acceptor", ["--cuts", "0", "--restarts"])
            _ = try peer.line("listening")
            let killed = try fixture.startTool("connect", output: nil)
            // The rest waits: this test reads no more, and the tool grants no more credit.
            _ = try killed.output(50_000, whileServing: [peer])
            killed.signal(SIGKILL)
            let firstPart = try killed.wait(whileServing: [peer]).output
            let tool = try fixture.startTool("connect", output: folder.file("from-peer"))
            let outcomes = try Subprocess.wait([tool, peer])
            // What the killed tool had not confirmed may be missing, and the new one says so.
            #expect(outcomes.map(\.status) == [76, 0], "\(outcomes.map(\.errors))")
            #expect(outcomes[1].errors.contains("complete: 2 links"))
            let secondPart = try #require(folder.read("from-peer"))
            #expect(!secondPart.isEmpty)
            #expect(firstPart.count + secondPart.count <= fixture.fromPeer.count)
            #expect(fixture.fromPeer.starts(with: firstPart))
            #expect(Array(fixture.fromPeer.suffix(secondPart.count)) == secondPart)
            // The killed tool has sent the beginning of the input, and the second tool all of the
            // input.
            let received = try #require(folder.read("from-tool"))
            #expect(Array(received.suffix(fixture.fromTool.count)) == fixture.fromTool)
            #expect(fixture.fromTool.starts(with: received.dropLast(fixture.fromTool.count)))
        }
    }
}

/// Starts tools and a peer, with keys and data for both.
struct DeliveryFixture {
    private static let peersFolder = #filePath.replacing("DeliveryPeerTests.swift", with: "Peers/")
    private static let python = #filePath.replacing(
        "Tests/Integration/DeliveryPeerTests.swift", with: ".build/venv/bin/python")

    let folder: ScratchFolder
    let fromTool: [UInt8]
    let fromPeer: [UInt8]
    /// The tool's public key, and the peer's private and public keys, in base64.
    let toolKey: String
    let peerPrivateKey: String
    let peerKey: String

    /// Makes the keys, a file of `count` bytes for the tool to send, and one of `count` + 7 bytes
    /// for the peer to send.
    init(in folder: ScratchFolder, count: Int) throws {
        self.folder = folder
        fromTool = ToolPair.pseudoRandomBytes(count, seed: 31)
        fromPeer = ToolPair.pseudoRandomBytes(count + 7, seed: 32)
        let made = try Tool.run("keygen", folder.file("key"))
        let line = try #require(made.text.split(separator: "\n").first)
        toolKey = String(line.dropFirst("public-key: ".count))
        let secret = folder.write("peer-private", ToolPair.pseudoRandomBytes(32, seed: 33))
        peerPrivateKey = try Subprocess.run("base64", ["-w0", secret]).text
        let shown = try Subprocess.run(
            Self.python, [Self.peersFolder + "negotiated_peer.py", "public", peerPrivateKey])
        try #require(
            shown.status == 0,
            "make test, or tools/install --python, makes .build/venv: \(shown.errors)")
        peerKey = String(shown.text.dropLast())
        folder.write("to-peer", fromTool)
        folder.write("to-tool", fromPeer)
    }

    func startTool(_ command: String, output: String?) throws -> Subprocess {
        try Tool.start(
            [
                command, "unix:" + folder.file("socket"), "--persist", "--peer", peerKey,
                "--identity", folder.file("key"),
            ],
            input: .file(folder.file("to-peer")), output: output, within: 60)
    }

    func startPeer(_ role: String, _ options: [String]) throws -> Subprocess {
        try Subprocess(
            Self.python,
            [
                Self.peersFolder + "delivery_peer.py", role, peerPrivateKey, folder.file("socket"),
                folder.file("to-tool"), folder.file("from-tool"),
            ] + options, within: 60)
    }

    /// Checks that both ends have received all data, over `links` links in all, and have ended
    /// without errors.
    func check(_ tool: Subprocess, _ peer: Subprocess, links: Int) throws {
        let outcomes = try Subprocess.wait([tool, peer])
        #expect(outcomes.map(\.status) == [0, 0], "\(outcomes.map(\.errors))")
        #expect(folder.read("from-peer") == fromPeer)
        #expect(folder.read("from-tool") == fromTool)
        #expect(
            outcomes[0].errors.contains("channel ready: Noise_XX_25519_ChaChaPoly_SHA256 with "))
        #expect(outcomes[1].errors.contains("ready \(toolKey) Noise_XX_25519_ChaChaPoly_SHA256"))
        #expect(outcomes[1].errors.contains("complete: \(links) links"), "\(outcomes[1].errors)")
    }
}
