internal import BLESec
internal import BLESecLinks
internal import BLESecTesting

/// What channels make of an LE connection, on a modelled link layer and by a clock of its own: the
/// channel's code is real, and no figure depends on the machine.
struct RadioScenario: Sendable {
    /// What bulk data is measured with: at least so many bytes, and for at least so many connection
    /// intervals, so that the last one does not count for much; and one message of it, in bytes.
    var leastVolume = 256 << 10
    var leastIntervals = 64
    static let messageSize = 16 << 10
    /// The message whose packets are counted, and which is the first one on a new channel.
    static let shortMessage = 100

    /// The engines beside the bare channel.
    static let engines =
        ["XX", "IK", "KK"].map { "Noise_\($0)_25519_ChaChaPoly_SHA256" } + [TLSContext.protocolName]

    /// What one engine makes of one connection; the engine is nil for the L2CAP channel by itself.
    struct Result: Sendable {
        var parameters: RadioParameters
        /// What sets these parameters apart, where they are not those of the common table.
        var variation: String?
        var engine: String?
        /// Bytes of messages a second, one way.
        var goodput: Double
        /// Goodput over that of the channel by itself.
        var ratio: Double?
        /// What an engine needs before and beside its data.
        var opening: Opening?
    }

    struct Opening: Sendable {
        /// Nanoseconds from an open L2CAP channel to the first message that the other end has: the
        /// dialer's at the acceptor, and the acceptor's at the dialer.
        var firstMessage: BothSides<Double>
        /// What a short message takes once the channel is open.
        var shortMessage: RadioLink.Count
    }

    /// Measures all engines on one connection, the channel by itself first.
    func measure(
        _ parameters: RadioParameters, _ peers: [String: PeerConfigurations], engines: [String],
        variation: String? = nil
    ) async throws -> [Result] {
        let volume = volume(parameters)
        let run = try await RadioRun(parameters)
        let raw = try await run.rawGoodput(volume: volume)
        await run.end()
        var results = [
            Result(parameters: parameters, variation: variation, engine: nil, goodput: raw)
        ]
        for engine in engines {
            guard let pair = peers[engine] else { continue }
            let run = try await RadioRun(parameters)
            let (opening, goodput) = try await run.measure(
                pair, volume: volume, messageSize: Self.messageSize,
                shortMessage: Self.shortMessage)
            await run.end()
            results.append(
                Result(
                    parameters: parameters, variation: variation, engine: engine, goodput: goodput,
                    ratio: goodput / raw, opening: opening))
        }
        return results
    }
}

extension RadioScenario {
    private func volume(_ parameters: RadioParameters) -> Int {
        let time = Double(parameters.interval) / 1e9 * Double(leastIntervals)
        let messages = max(Double(leastVolume), parameters.limit * time) / Double(Self.messageSize)
        return Int(messages.rounded(.up)) * Self.messageSize
    }

    /// The connections of the common table.
    static func connections(isQuick: Bool) -> [RadioParameters] {
        RadioParameters.PHY.allCases.flatMap { phy in
            (isQuick ? [7.5, 100] : [7.5, 15, 30, 50, 100]).map { milliseconds in
                var parameters = RadioParameters()
                parameters.phy = phy
                parameters.interval = UInt64(milliseconds * 1e6)
                return parameters
            }
        }
    }

    /// Single steps away from a connection at 2M with 30 ms, of which the common table knows nothing.
    static var variations: [(name: String, parameters: RadioParameters)] {
        func vary(
            _ name: String, _ change: (inout RadioParameters) -> Void
        ) -> (String, RadioParameters) {
            var parameters = RadioParameters()
            change(&parameters)
            return (name, parameters)
        }
        return [
            vary("data length 27") { $0.dataLength = 27 },
            vary("data length 27, MPS 23") {
                $0.dataLength = 27
                $0.mps = 23
            },
            vary("encrypted link") { $0.isLinkEncrypted = true },
            vary("1 % loss") { $0.loss = 0.01 },
            vary("10 % loss") { $0.loss = 0.1 },
            vary("Linux's credits") { $0.credits = .linux },
            vary("Linux's credits, SDU 8192") {
                $0.credits = .linux
                $0.sdu = 8_192
            },
            vary("Linux's credits, SDU 2048") {
                $0.credits = .linux
                $0.sdu = 2_048
            },
        ]
    }
}
