internal import BLESec
internal import Primitives
internal import ToolKit

/// The options of every command that opens a channel.
struct ChannelOptions: Sendable {
    static let adapter = Option(
        name: "--adapter", value: "HCI",
        help: "Use this Bluetooth adapter, such as hci1; without it the kernel takes one.")
    static let addressType = Option(
        name: "--address-type", value: "TYPE",
        help: "Whether the Bluetooth address to dial is public (the default) or random.")
    static let identity = Option(
        name: "--identity", value: "FILE",
        help: "Prove this identity, made by `blesec keygen`. Without it a key is made for this run "
            + "alone, and no peer can know it beforehand.")
    static let peer = Option(
        name: "--peer", value: "KEY", isRepeatable: true,
        help: "Accept a peer with this key and no other: its public key in base64, or its "
            + "fingerprint, as `blesec pubkey` prints them. Given several times, any of them.")
    static let anyone = Option(
        name: "--anyone",
        help: "Accept whoever is there. The channel is encrypted, but the other end may be an "
            + "attacker: compare the fingerprints.")
    static let `protocol` = Option(
        name: "--protocol", value: "NAME", isRepeatable: true,
        help: "Offer this protocol; given several times, the best first. Without it: "
            + "\(ChannelConfiguration.defaultProtocol), or its like for the identity's curve and "
            + "hash.")
    static let direct = Option(
        name: "--direct",
        help: "Speak exactly one protocol and nothing around it, with a peer that is not blesec: "
            + "Noise messages with two bytes of length before each. Nobody can tell then whether "
            + "everything has arrived.")

    /// What both commands take, in the order of their pages.
    static let all = [
        adapter, addressType, identity, IdentityOptions.passphraseFile,
        IdentityOptions.passphrasePrompt, peer, anyone, `protocol`, direct, TimeLimit.option, .json,
    ]

    /// What both commands may exit with.
    static let statuses = ExitStatus.allCases

    let configuration: ChannelConfiguration
    let timeLimit: TimeLimit?

    /// Reads the options, and the identity's file.
    init(_ arguments: Arguments) throws(ChannelError) {
        timeLimit = try TimeLimit(arguments)
        let trust = try Self.trust(arguments)
        let names = arguments.values(Self.protocol)
        if arguments.has(Self.direct), names.count > 1 {
            throw arguments.usage("--direct takes exactly one --protocol")
        }
        let identity = try Self.identity(arguments, first: names.first)
        var configuration = ChannelConfiguration(identity: identity, trust: trust)
        configuration.protocols = names.isEmpty ? [Self.standard(for: identity)] : names
        configuration.mode = arguments.has(Self.direct) ? .direct : .negotiated
        if let timeLimit { configuration.deadlines.connect = timeLimit.duration }
        self.configuration = configuration
    }

    /// The endpoint that the command names, with the adapter and the kind of address.
    static func endpoint(_ arguments: Arguments) throws(ChannelError) -> Endpoint {
        var endpoint = try Endpoint(arguments.operands[0])
        for option in [adapter, addressType] where arguments.has(option) {
            guard arguments.operands[0].hasPrefix("l2cap:") else {
                throw arguments.usage("\(option.name) goes with an l2cap: endpoint")
            }
        }
        endpoint.adapter = arguments.value(adapter)
        switch arguments.value(addressType) {
        case nil, "public": break
        case "random": endpoint.addressType = .random
        case let other?:
            throw arguments.usage("--address-type is public or random, and not `\(other)`")
        }
        return endpoint
    }

    private static func trust(_ arguments: Arguments) throws(ChannelError) -> TrustPolicy {
        try arguments.exclude(peer, anyone)
        if arguments.has(anyone) { return .anyone }
        guard arguments.has(peer) else {
            throw arguments.usage(
                "whom to accept is missing: --peer KEY, or --anyone for whoever is there")
        }
        var keys: [PeerKey] = []
        for text in arguments.values(peer) { keys.append(try PeerKey(text)) }
        return .pinned(keys)
    }

    private static func identity(
        _ arguments: Arguments, first name: String?
    ) throws(ChannelError) -> IdentityKey {
        if let path = arguments.value(identity) {
            return try IdentityOptions.load(path, arguments)
        }
        for option in [IdentityOptions.passphraseFile, IdentityOptions.passphrasePrompt]
        where arguments.has(option) {
            throw arguments.usage("\(option.name) goes with --identity FILE")
        }
        // A name that is none is refused with all that is wrong with it, a little later.
        let known = name.flatMap { try? ProtocolName($0) }
        return try .generate(curve: known?.curve ?? .x25519, hash: known?.hash ?? .sha256)
    }

    private static func standard(for identity: IdentityKey) -> String {
        let curve =
            switch identity.keyPair.curve {
            case .x25519: "25519"
            case .x448: "448"
            }
        return "Noise_XX_\(curve)_ChaChaPoly_\(identity.hash.noiseName)"
    }
}
