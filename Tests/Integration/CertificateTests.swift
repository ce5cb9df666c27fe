import Glibc
import TestSupport
import Testing

extension Integration {
    /// The tool on both sides, with certificates from `blesec ca`.
    @Suite struct CertificateTests {
        let pair: CertifiedPair

        init() throws { pair = try CertifiedPair() }

        private var folder: ScratchFolder { pair.folder }

        @Test("with certificate options both tools use TLS, and a megabyte arrives each way")
        func transfer() throws {
            let dialerBytes = ToolPair.pseudoRandomBytes(1_000_000, seed: 41)
            let listenerBytes = ToolPair.pseudoRandomBytes(1_000_007, seed: 42)
            let listener = try pair.listen([], input: .bytes(listenerBytes))
            let dialer = try pair.connect(input: .bytes(dialerBytes))
            let outcomes = try Subprocess.wait([listener, dialer])
            #expect(outcomes.map(\.status) == [0, 0], "\(outcomes.map(\.errors))")
            #expect(outcomes[0].output == dialerBytes)
            #expect(outcomes[1].output == listenerBytes)
            for (outcome, peer) in zip(outcomes, [CertifiedPair.phone, CertifiedPair.lamp]) {
                #expect(
                    outcome.errors.hasSuffix(
                        "channel ready: TLS1.3 with \(pair.fingerprint(of: peer)), "
                            + "blesec://devices/\(peer)\n"))
            }
        }

        @Test("a connection with --persist also reports the peer's URI, as text and as JSON")
        func persistentURI() throws {
            let listener = try pair.listen(["--persist"])
            let dialer = try pair.connect(["--persist", "--json"])
            let outcomes = try Subprocess.wait([listener, dialer])
            #expect(outcomes.map(\.status) == [0, 0], "\(outcomes.map(\.errors))")
            #expect(
                outcomes[0].errors.contains(
                    "with \(pair.fingerprint(of: CertifiedPair.phone)), blesec://devices/phone\n"))
            #expect(
                outcomes[1].errors.contains(
                    "\"peer\": \"\(pair.fingerprint(of: CertifiedPair.lamp))\", "
                        + "\"uri\": \"blesec://devices/lamp\""))
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
                    "peer": "\(pair.fingerprint(of: CertifiedPair.lamp))", \
                    "uri": "blesec://devices/lamp"}

                    """))
        }

        /// Runs a dialer against a listener with these options, and returns the dialer's exit
        /// status and both sides' standard error.
        private func meet(
            dialerOptions: [String] = [], listenerOptions: [String] = []
        ) throws -> (status: Int32, dialerErrors: String, listenerErrors: String) {
            let listener = try pair.listen(listenerOptions)
            let dialer = try pair.connect(dialerOptions)
            let dialerOutcome = try dialer.wait(whileServing: [listener])
            if dialerOutcome.status != 0 {
                _ = try listener.line("blesec: no channel")
                listener.signal(SIGTERM)
            }
            let listenerOutcome = try listener.wait()
            return (dialerOutcome.status, dialerOutcome.errors, listenerOutcome.errors)
        }

        @Test("a listener accepts the peers that its options name by URI or by key, and no others")
        func named() throws {
            let uri = ["--peer-uri", "blesec://devices/phone"]
            let key = ["--peer", pair.fingerprint(of: CertifiedPair.phone)]
            let wrongURI = ["--peer-uri", "blesec://devices/nobody"]
            let wrongKey = ["--peer", pair.fingerprint(of: CertifiedPair.lamp)]
            for options in [
                uri, key, uri + key, wrongURI + key, wrongKey + uri, wrongURI + uri,
            ] {
                let outcome = try meet(listenerOptions: options)
                #expect(outcome.status == 0, "\(options): \(outcome)")
            }
            for options in [wrongURI, wrongKey, wrongURI + wrongKey] {
                let outcome = try meet(listenerOptions: options)
                #expect(outcome.status == 69, "\(options): \(outcome)")
                #expect(outcome.listenerErrors.contains("expected"), "\(outcome)")
            }
        }

        @Test("a known name does not override --peer-uri, in connect and in send")
        func knownName() throws {
            let folder = pair.folder
            try #require(unsafe mkdir(folder.file("state"), 0o700) == 0)
            folder.write("state/known_peers", "lamp \(pair.fingerprint(of: CertifiedPair.lamp))\n")
            folder.write("state/last_addresses", "")
            folder.write("file", "secret")
            let name = ["--remember", "lamp", "--state", folder.file("state"), "--timeout", "10"]
            let wrong = name + ["--peer-uri", "blesec://devices/nobody"]
            let connect = try meet(dialerOptions: wrong)
            #expect(connect.status == 77, "\(connect)")
            #expect(connect.dialerErrors.contains("and not expected"), "\(connect)")
            let right = try meet(dialerOptions: name + ["--peer-uri", "blesec://devices/lamp"])
            #expect(right.status == 0, "\(right)")
            try #require(unsafe mkdir(folder.file("inbox"), 0o700) == 0)
            let receiver = try Tool.start(
                ["receive", pair.endpoint, folder.file("inbox"), "--listen"]
                    + pair.credentials(CertifiedPair.lamp) + ["--accept", "always"])
            _ = try receiver.line("listening on ")
            let sender = try Tool.start(
                ["send", pair.endpoint, folder.file("file")]
                    + pair.credentials(CertifiedPair.phone) + wrong
            ).wait(whileServing: [receiver])
            #expect(sender.status != 0 && sender.errors.contains("and not expected"))
            #expect(folder.read("inbox/file") == nil)
            receiver.signal(SIGTERM)
            _ = try receiver.wait()
        }

        @Test("a dialer refuses a listener whose URI it does not expect, and exits with 77")
        func unexpected() throws {
            let outcome = try meet(dialerOptions: ["--peer-uri", "blesec://devices/nobody"])
            #expect(outcome.status == 77)
            #expect(
                outcome.dialerErrors.contains(
                    "the peer is blesec://devices/lamp, which is not among the expected ones"))
        }

        @Test("peers that pin each other's keys need no common authority")
        func pinned() throws {
            // The first four words of `credentials` are the certificate and its key.
            func options(of name: String, pinning peer: String) -> [String] {
                Array(pair.credentials(name).prefix(4)) + ["--peer", pair.fingerprint(of: peer)]
            }
            let listener = try Tool.start(
                ["listen", pair.endpoint]
                    + options(of: CertifiedPair.lamp, pinning: "stranger"))
            _ = try listener.line("listening on ")
            let dialer = try Tool.start(
                ["connect", pair.endpoint]
                    + options(of: "stranger", pinning: CertifiedPair.lamp))
            let outcomes = try Subprocess.wait([listener, dialer])
            #expect(outcomes.map(\.status) == [0, 0], "\(outcomes.map(\.errors))")
            #expect(!outcomes[0].errors.contains("blesec://"), "no authority has certified a name")
        }

        @Test(
            "a waiting listener refuses a revoked peer, and every peer if its revocation file is empty"
        )
        func revocation() throws {
            let listener = try pair.listen(["--keep"])
            #expect(try pair.connect().wait(whileServing: [listener]).status == 0)
            try pair.revoke(CertifiedPair.phone)
            // The dialer reads the same list, which has the dialer's own certificate, and dials
            // nevertheless: a tool applies the list to its peer's certificate only.
            #expect(try pair.connect().wait(whileServing: [listener]).status == 69)
            #expect(try listener.line("blesec: no channel").contains("is revoked"))
            listener.signal(SIGTERM)
            _ = try listener.wait()
            // The first failure that this new listener reports is the one with the empty file.
            let otherListener = try pair.listen(["--keep"])
            folder.write("ca/ca.crl", "")
            // This dialer gets no `--revoked`, so it does not read the empty file.
            let dialer = try Tool.start(
                ["connect", pair.endpoint]
                    + Array(pair.credentials(CertifiedPair.phone).prefix(6)))
            #expect(try dialer.wait(whileServing: [otherListener]).status == 69)
            let line = try otherListener.line("blesec: no channel")
            #expect(line.contains("ca.crl revokes nothing"), "\(line)")
            otherListener.signal(SIGTERM)
            _ = try otherListener.wait()
        }

        @Test("a listener with both engines serves a Noise peer and a TLS peer at the same time")
        func both() throws {
            let noisePair = try ToolPair()
            let listener = try pair.listen([
                "--keep", "--identity", noisePair.folder.file("listener"), "--peer",
                noisePair.dialerKey, "--peer-uri", "blesec://devices/phone",
            ])
            let noiseDialer = try Tool.start(
                [
                    "connect", pair.endpoint, "--identity", noisePair.folder.file("dialer"),
                    "--peer", noisePair.listenerKey,
                ], input: .keptOpen)
            #expect(
                try noiseDialer.line("channel ready", whileServing: [listener])
                    == noisePair.dialerReadyLine)
            // The Noise peer is still connected.
            let tlsDialer = try pair.connect(input: .keptOpen)
            let ready = try tlsDialer.line("channel ready", whileServing: [listener, noiseDialer])
            #expect(ready.hasPrefix("channel ready: TLS1.3 with "))
            for tool in [noiseDialer, tlsDialer] {
                tool.send(Array("hello ".utf8))
                tool.endInput()
            }
            let outcomes = try [noiseDialer, tlsDialer].map {
                try $0.wait(whileServing: [listener])
            }
            #expect(outcomes.map(\.status) == [0, 0], "\(outcomes.map(\.errors))")
            listener.signal(SIGTERM)
            let outcome = try listener.wait()
            #expect(outcome.output == Array("hello hello ".utf8))
            #expect(outcome.errors.contains("channel complete with \(noisePair.dialerKey)"))
        }

        @Test("a Noise dialer reports that it has no protocol in common with a TLS listener")
        func nothingInCommon() throws {
            let noise = try ToolPair()
            let listener = try pair.listen(["--protocol", "TLS1.3"])
            let dialer = try Tool.start([
                "connect", pair.endpoint, "--identity", noise.folder.file("dialer"), "--anyone",
            ])
            let outcome = try dialer.wait(whileServing: [listener])
            Tool.expect(outcome, status: 69, "protocol")
            listener.signal(SIGTERM)
            #expect(try listener.wait().status == 143)
        }

        @Test("incomplete or contradictory certificate options are a usage error")
        func usage() throws {
            // --certificate, --key, --authority and --revoked, each followed by its file.
            let all = pair.credentials(CertifiedPair.lamp)
            let certificate = Array(all.prefix(4))
            let authority = Array(all.prefix(6))
            let key = ["--peer", pair.fingerprint(of: CertifiedPair.phone)]
            let cases: [([String], String)] = [
                (Array(all[0..<2]) + key, "--certificate goes with --key FILE"),
                (Array(all[2..<4]) + key, "--key goes with --certificate FILE"),
                (Array(all[4..<6]) + key, "--authority goes with --certificate FILE"),
                (certificate + Array(all[6..<8]) + key, "--revoked goes with --authority FILE"),
                (certificate + ["--peer-uri", "a:b"], "--peer-uri goes with --authority FILE"),
                (authority + ["--peer-uri", "lamp"], "there is no scheme in the URI `lamp`"),
                (authority + ["--anyone"], "--authority and --anyone exclude each other"),
                (
                    certificate,
                    "no option says whom to accept: --authority FILE for TLS, --peer KEY"
                ),
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
                var options = pair.credentials(CertifiedPair.lamp)
                change(&options)
                return try Tool.run(arguments: ["connect", pair.endpoint] + options)
            }
            let text = folder.write("text", "hello\n")
            let sharedKey = folder.write(
                "shared", try #require(folder.read("lamp.key")), mode: 0o644)
            let encryptedKey = folder.file("encrypted")
            let encrypting = try Subprocess.run(
                "openssl",
                [
                    "pkcs8", "-topk8", "-in", folder.file("lamp.key"), "-passout", "pass:x", "-out",
                    encryptedKey,
                ])
            try #require(encrypting.status == 0, "\(encrypting.errors)")
            try #require(unsafe chmod(encryptedKey, 0o600) == 0)
            // The index is that of the replaced file in `pair.credentials`: 1 certificate, 3 key,
            // 5 authority, 7 revocation list.
            let cases: [(index: Int, path: String, status: Int32, reason: String)] = [
                (1, folder.file("none"), 66, "none: no such file"),
                (1, text, 65, "text holds no certificate"),
                (1, folder.path, 65, "is a directory"),
                (1, folder.file("phone.pem"), 65, "does not belong to the private key"),
                (3, folder.file("none"), 66, "none: no such file"),
                (3, text, 65, "text is not a PEM file"),
                (3, sharedKey, 65, "run `chmod 600 \(sharedKey)`"),
                (3, encryptedKey, 65, "is encrypted: give its passphrase with --passphrase-file"),
                (5, folder.file("none"), 66, "none: no such file"),
                (5, text, 65, "text holds no certificate"),
                (5, folder.file("phone.pem"), 65, "no authority's"),
                (7, folder.file("none"), 66, "none: no such file"),
                (7, text, 65, "text, line 1: neither a revocation list"),
                (7, folder.file("elsewhere/ca.crl"), 65, "none of the authorities has signed"),
            ]
            for (index, path, status, reason) in cases {
                Tool.expect(try run { $0[index] = path }, status: status, reason)
            }
            let passphrase = folder.write("passphrase", "x\n")
            let outcome = try run {
                $0[3] = encryptedKey
                $0 += ["--passphrase-file", passphrase]
            }
            // The tool can read the key now, so it dials, and finds no listener.
            #expect(outcome.errors.contains("socket"), "\(outcome.errors)")
            #expect(outcome.status == 68)
        }
    }
}
