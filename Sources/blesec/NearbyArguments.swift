internal import BLESec
internal import BLESecToolKit

/// The options of commands that search for peers, or advertise.
struct NearbyArguments: Sendable {
    static let service = Option(
        name: "--service", value: "UUID",
        help: "The GATT service that peers advertise to find each other. `uuidgen` makes a new "
            + "UUID. The default is blesec's own service, \(BluetoothUUID.blesec).")
    static let advertise = Option(
        name: "--advertise", value: "WAY",
        completion: .words(["name", "service-data", "manufacturer-data"]),
        help: "The form in which to advertise where to dial: name (the default), which uses the "
            + "device's name and which phones can advertise too; service-data; or "
            + "manufacturer-data.")
    static let hidePSM = Option(
        name: "--hide-psm",
        help: "Leave the PSM out of the advertisement. A dialer then has to ask for the PSM over "
            + "GATT.")
    static let transport = Option(
        name: "--transport", value: "WAY", completion: .words(["l2cap", "gatt", "any"]),
        help: "What the channel runs over: l2cap; gatt, which is a byte stream over two GATT "
            + "characteristics, for peers without L2CAP channels; or any (the default), which is "
            + "L2CAP if the peer has it, and GATT otherwise.")
    static let heard = Option(
        name: "--heard", value: "N",
        help: "Dial a peer only after it was heard N times, 1 to 8. The default is 1 if only "
            + "certain peers are accepted, and 2 if any peer is accepted.")
    static let within = Option(
        name: "--within", value: "SECONDS",
        help: "The time within which a peer has to be heard N times, as --heard says. The "
            + "default is 30 seconds.")
    static let signal = Option(
        name: "--signal", value: "DBM",
        help: "Do not dial a peer whose signal is weaker than DBM, in dBm. The default is -90.")
    static let rescan = Option(
        name: "--rescan", value: "SECONDS",
        help: "Restart the scan at this interval, for an adapter that reports advertisers only "
            + "when a scan begins."
    )

    /// The options that are in both ``accepting`` and ``dialing``.
    private static let common = [service, transport]
    /// The options of commands that advertise and accept channels.
    static let accepting = common + [advertise, hidePSM]
    /// The options of commands that scan and dial.
    static let dialing = common + dialingOnly
    /// The options of commands that do both.
    static let all = accepting + dialingOnly
    private static let dialingOnly = [heard, within, signal, rescan]

    let service: BluetoothUUID
    var options = NearbyOptions()

    /// Reads the options. If `dialsWhenHeardOnce` is true, a peer is dialed when it has been heard
    /// once, unless `--heard` says otherwise. `heard` is `--heard` as this command describes it.
    init(
        _ arguments: Arguments, service: BluetoothUUID, heard: Option = NearbyArguments.heard,
        dialsWhenHeardOnce: Bool
    ) throws(ChannelError) {
        self.service = service
        options.adapter = arguments.value(ChannelOptions.adapter)
        let carriers = AdvertisementCarrier.allCases.map { ($0.rawValue, $0) }
        let carrier = try arguments.choice(Self.advertise, of: carriers)
        if let carrier { options.carrier = carrier }
        let defaultTransports = options.transports
        options.transports =
            try arguments.choice(
                Self.transport,
                of: [("l2cap", .l2cap), ("gatt", .gattStream), ("any", defaultTransports)])
            ?? defaultTransports
        options.advertisesPSM = !arguments.has(Self.hidePSM)
        if dialsWhenHeardOnce { options.rules.timesHeard = 1 }
        let timesHeard = try arguments.number(heard, in: 1...8)
        if let timesHeard { options.rules.timesHeard = timesHeard }
        let signal = try arguments.number(Self.signal, in: -128...20)
        if let signal { options.rules.weakestSignal = signal }
        let hearingPeriod = try Seconds.read(arguments, Self.within)
        if let hearingPeriod { options.rules.hearingPeriod = hearingPeriod }
        options.scansAnewEvery = try Seconds.read(arguments, Self.rescan)
    }

    /// Starts the service. `limit` is the time limit for the wait for bluetoothd.
    func start(
        _ configuration: ChannelConfiguration, within limit: TimeLimit?,
        onEvent: @escaping @Sendable (NearbyEvent) -> Void
    ) async throws(ChannelError) -> NearbyService {
        try await TimeLimit.askBluetoothd(within: limit) { () async throws(ChannelError) in
            try await NearbyService.start(
                service, configuration: configuration, options: options, onEvent: onEvent)
        }
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
                "`\(text)` is no UUID: write a UUID such as \(BluetoothUUID.blesec), or the 4 "
                    + "digits of a UUID that the Bluetooth SIG has assigned")
        }
        return uuid
    }
}
