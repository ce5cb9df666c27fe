import BLESecChannelCore
import BLESecNoise
import BLESecNoiseEngine
import BLESecPrimitives
import FoundationEssentials
import Testing

/// Whether a side may use a pattern depends on who can see the side's static key in this pattern.
@Suite struct ExposureTests {
    @Test(
        "a dialer needs an opt-in for exactly the patterns that docs/noise.md marks",
        arguments: HandshakePattern.all.filter { !$0.isOneWay })
    func dialer(_ pattern: HandshakePattern) throws {
        let page = try String(
            contentsOf: URL(
                filePath: #filePath.replacing(
                    "Tests/NoiseEngineTests/ExposureTests.swift", with: "docs/noise.md")),
            encoding: .utf8)
        let row = try #require(
            page.split(separator: "\n").first { $0.hasPrefix("| `\(pattern.name)` |") })
        let needsOptIn = row.contains("| yes |")
        #expect(try isAccepted(pattern, .dialer, allowsExposedIdentity: true))
        #expect(try isAccepted(pattern, .dialer, allowsExposedIdentity: false) == !needsOptIn)
        #expect(try isAccepted(pattern, .acceptor, allowsExposedIdentity: false))
    }

    @Test("a psk before the dialer's static key removes the need for an opt-in")
    func psk() throws {
        for name in ["IX", "XN", "I1K1"] {
            let pattern = try #require(HandshakePattern.named(name)).applying(.psk(0))
            #expect(try isAccepted(pattern, .dialer, allowsExposedIdentity: false), "\(name)")
        }
    }

    /// Whether a plan with `pattern` is accepted. If the plan is refused, expects an error which
    /// says that the pattern shows this side's key.
    private func isAccepted(
        _ pattern: HandshakePattern, _ role: ChannelRole, allowsExposedIdentity: Bool
    ) throws -> Bool {
        let ownKey = try IdentityKey.generate()
        let peerKey = try PeerKey(publicKey: IdentityKey.generate().publicKey, curve: .x25519)
        let peerRole: Role = role == .dialer ? .responder : .initiator
        do {
            _ = try NoisePlan(
                ProtocolName(pattern: pattern).description, role: role, identity: ownKey,
                trust: pattern.authenticates(peerRole) ? .pinned([peerKey]) : .anyone,
                presharedKeys: [PreSharedKey(SecretBytes(count: 32))],
                allowsExposedIdentity: allowsExposedIdentity)
            return true
        } catch let error as ChannelError {
            #expect(error.code == .configuration)
            #expect("\(error)".contains("shows this side's key"))
            return false
        }
    }
}
