internal import BLESec
internal import BLESecNoise

/// What the bench measures over a link: the plain link, a channel with one protocol, or a
/// connection whose messages arrive exactly once.
struct EngineChoice: Sendable, Hashable {
    /// The name in reports: `plain`, `exactly-once`, or a protocol's name.
    let name: String

    /// The link alone.
    static let plain = EngineChoice(name: "plain")
    /// The channel's default protocol.
    static let noise = EngineChoice(name: ChannelConfiguration.defaultProtocol)
    /// The default protocol with AES-GCM in place of ChaChaPoly.
    static let noiseAESGCM = EngineChoice(name: "Noise_XX_25519_AESGCM_SHA256")
    static let tls = EngineChoice(name: TLSContext.protocolName)
    /// A connection whose messages arrive exactly once, without stores, over the default protocol.
    static let exactlyOnce = EngineChoice(name: "exactly-once")

    private init(name: String) { self.name = name }

    /// TLS or any Noise protocol. Use this only for handshakes in memory.
    ///
    /// - Throws: `configuration`.
    init(handshake name: String) throws(ChannelError) {
        if name != Self.tls.name { _ = try Self.noiseProtocol(name) }
        self.name = name
    }

    /// TLS, or a two-way Noise protocol that needs no key of the peer and no pre-shared key.
    ///
    /// - Throws: `configuration`.
    init(protocol name: String) throws(ChannelError) {
        if name != Self.tls.name {
            let pattern = try Self.noiseProtocol(name).pattern
            guard !pattern.isOneWay, !pattern.isFallback, pattern.pskCount == 0,
                !pattern.requiresRemoteStatic(.initiator), !pattern.requiresRemoteStatic(.responder)
            else {
                throw ChannelError(
                    .configuration,
                    "\(name) needs keys that the ends of a bench do not have: use XX, NX, XN or NN")
            }
        }
        self.name = name
    }

    private static func noiseProtocol(_ name: String) throws(ChannelError) -> ProtocolName {
        do throws(ProtocolNameError) {
            return try ProtocolName(name)
        } catch {
            throw ChannelError(.configuration, "\(name): \(error)")
        }
    }

    /// Parses the name that a peer sends; throws `configuration`.
    ///
    /// ``exactlyOnce`` is refused: such a connection outlives its link, so the end that serves it
    /// would wait for another link for ever.
    init(_ name: String) throws(ChannelError) {
        if name == Self.plain.name {
            self = .plain
        } else {
            try self.init(protocol: name)
        }
    }

    /// Opens a channel over a link. Call this on the link's loop.
    func open(over link: any Link, role: ChannelRole) async throws -> any MessageChannel {
        guard self != .plain else {
            let channel = PlainChannel(over: link)
            await channel.start()
            return channel
        }
        var configuration = ChannelConfiguration(identity: nil, trust: .anyone)
        configuration.protocols = [self == .exactlyOnce ? Self.noise.name : name]
        if self == .tls {
            // No authorities are set, since a bench on another machine has an authority of its own.
            configuration.tls = try TLSContext(
                identity: TLSDevices.shared().context(role).identity)
        } else {
            let protocolName = try ProtocolName(configuration.protocols[0])
            configuration.identity = try .generate(
                curve: protocolName.curve, hash: protocolName.hash)
        }
        configuration.allowsExposedIdentity = true
        configuration.carriesDelivery = self == .exactlyOnce
        let channel = try await SecureChannel.open(
            over: link, role: role, configuration: configuration)
        guard self == .exactlyOnce else { return channel }
        let connection = await PeerConnection.start(
            .offered, delivery: .exactlyOnce(), loop: link.loop)
        guard await connection.offer(channel) else { throw BenchError.wrongResult("the channel") }
        return connection
    }
}
