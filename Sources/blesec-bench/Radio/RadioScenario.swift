internal import BLESec
internal import BLESecLinks
internal import BLESecRadioModel
internal import BLESecTesting

/// Computes the speed of channels on an LE connection, with a modelled link layer and a virtual
/// clock. The channel's code is real, and no figure depends on the machine.
struct RadioScenario: Sendable {
    /// The smallest number of bytes in a bulk measurement.
    var leastVolume = 256 << 10
    /// The smallest number of connection intervals in a bulk measurement. The last interval may be
    /// used only in part; with so many intervals, this hardly changes the result.
    var leastIntervals = 64
    /// The bytes of one message in a bulk measurement.
    static let messageSize = 16 << 10
    /// The bytes of the first message on a new channel, and of the message whose packets are
    /// counted.
    static let shortMessageSize = 100

    /// The engines to measure in addition to the bare L2CAP channel.
    static let engines =
        ["XX", "IK", "KK"].map { "Noise_\($0)_25519_ChaChaPoly_SHA256" } + [TLSContext.protocolName]

    /// The figures of one engine on one connection; the engine is nil for the bare L2CAP channel.
    struct Result: Sendable {
        var parameters: RadioParameters
        /// What differs from the default parameters; nil in the table of PHYs and intervals.
        var variation: String?
        var engine: String?
        /// The payload in bytes a second, in one direction.
        var goodput: Double
        /// Goodput divided by that of the bare L2CAP channel.
        var ratio: Double?
        /// What the first messages and a short message cost; nil without an engine.
        var messageCosts: MessageCosts?
    }

    struct MessageCosts: Sendable {
        /// Nanoseconds from the opening of the L2CAP channel until each side's first message has
        /// arrived at the other side.
        var firstMessage: BothSides<Double>
        /// The SDUs, bytes and packets of a short message once the channel is open.
        var shortMessageTraffic: RadioLink.Count
    }

    /// Measures the bare L2CAP channel, and then each engine, each on a connection of its own.
    func measure(
        _ parameters: RadioParameters, _ peers: [String: PeerConfigurations], engines: [String],
        variation: String? = nil
    ) async throws -> [Result] {
        let volume = volume(parameters)
        let run = try await RadioRun(parameters)
        let bareGoodput = try await run.bareGoodput(volume: volume)
        await run.end()
        let bare = Result(parameters: parameters, variation: variation, goodput: bareGoodput)
        var results = [bare]
        for engine in engines {
            guard let pair = peers[engine] else { continue }
            let run = try await RadioRun(parameters)
            var result = bare
            result.engine = engine
            (result.messageCosts, result.goodput) = try await run.measure(pair, volume: volume)
            result.ratio = result.goodput / bareGoodput
            await run.end()
            results.append(result)
        }
        return results
    }

    /// The number of bytes in a bulk measurement, in whole messages.
    private func volume(_ parameters: RadioParameters) -> Int {
        let time = Double(parameters.interval) / 1e9 * Double(leastIntervals)
        let bytes = max(Double(leastVolume), parameters.goodputLimit * time)
        let messages = bytes / Double(Self.messageSize)
        return Int(messages.rounded(.up)) * Self.messageSize
    }

    /// One connection to measure, and the engines to measure in addition to the bare L2CAP channel.
    /// For `variation`, see ``Result/variation``.
    typealias Setup = (parameters: RadioParameters, engines: [String], variation: String?)

    /// The connections of the table of PHYs and intervals, and the variations unless `isQuick`.
    ///
    /// A variation has the default PHY and interval, LE 2M and 30 ms. One or two of its other
    /// parameters differ from the defaults.
    static func setups(isQuick: Bool) -> [Setup] {
        var setups: [Setup] = []
        for phy in RadioParameters.PHY.allCases {
            for milliseconds in isQuick ? [7.5, 100] : [7.5, 15, 30, 50, 100] {
                var parameters = RadioParameters()
                parameters.phy = phy
                parameters.interval = UInt64(milliseconds * 1e6)
                setups.append((parameters, engines, nil))
            }
        }
        guard !isQuick else { return setups }
        func vary(_ name: String, _ change: (inout RadioParameters) -> Void) {
            var parameters = RadioParameters()
            change(&parameters)
            setups.append((parameters, [ChannelConfiguration.defaultProtocol], name))
        }
        vary("data length 27") { $0.dataLength = 27 }
        vary("data length 27, MPS 23") { ($0.dataLength, $0.mps) = (27, 23) }
        vary("encrypted link") { $0.isLinkEncrypted = true }
        vary("1 % loss") { $0.loss = 0.01 }
        vary("10 % loss") { $0.loss = 0.1 }
        vary("Linux's credits") { $0.credits = .linux }
        vary("Linux's credits, SDU 8192") { ($0.credits, $0.sdu) = (.linux, 8_192) }
        vary("Linux's credits, SDU 2048") { ($0.credits, $0.sdu) = (.linux, 2_048) }
        return setups
    }
}
