import Glibc
import TestSupport
import Testing

extension Integration {
    /// The tool on both sides, with certificates from `blesec ca`.
    @Suite struct CertificateTests {
        let pair: CertifiedPair

        init() throws { pair = try CertifiedPair() }

        private var folder: ScratchFolder { pair.folder }

        @Test("a megabyte each way arrives over TLS, which the certificate options select")
        func transfer() throws {
            let up = ToolPair.noise(1_000_000, seed: 41)
            let down = ToolPair.noise(1_000_007, seed: 42)
            let listener = try pair.listen([], input: .bytes(down))
            let dialer = try pair.connect(input: .bytes(up))
            let outcomes = try Subprocess.wait([listener, dialer])
            #expect(outcomes.map(\.status) == [0, 0], "\(outcomes.map(\.errors))")
            #expect(outcomes[0].output == up)
            #expect(outcomes[1].output == down)
            for (outcome, peer) in zip(outcomes, [CertifiedPair.other, CertifiedPair.own]) {
                #expect(
                    outcome.errors.hasSuffix(
                        "channel ready: TLS1.3 with \(pair.fingerprint(of: peer)), "
                            + "blesec://devices/\(peer)\n"))
            }
        }

        @Test("JSON output has separate members for the URI and the fingerprint")
        func json() throws {
            let listener = try pair.listen([])
            let dialer = try pair.connect(["--json"])
            let outcomes = try Subprocess.wait([listener, dialer])
            #expect(outcomes.map(\.status) == [0, 0])
            #expect(
                outcomes[1].errors.hasPrefix(
                    """
                    {"event": "ready", "protocol": "TLS1.3", \
                    "peer": "\(pair.fingerprint(of: CertifiedPair.own))", \
                    "uri": "blesec://devices/own"}

                    """))
        }

        /// Runs a dialer against a listener, and returns the dialer's status and both sides'
        /// standard error.
        private func meet(
            _ dialer: [String], _ listener: [String], as name: String = CertifiedPair.other
        ) throws -> (status: Int32, errors: String, listener: String) {
            let listener = try pair.listen(listener)
            let dialer = try pair.connect(dialer, as: name)
            let outcome = try dialer.wait(with: [listener])
            if outcome.status != 0 {
                _ = try listener.line("blesec: no channel")
                listener.signal(SIGTERM)
            }
            let other = try listener.wait()
            return (outcome.status, outcome.errors, other.errors)
        }

        @Test("a listener accepts the peers that it names, by URI or by key")
        func named() throws {
            let uri = ["--peer-uri", "blesec://devices/other"]
            let key = ["--peer", pair.fingerprint(of: CertifiedPair.other)]
            let others = [
                ["--peer-uri", "blesec://devices/nobody"],
                ["--peer", pair.fingerprint(of: CertifiedPair.own)],
            ]
            for accepted in [
                uri, key, uri + key, others[0] + key, others[1] + uri, others[0] + uri,
            ] {
                let outcome = try meet([], accepted)
                #expect(outcome.status == 0, "\(accepted): \(outcome)")
            }
            for refused in others + [others[0] + others[1]] {
                let outcome = try meet([], refused)
                #expect(outcome.status == 69, "\(refused): \(outcome)")
                #expect(outcome.listener.contains("expected"), "\(outcome)")
            }
        }

        @Test("a dialer refuses an unexpected listener before it shows its own certificate")
        func unexpected() throws {
            let outcome = try meet(["--peer-uri", "blesec://devices/nobody"], [])
            #expect(outcome.status == 77)
            #expect(
                outcome.errors.contains("the peer is blesec://devices/own, and others are expected")
            )
        }

        @Test("a pinned key needs no authority")
        func pinned() throws {
            func options(_ name: String, _ peer: String) -> [String] {
                Array(pair.certificate(name).prefix(4)) + ["--peer", pair.fingerprint(of: peer)]
            }
            let listener = try Tool.start(
                ["listen", pair.endpoint] + options(CertifiedPair.own, "stranger"))
            _ = try listener.line("listening on ")
            let dialer = try Tool.start(
                ["connect", pair.endpoint] + options("stranger", CertifiedPair.own))
            let outcomes = try Subprocess.wait([listener, dialer])
            #expect(outcomes.map(\.status) == [0, 0], "\(outcomes.map(\.errors))")
            #expect(!outcomes[0].errors.contains("blesec://"), "no authority has certified a name")
        }

        @Test(
            "a waiting listener refuses a peer once it is revoked, and all peers if the list is bad"
        )
        func revocation() throws {
            let listener = try pair.listen(["--keep"])
            #expect(try pair.connect().wait(with: [listener]).status == 0)
            try pair.revoke(CertifiedPair.other)
            // The dialer reads the same list and still dials: it applies the list to the listener's
            // certificate, and not to its own, which is revoked.
            #expect(try pair.connect().wait(with: [listener]).status == 69)
            #expect(try listener.line("blesec: no channel").contains("is revoked"))
            folder.write("ca/ca.crl", "")
            let dialer = try Tool.start(
                ["connect", pair.endpoint]
                    + Array(pair.certificate(CertifiedPair.other).prefix(6)))
            #expect(try dialer.wait(with: [listener]).status == 69)
            listener.signal(SIGTERM)
            let errors = try listener.wait().errors
            #expect(errors.contains("ca.crl revokes nothing"), "\(errors)")
        }

        @Test("a listener with both engines serves a Noise peer and a TLS peer at once")
        func both() throws {
            let noise = try ToolPair()
            let listener = try pair.listen([
                "--keep", "--identity", noise.folder.file("listener"), "--peer", noise.dialerKey,
                "--peer-uri", "blesec://devices/other",
            ])
            let first = try Tool.start(
                [
                    "connect", pair.endpoint, "--identity", noise.folder.file("dialer"), "--peer",
                    noise.listenerKey,
                ], input: .held)
            #expect(
                try first.line("channel ready", with: [listener])
                    == noise.dialerIsReady)
            // The first peer is still connected.
            let second = try pair.connect(input: .held)
            #expect(
                try second.line("channel ready", with: [listener, first]).hasPrefix(
                    "channel ready: TLS1.3 with "))
            for tool in [first, second] {
                tool.send(Array("hello ".utf8))
                tool.endInput()
            }
            let outcomes = try [first, second].map { try $0.wait(with: [listener]) }
            #expect(outcomes.map(\.status) == [0, 0], "\(outcomes.map(\.errors))")
            listener.signal(SIGTERM)
            let outcome = try listener.wait()
            #expect(outcome.output == Array("hello hello ".utf8))
            #expect(outcome.errors.contains("channel complete with \(noise.dialerKey)"))
        }

        @Test("a Noise dialer reports that it has no protocol in common with a TLS listener")
        func nothingInCommon() throws {
            let noise = try ToolPair()
            let listener = try pair.listen(["--protocol", "TLS1.3"])
            let dialer = try Tool.start([
                "connect", pair.endpoint, "--identity", noise.folder.file("dialer"), "--anyone",
            ])
            let outcome = try dialer.wait(with: [listener])
            Tool.expect(outcome, status: 69, "protocol")
            listener.signal(SIGTERM)
            #expect(try listener.wait().status == 143)
        }

        @Test("options that contradict each other are a usage error with the remedy")
        func usage() throws {
            let own = pair.certificate(CertifiedPair.own)
            let certificate = Array(own.prefix(4))
            let authority = Array(own.prefix(6))
            let key = ["--peer", pair.fingerprint(of: CertifiedPair.other)]
            let cases: [([String], String)] = [
                (Array(own[0..<2]) + key, "--certificate goes with --key FILE"),
                (Array(own[2..<4]) + key, "--key goes with --certificate FILE"),
                (Array(own[4..<6]) + key, "--authority goes with --certificate FILE"),
                (certificate + Array(own[6..<8]) + key, "--revoked goes with --authority FILE"),
                (certificate + ["--peer-uri", "a:b"], "--peer-uri goes with --authority FILE"),
                (authority + ["--peer-uri", "lamp"], "there is no scheme in the URI `lamp`"),
                (authority + ["--anyone"], "--authority and --anyone exclude each other"),
                (certificate, "whom to accept is missing: --authority FILE for TLS, --peer KEY"),
                (["--protocol", "TLS1.3"] + key, "TLS1.3 needs --certificate FILE and --key FILE"),
                (
                    certificate + key + ["--protocol", "Noise_XX_25519_ChaChaPoly_SHA256"],
                    "--certificate goes with --protocol TLS1.3"
                ),
                (
                    certificate + key + ["--protocol", "TLS1.3", "--identity", "f"],
                    "--identity goes with a --protocol of Noise"
                ),
                (
                    authority + [
                        "--protocol", "TLS1.3", "--protocol", "Noise_XX_25519_ChaChaPoly_SHA256",
                    ],
                    "--authority FILE for TLS, --peer KEY"
                ),
                (
                    authority + ["--protocol", "TLS1.2"],
                    "--certificate goes with --protocol TLS1.3"
                ),
            ]
            for (arguments, reason) in cases {
                for command in ["listen", "connect"] {
                    Tool.expect(
                        try Tool.run(arguments: [command, pair.endpoint] + arguments), status: 64,
                        reason)
                }
            }
        }

        @Test("each bad file is an error with its own reason, before the tool dials")
        func badFiles() throws {
            func run(_ change: (inout [String]) -> Void) throws -> Subprocess.Outcome {
                var options = pair.certificate(CertifiedPair.own)
                change(&options)
                return try Tool.run(arguments: ["connect", pair.endpoint] + options)
            }
            let text = folder.write("text", "hello\n")
            let shared = folder.write("shared", try #require(folder.read("own.key")), mode: 0o644)
            let locked = folder.file("locked")
            let locking = try Subprocess.run(
                "openssl",
                [
                    "pkcs8", "-topk8", "-in", folder.file("own.key"), "-passout", "pass:x", "-out",
                    locked,
                ])
            try #require(locking.status == 0, "\(locking.errors)")
            try #require(unsafe chmod(locked, 0o600) == 0)
            let cases: [(Int, String, Int32, String)] = [
                (1, folder.file("none"), 66, "none: no such file"),
                (1, text, 65, "text holds no certificate"),
                (1, folder.path, 65, "is a directory"),
                (1, folder.file("other.pem"), 65, "does not belong to the private key"),
                (3, folder.file("none"), 66, "none: no such file"),
                (3, text, 65, "text is not a PEM file"),
                (3, shared, 65, "run `chmod 600 \(shared)`"),
                (3, locked, 65, "is encrypted: give its passphrase with --passphrase-file"),
                (5, folder.file("none"), 66, "none: no such file"),
                (5, text, 65, "text holds no certificate"),
                (5, folder.file("other.pem"), 65, "no authority's"),
                (7, folder.file("none"), 66, "none: no such file"),
                (7, text, 65, "text, line 1: neither a revocation list"),
                (7, folder.file("elsewhere/ca.crl"), 65, "none of the authorities has signed"),
            ]
            for (place, path, status, reason) in cases {
                Tool.expect(try run { $0[place] = path }, status: status, reason)
            }
            let passphrase = folder.write("passphrase", "x\n")
            let outcome = try run {
                $0[3] = locked
                $0 += ["--passphrase-file", passphrase]
            }
            // Now the key can be read, and no listener exists.
            #expect(outcome.errors.contains("socket"), "\(outcome.errors)")
            #expect(outcome.status == 68)
        }
    }
}
