import BLESecChannelCore
import BLESecCredentials
import TestSupport
import Testing

@testable import BLESecTLSEngine

@Suite("TLS contexts")
struct ContextTests {
    let authority: TestAuthority

    init() throws { authority = try TestAuthority() }

    @Test("a group's name in OpenSSL is supported; a list of groups or an unknown name is not")
    func groups() throws {
        for name in ["X25519", "P-256", "P-384", "X448"] {
            #expect(TLSContext.supports(group: name))
        }
        // OpenSSL 3.5 reads the last seven of these names as lists. Such a list has one group, no
        // group or several groups.
        for name in [
            "", "X25519:P-256", "X25518", "P-256 ", "X25519/P-256", "?X25519", "?nonsense",
            "*X25519", "-X25519", "DEFAULT", "Default",
        ] {
            #expect(!TLSContext.supports(group: name), "\(name)")
        }
    }

    @Test("a group that OpenSSL lacks, or an empty list of groups, is refused when configured")
    func unknownGroups() throws {
        try authority.issueDevice("one")
        for groups in [["X25519", "nonsense"], []] {
            var options = TLSOptions()
            options.groups = groups
            #expect(throws: ChannelError(.configuration, "")) {
                _ = try TLSContext(identity: authority.identity("one"), options: options)
            }
        }
    }

    @Test(
        "the two sides find a common group, even if it is not the dialer's first",
        arguments: [
            (["X25519"], ["P-256", "X25519"]), (["X25519", "P-256"], ["P-256"]),
            (["P-384"], ["P-384"]), (["X25519MLKEM768", "X25519"], ["X25519MLKEM768"]),
        ])
    func negotiatedGroups(dialer: [String], acceptor: [String]) throws {
        // An older OpenSSL has no post-quantum groups; then `supports` must return false.
        guard (dialer + acceptor).allSatisfy(TLSContext.supports) else {
            #expect(!TLSContext.supports(group: "X25519MLKEM768"))
            return
        }
        var (dialerOptions, acceptorOptions) = (TLSOptions(), TLSOptions())
        (dialerOptions.groups, acceptorOptions.groups) = (dialer, acceptor)
        var pair = try EnginePair(
            authority.context("dialer", options: dialerOptions),
            authority.context("acceptor", options: acceptorOptions))
        try pair.shakeHands()
        #expect(pair.dialer.established != nil && pair.acceptor.established != nil)
    }

    @Test(
        "a key of each algorithm authenticates a dialer and an acceptor",
        arguments: [
            ["ed25519"], ["ed448"], ["rsa:2048"], ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
            ["ec", "-pkeyopt", "ec_paramgen_curve:P-384"],
            ["ec", "-pkeyopt", "ec_paramgen_curve:P-521"],
        ])
    func keys(newKey: [String]) throws {
        try authority.issueDevice("one", newKey: newKey)
        let tested = try TLSContext(
            identity: authority.identity("one"), authorities: authority.authorities())
        let peer = try authority.context("peer")
        for (dialer, acceptor) in [(tested, peer), (peer, tested)] {
            var pair = try EnginePair(dialer, acceptor)
            try pair.shakeHands()
            #expect(pair.dialer.established != nil && pair.acceptor.established != nil)
        }
    }

    @Test("a certificate that an intermediate issued is accepted only with the intermediate")
    func intermediates() throws {
        let middle = try TestAuthority("middle", under: authority)
        try middle.issueDevice("tested")
        let peer = try authority.context("peer")
        for chain in ["middle", nil] {
            let tested = try TLSContext(
                identity: authority.identity("tested", chain: chain),
                authorities: authority.authorities())
            for (dialer, acceptor) in [(tested, peer), (peer, tested)] {
                var pair = try EnginePair(dialer, acceptor)
                try? pair.shakeHands()
                let isAccepted = pair.dialer.established != nil && pair.acceptor.established != nil
                #expect(isAccepted == (chain != nil))
            }
        }
    }

    @Test("a certificate is valid from the first to the last second of its validity, inclusive")
    func validityEnds() throws {
        try authority.issueDevice("one")
        let validity = try #require(authority.identity("one").certificate.validity)
        for now in [validity.lowerBound, validity.upperBound] {
            _ = try authority.identity("one", at: now)
        }
        for now in [validity.lowerBound - 1, validity.upperBound + 1] {
            #expect(throws: ChannelError(.badKey, "")) {
                _ = try authority.identity("one", at: now)
            }
        }
    }

    @Test("no engine is made with a certificate that is only for the other role")
    func role() throws {
        for (usage, role) in [("serverAuth", ChannelRole.dialer), ("clientAuth", .acceptor)] {
            try authority.issue("one", TestAuthority.deviceExtensions("one", usage: usage))
            let context = try TLSContext(identity: authority.identity("one"))
            #expect(throws: ChannelError(.configuration, "")) {
                _ = try TLSEngine(context, role: role, isNegotiated: true)
            }
            _ = try TLSEngine(context, role: role.peer, isNegotiated: true)
        }
    }

    @Test("a revocation list without authorities would have no effect, and is refused")
    func listWithoutAuthorities() throws {
        try authority.issueDevice("one")
        let list = try RevocationList(
            lists: [authority.revocationList(["one"])], authorities: authority.authorities())
        let error = #expect(throws: ChannelError(.configuration, "")) {
            _ = try TLSContext(identity: authority.identity("one"), revoked: list)
        }
        #expect(error?.reason.contains("deny list") == true)
        _ = try TLSContext(
            identity: authority.identity("one"), authorities: authority.authorities(),
            revoked: list)
    }

    @Test("an intermediate's revocation list is refused without the intermediate's certificate")
    func listOfIntermediate() throws {
        let middle = try TestAuthority("middle", under: authority)
        try middle.issueDevice("one")
        let list = try middle.revocationList(["one"])
        let error = #expect(throws: ChannelError(.badKey, "")) {
            _ = try RevocationList(lists: [list], authorities: authority.authorities())
        }
        #expect(error?.reason.contains("its certificate to those of the authorities") == true)
        let both = try ["ca.pem", "middle.pem"].flatMap { try #require(authority.folder.read($0)) }
        let authorities = try CertificateFile.authorities(authority.folder.write("both.pem", both))
        _ = try RevocationList(lists: [list], authorities: authorities)
    }

    @Test(
        "a chain of the greatest length is accepted, and a chain one byte longer is not loaded"
    )
    func longestChain() throws {
        try authority.issueDevice("one")
        let peer = try authority.context("peer")
        /// The identity with an intermediate that has `padding` bytes of padding.
        func identity(padding: Int) throws -> TLSIdentity {
            try authority.issue(
                "pad",
                TestAuthority.authorityExtensions("CA:TRUE")
                    + "nsComment=\(String(repeating: "x", count: padding))\n")
            return try authority.identity("one", chain: "pad")
        }
        func length(_ identity: TLSIdentity) -> Int {
            TLSContext.chainLength(of: [identity.certificate] + identity.intermediates)
        }
        let room = try 4_096 - length(identity(padding: 2_000))
        let longest = try identity(padding: 2_000 + room)
        #expect(length(longest) == 4_096)
        let tested = try TLSContext(identity: longest, authorities: authority.authorities())
        for (dialer, acceptor) in [(tested, peer), (peer, tested)] {
            var pair = try EnginePair(dialer, acceptor)
            try pair.shakeHands()
            #expect(pair.dialer.established != nil && pair.acceptor.established != nil)
        }
        for excess in [1, 70_000] {
            let error = #expect(throws: ChannelError(.badKey, "")) {
                _ = try identity(padding: 2_000 + room + excess)
            }
            // The much longer certificate also has longer length fields, so the length in its
            // error is not `4_096 + excess`.
            if excess == 1 { #expect(error?.reason.contains("of 4097 bytes") == true) }
            #expect(error?.reason.contains("peers accept at most 4096") == true)
        }
    }

    @Test("eight certificates are accepted, and an identity with nine is not loaded")
    func mostCertificates() throws {
        try authority.issueDevice("one")
        try authority.issue("next", TestAuthority.authorityExtensions("CA:TRUE"))
        let intermediate = try #require(authority.folder.read("next.pem"))
        func identity(_ count: Int) throws -> TLSIdentity {
            let intermediates = Array(repeating: intermediate, count: count - 1)
            _ = authority.folder.write("chain.pem", intermediates.flatMap(\.self))
            return try authority.identity("one", chain: "chain")
        }
        let peer = try authority.context("peer")
        let tested = try TLSContext(identity: identity(8), authorities: authority.authorities())
        for (dialer, acceptor) in [(tested, peer), (peer, tested)] {
            var pair = try EnginePair(dialer, acceptor)
            try pair.shakeHands()
            #expect(pair.dialer.established != nil && pair.acceptor.established != nil)
        }
        let error = #expect(throws: ChannelError(.badKey, "")) { _ = try identity(9) }
        #expect(error?.reason.contains("holds 9 certificates") == true)
    }

    @Test("the certificates in a Certificate message are counted, if all its lengths fit")
    func certificateCount() {
        func message(_ list: [UInt8], context: [UInt8] = [0]) -> [UInt8] {
            let body = context + [0, 0, UInt8(list.count)] + list
            return [0x0B, 0, 0, UInt8(body.count)] + body
        }
        let entry: [UInt8] = [0, 0, 2, 0x30, 0x00, 0, 1, 0xFF]
        for count in [0, 1, 2, 9] {
            let list = Array(repeating: entry, count: count).flatMap(\.self)
            #expect(CertificateMessage.certificateCount(in: message(list)) == count)
            #expect(
                CertificateMessage.certificateCount(in: message(list, context: [1, 7])) == count)
            #expect(CertificateMessage.certificateCount(in: message(list) + [0]) == nil)
        }
        let whole = message(entry + entry)
        for count in whole.indices {
            #expect(CertificateMessage.certificateCount(in: Array(whole.prefix(count))) == nil)
        }
        for count in entry.indices.dropFirst() {
            let part = Array(entry.prefix(count))
            #expect(CertificateMessage.certificateCount(in: message(entry + part)) == nil)
        }
    }

    @Test("a key of each algorithm is accepted in one encoding only")
    func canonicalKeys() throws {
        let p256 = try freshKey(["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"])
        let rsa = try freshKey(["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"])
        for info in [
            p256, rsa, try freshKey(["-algorithm", "ed25519"]),
            try freshKey(["-algorithm", "ed448"]),
            try freshKey(["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"]),
            try freshKey(["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-521"]),
        ] {
            #expect(CanonicalKey.matches(info))
            #expect(!CanonicalKey.matches(info + [0]))
            #expect(!CanonicalKey.matches(Array(info.dropLast())))
        }
        // The RSA key without the NULL in its algorithm: RFC 3279 §2.3.1 requires the NULL, and
        // some software omits it. The bytes 3 and 5 are the lengths of the sequences around it.
        let nullIndex = try #require(
            rsa.indices.first { rsa[$0...].starts(with: [0x05, 0x00, 0x03]) })
        var rsaWithoutNull = rsa
        rsaWithoutNull.removeSubrange(nullIndex..<nullIndex + 2)
        rsaWithoutNull[3] -= 2
        rsaWithoutNull[5] -= 2
        #expect(rsaWithoutNull.count == rsa.count - 2)
        #expect(!CanonicalKey.matches(rsaWithoutNull))
        // Keys of these algorithms are not accepted in any encoding.
        #expect(!CanonicalKey.matches(try freshKey(["-algorithm", "x25519"])))
        #expect(!CanonicalKey.matches(try freshKey(["-algorithm", "RSA-PSS"])))
        #expect(!CanonicalKey.matches([]))
    }

    @Test("EC keys in other encodings are found in a Certificate message, and no other keys")
    func refusedECKeys() throws {
        let p256 = ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"]
        let accepted =
            try freshKey(p256) + freshKey(["-algorithm", "ed25519"])
            + freshKey(["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"])
            + freshKey(["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-521"])
            + freshKey(["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"])
        #expect(CanonicalKey.offsetsOfRefusedECKeys(in: accepted).isEmpty)
        // In a P-256 key, the object identifier of the algorithm is at the offsets 6 to 12. The
        // point begins at 26 with the byte for its form.
        var compressed = try freshKey(p256)
        compressed[26] = 0x02
        let otherCurve = try freshKey(["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-224"])
        let explicit = try freshKey(p256 + ["-pkeyopt", "ec_param_enc:explicit"])
        let sm2: [UInt8] = [0x06, 0x08, 0x2A, 0x81, 0x1C, 0xCF, 0x55, 0x01, 0x82, 0x2D]
        // A refused key is reported by the offset of the last byte of that identifier.
        for (key, lastOffset) in [(compressed, 12), (otherCurve, 12), (sm2, 9)] {
            let message = accepted + key + accepted
            let found = CanonicalKey.offsetsOfRefusedECKeys(in: message)
            #expect(found == [accepted.count + lastOffset])
        }
        let found = CanonicalKey.offsetsOfRefusedECKeys(in: explicit)
        try #require(found.count == 1)
        #expect(explicit[found[0] - 6...found[0]].elementsEqual(compressed[6...12]))
        // A message that ends within an algorithm has no such key.
        #expect(CanonicalKey.offsetsOfRefusedECKeys(in: Array(compressed.prefix(12))).isEmpty)
    }

    /// Returns the reason for which an authority with this key is not accepted; nil if it is
    /// accepted. A peer's key, and this side's, are checked by the same rule.
    private func refusal(of publicKey: [UInt8]) throws -> String? {
        try authority.issue(
            "tested", TestAuthority.authorityExtensions("CA:TRUE"), publicKey: publicKey)
        do throws(ChannelError) {
            _ = try CertificateFile.authorities(authority.folder.file("tested.pem"))
            return nil
        } catch {
            return error.reason
        }
    }

    @Test("a key of each algorithm is accepted, and so is RSA with the exponent 3")
    func ordinaryKeys() throws {
        for options in [
            ["-algorithm", "ed25519"], ["-algorithm", "ed448"],
            ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
            ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"],
            ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-521"],
            ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
            Self.rsaWithExponent3,
        ] {
            #expect(try refusal(of: freshKey(options)) == nil, "\(options)")
        }
    }

    private static let rsaWithExponent3 = [
        "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-pkeyopt", "rsa_keygen_pubexp:3",
    ]

    @Test("an RSA key is refused if its exponent is 1 or even, or its modulus is even")
    func invalidRSAKeys() throws {
        // The last three bytes are the exponent, and the modulus is before them.
        let rsa = try freshKey(Self.rsaWithExponent3)
        #expect(rsa.suffix(3) == [0x02, 0x01, 0x03])
        let evenModulus = [rsa[rsa.count - 4] & 0xFE, 0x02, 0x01, 0x03]
        let endings: [[UInt8]] = [[1], [2], [4], evenModulus]
        for ending in endings {
            let key = Array(rsa.dropLast(ending.count)) + ending
            let reason = try #require(try refusal(of: key))
            #expect(reason.contains("whose key is too weak"), "\(reason)")
        }
    }

    @Test("an Ed25519 or Ed448 key of small order is refused: anyone can make its signatures")
    func smallOrder() throws {
        func bytes(_ runs: (byte: UInt8, count: Int)...) -> [UInt8] {
            runs.flatMap { [UInt8](repeating: $0.byte, count: $0.count) }
        }
        // The coordinates y: 0, 1, -1, and the prime plus 0 and 1, which are not canonical.
        var ed25519 = [
            bytes((0, 32)), bytes((1, 1), (0, 31)), bytes((0xEC, 1), (0xFF, 30), (0x7F, 1)),
            bytes((0xED, 1), (0xFF, 30), (0x7F, 1)), bytes((0xEE, 1), (0xFF, 30), (0x7F, 1)),
        ]
        let ed448 = [
            bytes((0, 57)), bytes((1, 1), (0, 56)),
            bytes((0xFE, 1), (0xFF, 27), (0xFE, 1), (0xFF, 27), (0, 1)),
            bytes((0xFF, 28), (0xFE, 1), (0xFF, 27), (0, 1)), bytes((0, 28), (0xFF, 28), (0, 1)),
        ]
        // The two coordinates of the points of order 8.
        ed25519.append([
            0xC7, 0x17, 0x6A, 0x70, 0x3D, 0x4D, 0xD8, 0x4F, 0xBA, 0x3C, 0x0B, 0x76, 0x0D, 0x10,
            0x67, 0x0F, 0x2A, 0x20, 0x53, 0xFA, 0x2C, 0x39, 0xCC, 0xC6, 0x4E, 0xC7, 0xFD, 0x77,
            0x92, 0xAC, 0x03, 0x7A,
        ])
        ed25519.append([
            0x26, 0xE8, 0x95, 0x8F, 0xC2, 0xB2, 0x27, 0xB0, 0x45, 0xC3, 0xF4, 0x89, 0xF2, 0xEF,
            0x98, 0xF0, 0xD5, 0xDF, 0xAC, 0x05, 0xD3, 0xC6, 0x33, 0x39, 0xB1, 0x38, 0x02, 0x88,
            0x6D, 0x53, 0xFC, 0x05,
        ])
        let ed25519Head: [UInt8] = [
            0x30, 0x2A, 0x30, 0x05, 0x06, 0x03, 0x2B, 0x65, 0x70, 0x03, 0x21, 0x00,
        ]
        let ed448Head: [UInt8] = [
            0x30, 0x43, 0x30, 0x05, 0x06, 0x03, 0x2B, 0x65, 0x71, 0x03, 0x3A, 0x00,
        ]
        let keys = ed25519.map { ed25519Head + $0 } + ed448.map { ed448Head + $0 }
        for key in keys {
            // The highest bit is the sign of the coordinate x.
            var negative = key
            negative[key.count - 1] |= 0x80
            for key in [key, negative] {
                let reason = try #require(try refusal(of: key), "\(key)")
                #expect(reason.contains("whose key is too weak"), "\(reason)")
            }
        }
    }

    /// The SubjectPublicKeyInfo of a new key, made with these options of `openssl genpkey`.
    private func freshKey(_ options: [String]) throws -> [UInt8] {
        let key = authority.folder.file("fresh.key")
        try authority.run(["genpkey", "-out", key] + options)
        let info = authority.folder.file("fresh.spki")
        try authority.run(["pkey", "-in", key, "-pubout", "-outform", "DER", "-out", info])
        return try #require(authority.folder.read("fresh.spki"))
    }
}
