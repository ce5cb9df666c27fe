internal import BLESec
internal import BLESecToolKit

/// The links that a run measures.
struct LinkTarget: Sendable {
    /// The kinds of link between two ends in this process.
    let transports: [Transport]
    /// The endpoint of `blesec-bench serve` in another process; nil if `transports` are measured.
    let remote: Endpoint?

    /// The number of kinds of link, or 1 for the link to `remote`.
    var count: Int { remote == nil ? transports.count : 1 }

    /// Reads the options; throws `noSuchAdapter` when l2cap or an adapter is requested and not
    /// available.
    init(_ arguments: Arguments) throws(ChannelError) {
        let names = arguments.values(MeasureCommand.transport).unique
        guard let text = arguments.value(MeasureCommand.connect) else {
            transports = try Self.transports(names, arguments)
            remote = nil
            return
        }
        guard names.isEmpty, !arguments.has(MeasureCommand.peerAdapter) else {
            throw arguments.usage("--connect excludes --transport and --peer-adapter")
        }
        transports = []
        remote = try Self.endpoint(text, arguments, MeasureCommand.adapter)
    }

    /// The endpoint that `text` names, with the adapter that the option `adapter` names. The option
    /// is refused unless the endpoint is an l2cap: endpoint.
    static func endpoint(
        _ text: String, _ arguments: Arguments, _ adapter: Option
    ) throws(ChannelError) -> Endpoint {
        var endpoint = try Endpoint(parsing: text)
        if !text.hasPrefix("l2cap:") {
            try arguments.refuse([adapter], "goes with an l2cap: endpoint")
        }
        endpoint.adapter = arguments.value(adapter)
        return endpoint
    }

    private static func transports(
        _ names: [String], _ arguments: Arguments
    ) throws(ChannelError) -> [Transport] {
        let adapterOptions = [MeasureCommand.adapter, MeasureCommand.peerAdapter]
        if !names.isEmpty, !names.contains("l2cap") {
            try arguments.refuse(adapterOptions, "is for l2cap, which is left out")
        }
        var transports: [Transport] = []
        for name in names.isEmpty ? ["memory", "unix", "unix-seqpacket"] : names {
            switch name {
            case "memory": transports.append(.memory)
            case "unix": transports.append(.unix(.stream))
            case "unix-seqpacket": transports.append(.unix(.seqpacket))
            case "l2cap": transports.append(try l2cap(arguments))
            default:
                throw arguments.usage(
                    "--transport is memory, unix, unix-seqpacket or l2cap, and not `\(name)`")
            }
        }
        guard names.isEmpty else { return transports }
        if adapterOptions.contains(where: arguments.has) {
            transports.append(try l2cap(arguments))
        } else if let transport = try? l2cap(arguments) {
            // By default L2CAP is measured only if it is available.
            transports.append(transport)
        }
        return transports
    }

    private static func l2cap(_ arguments: Arguments) throws(ChannelError) -> Transport {
        do throws(LinkError) {
            let from = try arguments.value(MeasureCommand.adapter).map(Adapter.named)
            let to = try arguments.value(MeasureCommand.peerAdapter).map(Adapter.named)
            var free = try Adapter.all().filter { $0.isUp && $0 != from && $0 != to }
            guard let dialer = from ?? free.popFirst(), let acceptor = to ?? free.popFirst(),
                dialer != acceptor
            else {
                throw LinkError(
                    .noSuchAdapter,
                    "l2cap needs two Bluetooth adapters that are on; with one, measure the link to "
                        + "another machine with --connect")
            }
            return .l2cap(from: dialer, to: acceptor)
        } catch {
            throw ChannelError(link: error)
        }
    }
}

extension [Adapter] {
    fileprivate mutating func popFirst() -> Adapter? { isEmpty ? nil : removeFirst() }
}
