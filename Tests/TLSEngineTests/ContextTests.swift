import ChannelCore
import TLSEngine
import TestSupport
import Testing

@Suite("What TLS is spoken with")
struct ContextTests {
    let authority: TestAuthority

    init() throws { authority = try TestAuthority() }

    @Test("groups are known by OpenSSL's names, and no list of them is a name")
    func groups() throws {
        for name in ["X25519", "P-256", "P-384", "X448"] {
            #expect(TLSContext.supports(group: name))
        }
        for name in ["", "X25519:P-256", "X25518", "P-256 ", "X25519/P-256", "?X25519"] {
            #expect(!TLSContext.supports(group: name), "\(name)")
        }
    }

    @Test("a group that OpenSSL lacks, or none at all, is refused when it is configured")
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
        "the two sides find a group that both have, even if the dialer's first is not it",
        arguments: [
            (["X25519"], ["P-256", "X25519"]), (["X25519", "P-256"], ["P-256"]),
            (["P-384"], ["P-384"]), (["X25519MLKEM768", "X25519"], ["X25519MLKEM768"]),
        ])
    func negotiatedGroups(dialer: [String], acceptor: [String]) throws {
        // An older OpenSSL has no groups that resist quantum computers, and says so.
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
        "keys of every kind prove their owner on both sides",
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

    @Test("intermediates are sent where they are configured, and only there")
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

    @Test("a certificate that is for the other role alone is not shown in this one")
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
}
