internal import BLESec
internal import BLESecToolKit

/// The options of connections that reconnect.
enum PersistentArguments {
    static let idle = Option(
        name: "--idle", value: "SECONDS",
        help: "Take a peer that says nothing for so long for dead; it is pinged after half of "
            + "that. 20 seconds.")

    /// The configuration of a channel that detects a lost peer quickly.
    static func configuration(
        _ options: ChannelOptions, _ arguments: Arguments
    ) throws(ChannelError) -> ChannelConfiguration {
        var configuration = options.configuration
        guard configuration.mode == .negotiated else {
            throw arguments.usage(
                "\(ChannelOptions.direct.name) has no acknowledgements, and nothing comes back")
        }
        configuration.timeouts.idle = try Seconds.read(arguments, idle) ?? .seconds(20)
        return configuration
    }
}
