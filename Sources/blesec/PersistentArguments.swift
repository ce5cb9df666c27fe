internal import BLESec
internal import BLESecToolKit

/// The options of connections that reconnect.
enum PersistentArguments {
    static let idle = Option(
        name: "--idle", value: "SECONDS",
        help: "Treat the peer as lost after it has sent nothing for this time. The peer is pinged "
            + "after half of this time. The default is 20 seconds.")

    /// The configuration of a channel that detects a lost peer quickly.
    static func configuration(
        _ options: ChannelOptions, _ arguments: Arguments
    ) throws(ChannelError) -> ChannelConfiguration {
        var configuration = options.configuration
        guard configuration.mode == .negotiated else {
            throw arguments.usage(
                "a connection that reconnects needs acknowledgements, which "
                    + "\(ChannelOptions.direct.name) does not have")
        }
        configuration.timeouts.idle = try Seconds.read(arguments, idle) ?? .seconds(20)
        return configuration
    }
}
