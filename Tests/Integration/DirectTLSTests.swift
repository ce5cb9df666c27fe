import Glibc
import TestSupport
import Testing

extension Integration {
    /// `--direct --protocol TLS1.3` against the real `openssl`, with certificates from `blesec ca`.
    @Suite struct DirectTLSTests {
        /// Options of `openssl genpkey` for the devices' keys; nil for the keys that `blesec ca`
        /// makes.
        static let algorithms: [[String]?] = [nil, ["EC", "-pkeyopt", "ec_paramgen_curve:P-256"]]

        let fromTool = ToolPair.pseudoRandomBytes(1 << 20, seed: 31)
        let fromPeer = ToolPair.pseudoRandomBytes((1 << 20) + 7, seed: 32)

        @Test(
            "a dialer exchanges 1 MiB each way with openssl s_server",
            arguments: algorithms)
        func dialing(_ algorithm: [String]?) throws {
            let pair = try CertifiedPair(algorithm: algorithm)
            let server = try pair.startOpenSSL("s_server", "-Verify", "1", "-naccept", "1")
            try pair.waitForSocket()
            let tool = try pair.startTool("connect", "--direct", within: 60)
            try exchange(tool, server, pair)
        }

        @Test(
            "a listener exchanges 1 MiB each way with openssl s_client",
            arguments: algorithms)
        func listening(_ algorithm: [String]?) throws {
            let pair = try CertifiedPair(algorithm: algorithm)
            let tool = try pair.startTool("listen", "--direct", within: 60)
            _ = try tool.line("listening on ")
            let client = try pair.startOpenSSL("s_client")
            try exchange(tool, client, pair)
        }

        @Test(
            "a listener exchanges 1 MiB each way with a client that asks for TLS records of 512 bytes"
        )
        func shortRecords() throws {
            let pair = try CertifiedPair()
            let tool = try pair.startTool("listen", "--direct", within: 60)
            _ = try tool.line("listening on ")
            let client = try pair.startOpenSSL("s_client", "-maxfraglen", "512")
            try exchange(tool, client, pair)
        }

        @Test(
            "a listener exchanges 1 MiB each way with a client whose ClientHello takes two records")
        func longHello() throws {
            let pair = try CertifiedPair()
            let tool = try pair.startTool("listen", "--direct", within: 60)
            _ = try tool.line("listening on ")
            let names = (0..<12).map { "\(10 + $0)" + String(repeating: "a", count: 43) }
            let client = try pair.startOpenSSL(
                "s_client", "-max_send_frag", "512", "-alpn", names.joined(separator: ","))
            try exchange(tool, client, pair)
        }

        /// Sends all bytes both ways, and then ends both sides. When the tool ends its data,
        /// `openssl` stops, even if `openssl` still has bytes to send; so the tool's input ends
        /// only after all bytes have arrived on both sides.
        private func exchange(
            _ tool: Subprocess, _ peer: Subprocess, _ pair: CertifiedPair
        ) throws {
            tool.send(fromTool)
            peer.send(fromPeer)
            #expect(try peer.output(fromTool.count, whileServing: [tool]) == fromTool)
            #expect(try tool.output(fromPeer.count, whileServing: [peer]) == fromPeer)
            #expect(
                try tool.line("channel ready: ")
                    == "channel ready: TLS1.3 with \(pair.fingerprint(of: CertifiedPair.phone)), "
                    + "blesec://devices/phone")
            tool.endInput()
            peer.endInput()
            let outcomes = try Subprocess.wait([tool, peer])
            #expect(outcomes[0].status == 0, "\(outcomes.map(\.errors))")
            #expect(outcomes[0].output.count == fromPeer.count)
            #expect(outcomes[1].output.count == fromTool.count)
        }

        @Test("the tool reports a truncated transfer when openssl is killed")
        func truncated() throws {
            let pair = try CertifiedPair()
            let tool = try pair.startTool("listen", "--direct")
            _ = try tool.line("listening on ")
            let client = try pair.startOpenSSL("s_client")
            client.send([1, 2, 3])
            #expect(try tool.output(3, whileServing: [client]) == [1, 2, 3])
            client.signal(SIGKILL)
            let outcome = try tool.wait(whileServing: [client])
            #expect(outcome.status == 76)
            #expect(outcome.errors.contains("the link ended before the peer said that it was done"))
        }

        @Test(
            "a client that is not accepted gets an alert, and no channel",
            arguments: [
                // The certificate's name (`without`: none), and words of the tool's reason.
                ("without", "certificate"), ("stranger", "leads to no authority"),
                ("revoked", "is revoked"),
            ])
        func refused(_ name: String, _ reason: String) throws {
            let pair = try CertifiedPair()
            let tool = try pair.startTool("listen", "--direct")
            _ = try tool.line("listening on ")
            let client = try pair.startOpenSSL("s_client", as: name)
            client.send([1, 2, 3])
            let line = try tool.line("blesec: no channel with", whileServing: [client])
            #expect(line.contains(reason), "\(line)")
            let outcome = try client.wait(whileServing: [tool])
            #expect(outcome.status == 1)
            #expect(outcome.errors.contains("alert"), "\(outcome.errors)")
            #expect(outcome.output == [])
            try expectStillWaiting(tool)
        }

        @Test("a server that is not accepted gets no channel")
        func refusedServer() throws {
            let pair = try CertifiedPair()
            let server = try pair.startOpenSSL(
                "s_server", "-Verify", "1", "-naccept", "1", as: "stranger")
            try pair.waitForSocket()
            let tool = try pair.startTool("connect", "--direct")
            let outcome = try tool.wait(whileServing: [server])
            Tool.expect(outcome, status: 77, "leads to no authority")
        }

        @Test("TLS 1.2 is refused")
        func oldVersion() throws {
            let pair = try CertifiedPair()
            let tool = try pair.startTool("listen", "--direct")
            _ = try tool.line("listening on ")
            let client = try pair.startOpenSSL("s_client", "-tls1_2", version: [])
            let outcome = try client.wait(whileServing: [tool])
            #expect(outcome.status == 1)
            try expectStillWaiting(tool)
        }

        /// Expects that a listener still waits for the next peer after it has refused one, and ends
        /// the listener.
        private func expectStillWaiting(_ tool: Subprocess) throws {
            tool.signal(SIGTERM)
            let outcome = try tool.wait()
            #expect(outcome.status == 143, "\(outcome.errors)")
            #expect(outcome.output == [])
        }
    }
}
