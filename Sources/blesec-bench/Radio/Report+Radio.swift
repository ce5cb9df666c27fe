internal import BLESecJSON
internal import BLESec
internal import BLESecToolKit
internal import BLESecRadioModel

// The radio scenario in a report.
extension Report {
    /// The steps of the progress line.
    var radioSteps: Int {
        guard settings.scenarios.contains(.radio) else { return 0 }
        return RadioScenario.connections(isQuick: settings.isQuick).count
            + (settings.isQuick ? 0 : RadioScenario.variations.count)
    }

    mutating func measureRadio(_ show: (String) -> Void) async throws {
        let scenario = RadioScenario()
        var peers: [String: PeerConfigurations] = [:]
        for engine in RadioScenario.engines { peers[engine] = try PeerConfigurations(engine) }
        for connection in RadioScenario.connections(isQuick: settings.isQuick) {
            show("radio, \(connection.name)")
            radio += try await scenario.measure(
                connection, peers, engines: RadioScenario.engines)
        }
        guard !settings.isQuick else { return }
        for (name, parameters) in RadioScenario.variations {
            show("radio, \(name)")
            radio += try await scenario.measure(
                parameters, peers, engines: [ChannelConfiguration.defaultProtocol],
                variation: name)
        }
    }

    /// One connection and its figures, in order.
    private var connections: [[RadioScenario.Result]] {
        var groups: [[RadioScenario.Result]] = []
        for result in radio {
            if result.engine == nil { groups.append([]) }
            groups[groups.count - 1].append(result)
        }
        return groups
    }

    var radioText: String {
        let common = connections.filter { $0[0].variation == nil }
        let varied = connections.filter { $0[0].variation != nil }
        let engines = common.first?.compactMap(\.engine) ?? []
        var goodput = Table(["PHY, ms", "limit", "bare"] + engines.map(\.shortEngine))
        var first = Table([""] + engines.map(\.shortEngine))
        for group in common {
            let parameters = group[0].parameters
            goodput.append(
                [parameters.name, kilobits(parameters.limit)] + group.map { kilobits($0.goodput) })
            first.append(
                [parameters.name]
                    + group.compactMap(\.opening).map { opening in
                        let times = opening.firstMessage
                        return (times.dialer / 1e6).fixed(1) + ", "
                            + (times.acceptor / 1e6).fixed(1)
                    })
        }
        var text = "Bulk data over LE, kbit/s, modelled\n\n\(goodput.text)"
        text +=
            "\nFirst message after the L2CAP channel, there and back, ms, modelled\n\n\(first.text)"
        guard !varied.isEmpty else { return text }
        let engine = varied[0].last?.engine?.shortEngine ?? ""
        var steps = Table(["", "bare", engine, "× bare", "packets of 100 B"])
        for group in varied {
            guard let last = group.last else { continue }
            steps.append([
                group[0].variation ?? "", kilobits(group[0].goodput), kilobits(last.goodput),
                last.ratio?.fixed(3) ?? "", "\(last.opening?.shortMessage.packets ?? 0)",
            ])
        }
        return text
            + "\nThe same at \(RadioParameters().name) ms with one thing changed, modelled\n\n"
            + steps.text
    }

    private func kilobits(_ bytes: Double) -> String { (bytes * 8 / 1e3).fixed(0) }

    var radioJSON: JSONValue { .array(radio.map(\.json)) }
}

extension RadioParameters {
    /// The physical layer and the interval.
    fileprivate var name: String { "\(phy.rawValue), \(milliseconds)" }

    /// The interval in milliseconds.
    fileprivate var milliseconds: String {
        let milliseconds = Double(interval) / 1e6
        return milliseconds.fixed(milliseconds == milliseconds.rounded() ? 0 : 1)
    }
}

extension String {
    /// A Noise protocol's pattern, or the name of TLS.
    fileprivate var shortEngine: String {
        hasPrefix("Noise_") ? String(shortProtocol.prefix { $0 != "_" }) : self
    }
}

extension RadioScenario.Result {
    /// The ratios of the common table; the figures of the channel alone are the limit.
    var toBare: [Ratio] {
        guard variation == nil, let engine, let ratio, let opening else { return [] }
        let name = "radio/\(parameters.phy.rawValue)/\(parameters.milliseconds)/\(engine)"
        let needed = parameters.frames(opening.shortMessage.bytes)
        return [
            Ratio(
                name: "\(name)/goodput", limit: "bare L2CAP channel", basis: .counted,
                lessIsBetter: false, summary: Summary([ratio])),
            Ratio(
                name: "\(name)/short-message", limit: "computed", basis: .counted,
                lessIsBetter: true,
                summary: Summary([Double(opening.shortMessage.packets) / Double(max(1, needed))])),
        ]
    }

    fileprivate var json: JSONValue {
        .object([
            ("modelled", .bool(true)),
            ("variation", variation.map { .string($0) } ?? .null),
            ("engine", .string(engine ?? "bare")),
            ("phy", .string(parameters.phy.rawValue)),
            ("interval-nanoseconds", .number(Int(parameters.interval))),
            ("data-length", .number(parameters.dataLength)),
            ("link-encrypted", .bool(parameters.isLinkEncrypted)),
            ("loss", .real(parameters.loss)),
            ("seed", .number(Int(parameters.seed))),
            ("mtu", .number(parameters.mtu)),
            ("sdu", .number(parameters.sdu)),
            ("mps", .number(parameters.mps)),
            ("credits", .string(parameters.credits == .linux ? "linux" : "ample")),
            ("host-delay-nanoseconds", .number(Int(parameters.hostDelay))),
            ("limit-bytes-per-second", .real(parameters.limit)),
            ("goodput-bytes-per-second", .real(goodput)),
            ("goodput-ratio-to-bare", ratio.map { .real($0) } ?? .null),
            ("first-message-nanoseconds", opening?.times ?? .null),
            ("short-message", opening?.packets ?? .null),
        ])
    }
}

extension RadioScenario.Opening {
    fileprivate var times: JSONValue {
        .object([
            ("dialer", .real(firstMessage.dialer)), ("acceptor", .real(firstMessage.acceptor)),
        ])
    }

    fileprivate var packets: JSONValue {
        .object([
            ("bytes", .number(RadioScenario.shortMessage)),
            ("sdus", .number(shortMessage.sdus)),
            ("sdu-bytes", .number(shortMessage.bytes)),
            ("packets", .number(shortMessage.packets)),
        ])
    }
}
