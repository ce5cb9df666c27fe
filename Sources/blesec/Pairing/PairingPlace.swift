internal import BLESec
internal import BLESecToolKit

/// How two sides that pair find each other: at an endpoint, or nearby through bluetoothd.
struct PairingPlace: Sendable {
    enum Meeting: Sendable {
        case dialing(Endpoint)
        case listening(Endpoint)
        /// Over bluetoothd: this side advertises, or looks for the side that advertises.
        case nearby(NearbyArguments, advertises: Bool)
    }

    let meeting: Meeting
    /// The service by which the sides find each other; nil at an endpoint.
    let service: BluetoothUUID?

    /// Whether this side dials the other.
    var isDialing: Bool {
        switch meeting {
        case .dialing: true
        case .listening: false
        case .nearby(_, let advertises): !advertises
        }
    }

    init(_ arguments: Arguments, _ request: PairCommand.Request) throws(ChannelError) {
        let isWaiting = arguments.has(RouteArguments.listen)
        if let text = arguments.operands.first, !text.hasPrefix("service:") {
            guard PeerMemory.nameOrKey(text) == nil else {
                throw arguments.usage(
                    "TARGET is an endpoint or service:UUID: a peer that is not paired has no name")
            }
            try arguments.refuse(PairCommand.nearby, "cannot be used with an endpoint")
            let endpoint = try ChannelOptions.endpoint(
                text, arguments, for: isWaiting ? .listening : .dialing,
                otherForms: isWaiting ? [] : ["service:UUID"])
            switch request {
            case .newCode where !isWaiting:
                throw arguments.usage(
                    "the side that shows a code waits: give --listen, or the other side's code with "
                        + "--code")
            case .newInvitation where !isWaiting:
                throw arguments.usage(
                    "the side that makes an invitation waits: give --listen, and dial from the other side"
                )
            case .invitation where isWaiting:
                throw arguments.usage(
                    "the side that is given an invitation dials: leave out --listen")
            default: break
            }
            meeting = isWaiting ? .listening(endpoint) : .dialing(endpoint)
            service = nil
            return
        }
        try arguments.refuse([RouteArguments.listen], "goes with an endpoint")
        let service = try Self.service(arguments, request)
        var settings = try NearbyArguments(
            arguments, service: service, heard: PairCommand.heard, dialsWhenHeardOnce: true)
        settings.options.accepts = request.showsSecret
        settings.options.dials = !request.showsSecret
        settings.options.rules.links = 1
        meeting = .nearby(settings, advertises: request.showsSecret)
        self.service = service
    }

    private static func service(
        _ arguments: Arguments, _ request: PairCommand.Request
    ) throws(ChannelError) -> BluetoothUUID {
        if let text = arguments.operands.first {
            try arguments.refuse([NearbyArguments.service], "cannot be used with service:UUID")
            return try NearbyArguments.uuid(text.dropFirst(8), arguments)
        }
        if !arguments.has(NearbyArguments.service), case .invitation(let invitation) = request {
            guard let text = invitation.service else {
                throw arguments.usage(
                    "the invitation does not say where the inviter is: give its endpoint as TARGET")
            }
            return try NearbyArguments.uuid(text, arguments)
        }
        return try NearbyArguments.service(arguments)
    }
}
