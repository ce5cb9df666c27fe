internal import BLESec
internal import BLESecPrimitives
internal import BLESecToolKit

/// The options of every command that opens a channel.
struct ChannelOptions: Sendable {
    static let adapter = Option(
        name: "--adapter", value: "HCI",
        help: "Use this Bluetooth adapter, such as hci1. By default l2cap:any stands for all "
            + "adapters. For an l2cap: endpoint with an address, the kernel selects the adapter "
            + "that dials. A service is advertised and looked for at the first adapter that is on.")
    static let addressType = Option(
        name: "--address-type", value: "TYPE", completion: .words(["public", "random"]),
        help: "The type of the Bluetooth address to dial: public (the default) or random.")
    static let identity = Option(
        name: "--identity", short: "i", value: "FILE",
        help: "With Noise, prove the identity in FILE, which `blesec keygen` made. By default a "
            + "new key is made for this run alone, so no peer can know the key beforehand. But a "
            + "command that names a remembered peer uses the key that `blesec pair` has made, if "
            + "that key exists.")
    static let peer = Option(
        name: "--peer", value: "KEY", isRepeatable: true,
        help: "Accept only a peer with this key. KEY is the peer's public key in base64, or the "
            + "peer's fingerprint, as `blesec pubkey` and `blesec ca` print them. If the option is "
            + "given several times, a peer with any of these keys is accepted.")
    static let anyone = Option(
        name: "--anyone",
        help: "Accept any peer. The channel is encrypted, but the other end may be an attacker: "
            + "compare the fingerprints.")
    static let `protocol` = Option(
        name: "--protocol", value: "NAME", isRepeatable: true,
        completion: .words([TLSContext.protocolName, ChannelConfiguration.defaultProtocol]),
        help: "Offer this protocol: \(TLSContext.protocolName) or a Noise protocol. To offer "
            + "several protocols, repeat the option, with the best protocol first. The default "
            + "with --certificate is \(TLSContext.protocolName). The default with --identity is "
            + "\(ChannelConfiguration.defaultProtocol), but with the identity's curve and hash. "
            + "With both options, both defaults are offered; with neither option, "
            + "\(ChannelConfiguration.defaultProtocol) is offered.")
    static let direct = Option(
        name: "--direct",
        help: "Speak exactly one protocol and nothing around it, with a peer that is not blesec. "
            + "The protocol is TLS, or Noise with two bytes of length before each message. With "
            + "Noise, neither side can tell whether everything has arrived. Some patterns, such as "
            + "IK, prove a peer only with the peer's first message after the handshake: the "
            + "channel is not ready before that message.")

    /// All options, in the order of the manual pages.
    static let all =
        [adapter, addressType, identity] + CertificateOptions.all + IdentityOptions.all
        + [peer, anyone, `protocol`, direct, TimeLimit.option, .verbose, .quiet, .json]

    /// The exit statuses of every command that opens a channel.
    static let statuses = ExitStatus.allCases.filter { $0 != .becameWorse }

    let configuration: ChannelConfiguration
    var timeLimit: TimeLimit?
    /// Whether only certain peers are accepted: without `--anyone`, or with a remembered key.
    var acceptsOnlyCertainPeers: Bool

    /// Reads the options, and the files of keys and certificates.
    ///
    /// - Parameters:
    ///   - operandKey: the key of the peer that the operand names. If there is one, options that
    ///     say whom to accept are refused.
    ///   - rememberedKey: the key that `--remember` names. If there is one, only its holder is
    ///     accepted, and only if `--peer` and `--peer-uri` accept that peer too.
    ///   - memory: with `--remember NAME`, restricts the policies to the peer that has NAME already.
    init(
        _ arguments: Arguments, operandKey: PeerKey? = nil, rememberedKey: PeerKey?,
        _ memory: PeerMemory
    ) throws(ChannelError) {
        timeLimit = try TimeLimit(arguments)
        let engines = try Engines(arguments)
        let trust = try Self.trust(
            arguments, engines, operandKey: operandKey, rememberedKey: rememberedKey)
        acceptsOnlyCertainPeers = rememberedKey != nil || !arguments.has(Self.anyone)
        let identity = engines.hasNoise ? try Self.identity(arguments, engines, memory) : nil
        var configuration = ChannelConfiguration(
            identity: identity, trust: memory.restricting(trust.forAll))
        if engines.hasTLS {
            configuration.tls = try CertificateOptions.context(arguments)
            configuration.certificateTrust = trust.forTLS.map(memory.restricting)
        }
        configuration.protocols = engines.protocolNames
        if configuration.protocols.isEmpty {
            if engines.hasTLS { configuration.protocols = [TLSContext.protocolName] }
            if let identity { configuration.protocols.append(Self.defaultProtocol(for: identity)) }
        }
        configuration.mode = arguments.has(Self.direct) ? .direct : .negotiated
        // A received message is confirmed only after it is written to the output.
        if configuration.mode == .negotiated { configuration.acknowledgement = .manual }
        if let timeLimit { configuration.timeouts.connect = timeLimit.duration }
        self.configuration = configuration
    }

    /// What an endpoint is used for.
    enum EndpointUse {
        case dialing, listening

        /// The forms that an endpoint may have.
        fileprivate var forms: [String] {
            let device = "l2cap:AA:BB:CC:DD:EE:FF/0x80"
            let devices = self == .dialing ? [device] : ["l2cap:any", "l2cap:any/0x85", device]
            return devices + ["unix:PATH", "unix-seqpacket:PATH"]
        }
    }

    /// The endpoint that `text` names, with the adapter and the address type that the options name.
    ///
    /// - Parameter otherForms: the other forms that the operand may have, for the error.
    static func endpoint(
        _ text: String, _ arguments: Arguments, for use: EndpointUse,
        otherForms: [String] = []
    ) throws(ChannelError) -> Endpoint {
        guard ["l2cap:", "unix:", "unix-seqpacket:"].contains(where: text.hasPrefix) else {
            throw arguments.usage(
                "`\(text)` is no endpoint: write \((use.forms + otherForms).alternatives)")
        }
        var endpoint = try Endpoint(parsing: text)
        for option in [adapter, addressType] where arguments.has(option) {
            guard text.hasPrefix("l2cap:") else {
                throw arguments.usage("\(option.name) goes with an l2cap: endpoint")
            }
        }
        endpoint.adapter = arguments.value(adapter)
        let types = [("public", AddressType.public), ("random", .random)]
        if let type = try arguments.choice(addressType, of: types) { endpoint.addressType = type }
        return endpoint
    }

    /// The policies for accepting peers: one for all protocols, and one for TLS alone if TLS needs
    /// another policy.
    private static func trust(
        _ arguments: Arguments, _ engines: Engines, operandKey: PeerKey?, rememberedKey: PeerKey?
    ) throws(ChannelError) -> (forAll: TrustPolicy, forTLS: TrustPolicy?) {
        if let operandKey {
            try arguments.refuse(
                [peer, anyone, CertificateOptions.peerURI], "does not go with peer:KEY")
            if let rememberedKey, rememberedKey.fingerprint != operandKey.fingerprint {
                throw ChannelError(
                    .untrusted,
                    "the key that --remember names, \(rememberedKey.fingerprint), is not that of "
                        + "the operand: give another name")
            }
            return (.pinned([operandKey]), nil)
        }
        try arguments.exclude(peer, anyone)
        try arguments.exclude(CertificateOptions.authority, anyone)
        if let rememberedKey {
            let keys = try peerKeys(arguments)
            return (
                try CertificateOptions.policy(arguments, keys, remembered: rememberedKey), nil
            )
        }
        if arguments.has(anyone) { return (.anyone, nil) }
        let keys = try peerKeys(arguments)
        let forTLS = engines.hasTLS ? try CertificateOptions.policy(arguments, keys: keys) : nil
        if !keys.isEmpty { return (.pinned(keys), forTLS) }
        // An authority's certificates cannot identify peers over Noise.
        guard let forTLS, !engines.hasNoise else {
            let authority = engines.hasTLS ? "--authority FILE for TLS, " : ""
            throw arguments.usage(
                "no option says whom to accept: \(authority)--peer KEY, or --anyone to accept "
                    + "any peer")
        }
        return (forTLS, nil)
    }

    private static func peerKeys(_ arguments: Arguments) throws(ChannelError) -> [PeerKey] {
        try arguments.values(peer).map { text throws(ChannelError) in
            do throws(ChannelError) {
                return try PeerKey(parsing: text)
            } catch {
                throw ChannelError(
                    error.code,
                    "\(error.reason); `--remember \(text)` accepts the peer that is remembered by "
                        + "that name")
            }
        }
    }

    private static func identity(
        _ arguments: Arguments, _ engines: Engines, _ memory: PeerMemory
    ) throws(ChannelError) -> IdentityKey {
        if let path = arguments.value(identity) ?? memory.identityPath {
            return try IdentityOptions.load(path, arguments)
        }
        for option in IdentityOptions.all where arguments.has(option) && !engines.hasTLS {
            throw arguments.usage("\(option.name) goes with --identity FILE or --key FILE")
        }
        // An invalid protocol name is refused later, with an error that says what is wrong.
        let noiseProtocol = engines.protocolNames.lazy.compactMap { try? ProtocolName($0) }.first
        return try .generate(
            curve: noiseProtocol?.curve ?? .x25519, hash: noiseProtocol?.hash ?? .sha256)
    }

    static func defaultProtocol(for identity: IdentityKey) -> String {
        "Noise_XX_\(identity.keyPair.curve.noiseName)_ChaChaPoly_\(identity.hash.noiseName)"
    }
}

/// The engines that a command line selects, by its protocols or by its keys and certificates.
private struct Engines {
    let protocolNames: [String]
    let hasTLS: Bool
    let hasNoise: Bool

    init(_ arguments: Arguments) throws(ChannelError) {
        let tls = TLSContext.protocolName
        protocolNames = arguments.values(ChannelOptions.protocol)
        if arguments.has(ChannelOptions.direct), protocolNames.count > 1 {
            throw arguments.usage("--direct takes only one --protocol")
        }
        try CertificateOptions.check(arguments)
        let hasCertificate = arguments.has(CertificateOptions.certificate)
        let hasIdentity = arguments.has(ChannelOptions.identity)
        hasTLS = protocolNames.isEmpty ? hasCertificate : protocolNames.contains(tls)
        hasNoise =
            protocolNames.isEmpty
            ? hasIdentity || !hasCertificate : protocolNames.contains { $0 != tls }
        if hasCertificate, !hasTLS {
            throw arguments.usage("--certificate goes with --protocol \(tls)")
        }
        if hasIdentity, !hasNoise {
            throw arguments.usage("--identity goes with a --protocol of Noise")
        }
    }
}
