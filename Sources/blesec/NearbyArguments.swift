internal import BLESec
internal import BLESecToolKit

/// The options of commands that search for peers, or advertise.
struct NearbyArguments: Sendable {
    static let service = Option(
        name: "--service", value: "UUID",
        help: "The GATT service that peers advertise to find each other, such as one made by "
            + "`uuidgen`. Without it, blesec's own: \(BluetoothUUID.blesec).")
    static let advertise = Option(
        name: "--advertise", value: "WAY",
        help: "Advertise where to dial as the device's name beside the service (name, the default, "
            + "which phones can do too), as service-data, or as manufacturer-data.")
    static let hidePSM = Option(
        name: "--hide-psm",
        help: "Leave the PSM out of the advertisement; a dialer has to ask over GATT.")
    static let transport = Option(
        name: "--transport", value: "WAY",
        help: "What the channel runs over: l2cap, gatt (a byte stream over two GATT "
            + "characteristics, for peers without L2CAP channels), or any, the default: "
            + "L2CAP where the peer has it.")
    static let heard = Option(
        name: "--heard", value: "N",
        help: "Dial a peer when it was heard so often, 1 to 8; 1 when its key is named, else 2.")
    static let within = Option(
        name: "--within", value: "SECONDS", help: "Within which time; 30 seconds.")
    static let signal = Option(
        name: "--signal", value: "DBM",
        help: "Dial nobody whose signal is weaker, in dBm; -90.")
    static let rescan = Option(
        name: "--rescan", value: "SECONDS",
        help:
            "Begin to scan anew so often, for an adapter that reports advertisers only when a scan begins."
    )

    /// The options for advertising as well as for dialing.
    private static let common = [service, transport]
    /// The options for advertising.
    static let accepting = common + [advertise, hidePSM]
    /// The options for dialing.
    static let dialing = common + choosing
    /// The options of commands that both advertise and dial.
    static let all = accepting + choosing
    private static let choosing = [heard, within, signal, rescan]

    let service: BluetoothUUID
    var options = NearbyOptions()

    /// Reads the options. If only certain peers are accepted (`isPinned`), a peer that was heard
    /// once is dialed, unless `--heard` says otherwise.
    init(
        _ arguments: Arguments, service: BluetoothUUID, isPinned: Bool
    ) throws(ChannelError) {
        self.service = service
        options.adapter = arguments.value(ChannelOptions.adapter)
        let carriers = AdvertisementCarrier.allCases.map { ($0.rawValue, $0) }
        let carrier = try arguments.choice(Self.advertise, of: carriers)
        if let carrier { options.carrier = carrier }
        let standard = options.transports
        options.transports =
            try arguments.choice(
                Self.transport, of: [("l2cap", .l2cap), ("gatt", .gattStream), ("any", standard)])
            ?? standard
        options.advertisesPSM = !arguments.has(Self.hidePSM)
        if isPinned { options.rules.timesHeard = 1 }
        let heard = try arguments.number(Self.heard, in: 1...8)
        if let heard { options.rules.timesHeard = heard }
        let signal = try arguments.number(Self.signal, in: -128...20)
        if let signal { options.rules.weakestSignal = signal }
        if let time = try Seconds.read(arguments, Self.within) { options.rules.within = time }
        options.scansAnewEvery = try Seconds.read(arguments, Self.rescan)
    }

    /// The service that `--service` names, or blesec's own.
    static func service(_ arguments: Arguments) throws(ChannelError) -> BluetoothUUID {
        guard let text = arguments.value(service) else { return .blesec }
        return try uuid(text, arguments)
    }

    static func uuid(
        _ text: some StringProtocol, _ arguments: Arguments
    ) throws(ChannelError) -> BluetoothUUID {
        guard let uuid = BluetoothUUID(text) else {
            throw arguments.usage(
                "`\(text)` is no UUID: write \(BluetoothUUID.blesec), or the 4 digits of one that "
                    + "the Bluetooth SIG has assigned")
        }
        return uuid
    }
}
