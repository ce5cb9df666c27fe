import BLESec
import BLESecChannelCore
import BLESecCredentials
import BLESecL2CAP
import BLESecLinks
import BLESecTLSEngine
import TestSupport
import Testing

extension Laboratory {
    /// A Noise peer and a TLS peer of a listener that has both engines.
    @Suite struct BothEnginesTests {
        @Test(
            "a listener serves a Noise peer and a TLS peer alternately, each on a loop of its own")
        func alternate() async throws {
            let fixture = try BothEnginesFixture()
            let channelLoops = (0..<2).map { EventLoop(name: "channels \($0)") }
            try await withLoop { loop in
                var endpoint = try Endpoint(parsing: "l2cap:any")
                endpoint.adapter = "hci1"
                let listener = try await SecureListener.listen(
                    on: endpoint, configuration: fixture.listener, loop: loop,
                    channelLoops: channelLoops)
                var dialed: [SecureChannel] = []
                var accepted: [SecureChannel] = []
                for configuration in [fixture.noiseDialer, fixture.tlsDialer] {
                    var target = listener.localEndpoint
                    target.adapter = "hci0"
                    async let channel = listener.accept()
                    dialed.append(
                        try await SecureChannel.dial(
                            target, configuration: configuration, loop: loop))
                    accepted.append(try await channel)
                }
                for (channel, loop) in zip(accepted, channelLoops) {
                    #expect(channel.loop === loop)
                }
                #expect(await accepted[0].protocolName == ChannelConfiguration.defaultProtocol)
                #expect(await accepted[1].protocolName == TLSContext.protocolName)
                guard case .certificate(_, let uri) = await accepted[1].peer else {
                    throw ChannelError(.untrusted, "no certificate was shown")
                }
                #expect(uri == "blesec://lab/dialer")
                for round in 0..<20 {
                    for (dialerEnd, listenerEnd) in zip(dialed, accepted) {
                        let message = [UInt8](repeating: UInt8(round), count: 1_000 * round)
                        try await dialerEnd.send(message)
                        #expect(try await listenerEnd.receive() == message)
                        try await listenerEnd.send(message)
                        #expect(try await dialerEnd.receive() == message)
                    }
                }
                for (dialerEnd, listenerEnd) in zip(dialed, accepted) {
                    async let closed: Void = listenerEnd.close()
                    try await dialerEnd.close()
                    try await closed
                }
                await listener.close()
            }
            for loop in channelLoops { await loop.shutdown() }
        }
    }
}

/// The configurations of a Noise dialer, of a TLS dialer, and of a listener that has both engines.
private struct BothEnginesFixture: Sendable {
    let listener: ChannelConfiguration
    let noiseDialer: ChannelConfiguration
    let tlsDialer: ChannelConfiguration

    init() throws {
        let folder = ScratchFolder()
        let now = TestAuthority.now
        let authority = try CertificateAuthority.create(
            folder.file("ca"), name: nil, days: 2, passphrase: nil, now: now)
        let authorities = try CertificateFile.authorities(authority.certificatePath)
        func context(_ name: String) throws -> TLSContext {
            _ = try authority.issue(
                SubjectURI("blesec://lab/\(name)"), days: 1, key: nil, to: folder.file(name),
                passphrase: nil, now: now)
            let identity = try CertificateFile.identity(
                certificate: folder.file("\(name).pem"), key: folder.file("\(name).key"), now: now)
            return try TLSContext(identity: identity, authorities: authorities)
        }
        let (listenerKey, dialerKey) = (try IdentityKey.generate(), try IdentityKey.generate())
        var listener = ChannelConfiguration(
            identity: listenerKey, trust: .pinned([PeerKey(fingerprint: dialerKey.fingerprint)]))
        listener.tls = try context("listener")
        listener.certificateTrust = .authority()
        listener.protocols = [TLSContext.protocolName, ChannelConfiguration.defaultProtocol]
        var tlsDialer = ChannelConfiguration(identity: nil, trust: .authority())
        tlsDialer.tls = try context("dialer")
        tlsDialer.protocols = [TLSContext.protocolName]
        self.listener = listener
        self.tlsDialer = tlsDialer
        noiseDialer = ChannelConfiguration(
            identity: dialerKey, trust: .pinned([PeerKey(fingerprint: listenerKey.fingerprint)]))
    }
}
