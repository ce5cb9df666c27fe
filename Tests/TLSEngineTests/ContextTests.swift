import BLESecChannelCore
import BLESecCredentials
import TestSupport
import Testing

@testable import BLESecTLSEngine

@Suite("TLS contexts")
struct ContextTests {
    let authority: TestAuthority

    init() throws { authority = try TestAuthority() }

    @Test("a group is known by OpenSSL's name, and a list of groups is not a name")
    func groups() throws {
        for name in ["X25519", "P-256", "P-384", "X448"] {
            #expect(TLSContext.supports(group: name))
        }
        for name in ["", "X25519:P-256", "X25518", "P-256 ", "X25519/P-256", "?X25519"] {
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
        // An older OpenSSL has no post-quantum groups, and reports that.
        guard (dialer + acceptor).allSatisfy(TLSContext.supports) else {
            #expect(!TLSContext.supports(group: "X25519MLKEM768"))
            return
        }
        var (ours, theirs) = (TLSOptions(), TLSOptions())
        (ours.groups, theirs.groups) = (dialer, acceptor)
        var pair = try EnginePair(
            authority.device("dialer", options: ours),
            authority.device("acceptor", options: theirs))
        try pair.shakeHands()
        #expect(pair.dialer.established != nil && pair.acceptor.established != nil)
    }

    @Test(
        "keys of every algorithm authenticate both sides",
        arguments: [
            ["ed25519"], ["ed448"], ["rsa:2048"], ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
            ["ec", "-pkeyopt", "ec_paramgen_curve:P-384"],
            ["ec", "-pkeyopt", "ec_paramgen_curve:P-521"],
        ])
    func keys(newKey: [String]) throws {
        try authority.issueDevice("one", newKey: newKey)
        let one = try TLSContext(
            identity: authority.identity("one"), authorities: authority.authorities())
        let other = try authority.device("other")
        for (dialer, acceptor) in [(one, other), (other, one)] {
            var pair = try EnginePair(dialer, acceptor)
            try pair.shakeHands()
            #expect(pair.dialer.established != nil && pair.acceptor.established != nil)
        }
    }

    @Test("intermediates are sent if they are configured, and only then")
    func intermediates() throws {
        let middle = try TestAuthority("middle", under: authority)
        try middle.issueDevice("far")
        let near = try authority.device("near")
        for chain in ["middle", nil] {
            let far = try TLSContext(
                identity: authority.identity("far", chain: chain),
                authorities: authority.authorities())
            for (dialer, acceptor) in [(far, near), (near, far)] {
                var pair = try EnginePair(dialer, acceptor)
                try? pair.shakeHands()
                let isAccepted = pair.dialer.established != nil && pair.acceptor.established != nil
                #expect(isAccepted == (chain != nil))
            }
        }
    }

    @Test("a certificate that is valid only for the other role is not sent")
    func role() throws {
        for (usage, role) in [("serverAuth", ChannelRole.dialer), ("clientAuth", .acceptor)] {
            try authority.issue("one", TestAuthority.device("one", usage: usage))
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

    @Test("a list is refused if an intermediate has signed it whose certificate is not known")
    func listOfIntermediate() throws {
        let middle = try TestAuthority("middle", under: authority)
        try middle.issueDevice("one")
        let list = try middle.revocationList(["one"])
        let error = #expect(throws: ChannelError(.badKey, "")) {
            _ = try RevocationList(lists: [list], authorities: authority.authorities())
        }
        #expect(error?.reason.contains("its certificate beside the authority's") == true)
        let both = try ["ca.pem", "middle.pem"].flatMap { try #require(authority.folder.read($0)) }
        let authorities = try CertificateFile.authorities(authority.folder.write("both.pem", both))
        _ = try RevocationList(lists: [list], authorities: authorities)
    }

    @Test(
        "a chain of the greatest length is accepted, and one byte more is refused when loaded"
    )
    func longestChain() throws {
        try authority.issueDevice("one")
        let near = try authority.device("near")
        /// The identity with an intermediate that has `padding` bytes of padding.
        func identity(padding: Int) throws -> TLSIdentity {
            try authority.issue(
                "pad",
                TestAuthority.authority("CA:TRUE")
                    + "nsComment=\(String(repeating: "x", count: padding))\n")
            return try authority.identity("one", chain: "pad")
        }
        let chain = try identity(padding: 10_000)
        let room = 16_384 - TLSContext.chainLength(of: [chain.certificate] + chain.intermediates)
        let far = try TLSContext(
            identity: identity(padding: 10_000 + room), authorities: authority.authorities())
        for (dialer, acceptor) in [(far, near), (near, far)] {
            var pair = try EnginePair(dialer, acceptor)
            try pair.shakeHands()
            #expect(pair.dialer.established != nil && pair.acceptor.established != nil)
        }
        for more in [1, 60_000] {
            let error = #expect(throws: ChannelError(.badKey, "")) {
                _ = try identity(padding: 10_000 + room + more)
            }
            #expect(error?.reason.contains("peers accept at most 16384") == true)
        }
    }

    @Test("a key of each algorithm is accepted in one encoding only")
    func canonicalKeys() throws {
        let p256 = try info(["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"])
        let rsa = try info(["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"])
        for info in [
            p256, rsa, try info(["-algorithm", "ed25519"]), try info(["-algorithm", "ed448"]),
            try info(["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"]),
            try info(["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-521"]),
        ] {
            #expect(CanonicalKey.matches(info))
            #expect(!CanonicalKey.matches(info + [0]))
            #expect(!CanonicalKey.matches(Array(info.dropLast())))
        }
        // RSA without its NULL, which some software omits (RFC 3279 §2.3.1 requires the NULL).
        let null = try #require(rsa.indices.first { rsa[$0...].starts(with: [0x05, 0x00, 0x03]) })
        var bare = rsa
        bare.removeSubrange(null..<null + 2)
        bare[3] -= 2
        bare[5] -= 2
        #expect(bare.count == rsa.count - 2 && !CanonicalKey.matches(bare))
        // Keys of these algorithms are not accepted in any encoding.
        #expect(!CanonicalKey.matches(try info(["-algorithm", "x25519"])))
        #expect(!CanonicalKey.matches(try info(["-algorithm", "RSA-PSS"])))
        #expect(!CanonicalKey.matches([]))
    }

    /// The SubjectPublicKeyInfo of a fresh key.
    private func info(_ options: [String]) throws -> [UInt8] {
        let key = authority.folder.file("fresh.key")
        try authority.run(["genpkey", "-out", key] + options)
        let info = authority.folder.file("fresh.spki")
        try authority.run(["pkey", "-in", key, "-pubout", "-outform", "DER", "-out", info])
        return try #require(authority.folder.read("fresh.spki"))
    }
}
