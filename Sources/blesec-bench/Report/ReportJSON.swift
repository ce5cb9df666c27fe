internal import BLESecJSON
internal import BLESecRadioModel
internal import BLESecToolKit

/// A report as JSON. `docs/bench.md` and `docs/bench.schema.json` describe its members.
struct ReportJSON {
    /// The schema's name, with a version that changes when a member is removed or changes its
    /// meaning.
    static let schema = "blesec-bench/1"

    let report: Report

    var value: JSONValue {
        let machine = HostInfo.this
        let settings = report.settings
        return object([
            "schema": Self.schema, "version": Program.version,
            "machine": object([
                "processor": machine.processor, "cores": machine.cores, "kernel": machine.kernel,
                "libsodium": machine.sodium, "openssl": machine.openSSL,
            ]),
            "settings": object([
                "optimized": HostInfo.isOptimized, "rounds": settings.rounds,
                "sample-nanoseconds": settings.sampleTime,
            ]),
            "engine": report.engine, "handshake": report.handshake, "link": report.link,
            "sdus": report.sdus, "packets": report.packets, "stores": report.stores,
            "streams": report.streams,
            "many": report.many,
            "loops": report.loops,
            "listener": report.listeners,
            "flood": report.flood, "unauthenticated-peer-cost": report.unauthenticatedCosts,
            "radio": report.radio, "radio-streams": report.radioStreams,
            "ratios": report.ratios, "omissions": report.omissions,
        ])
    }
}

private protocol Reportable {
    var json: JSONValue { get }
}

/// An object with these members; a value that is nil becomes `null`.
private func object(_ members: KeyValuePairs<String, (any Reportable)?>) -> JSONValue {
    .object(members.map { ($0.key, $0.value?.json ?? .null) })
}

extension JSONValue: Reportable {
    fileprivate var json: JSONValue { self }
}

extension String: Reportable {
    fileprivate var json: JSONValue { .string(self) }
}

extension Bool: Reportable {
    fileprivate var json: JSONValue { .bool(self) }
}

extension Int: Reportable {
    fileprivate var json: JSONValue { .number(self) }
}

extension Double: Reportable {
    fileprivate var json: JSONValue { .real(self) }
}

extension Array: Reportable where Element: Reportable {
    fileprivate var json: JSONValue { .array(map(\.json)) }
}

extension BothSides: Reportable where Value: Reportable {
    fileprivate var json: JSONValue { object(["dialer": dialer, "acceptor": acceptor]) }
}

extension Summary: Reportable {
    fileprivate var json: JSONValue {
        object([
            "median": median, "least": least, "most": most, "spread": spread, "count": count,
        ])
    }
}

extension Ratio: Reportable {
    fileprivate var json: JSONValue {
        object([
            "name": name, "limit": referenceName, "basis": basis.rawValue,
            "less-is-better": lessIsBetter,
            "median": summary.median, "least": summary.least, "most": summary.most,
            "spread": summary.spread, "count": summary.count,
        ])
    }
}

extension EngineScenario.Result: Reportable {
    fileprivate var json: JSONValue {
        object([
            "protocol": protocolName, "layer": layer, "library": library, "size": size,
            "nanoseconds": time, "ratio-to-raw": ratio,
        ])
    }
}

extension HandshakeScenario.Result: Reportable {
    fileprivate var json: JSONValue {
        object([
            "protocol": name, "dialer-nanoseconds": time.dialer,
            "acceptor-nanoseconds": time.acceptor, "flights": flights, "bytes": bytes,
            "primitives": reference?.calls == nil ? nil : reference,
            "openssl": reference?.calls == nil ? reference : nil,
        ])
    }
}

extension HandshakeScenario.Reference: Reportable {
    fileprivate var json: JSONValue {
        guard let calls else { return object(["nanoseconds": time, "ratio": ratio]) }
        return object([
            "nanoseconds": time, "ratio": ratio, "key-pairs": calls.keyPairs,
            "dh-operations": calls.dhOperations, "hashes": calls.hashes, "hkdfs": calls.hkdfs,
            "seals": calls.seals, "opens": calls.opens,
        ])
    }
}

extension LinkScenario.Result: Reportable {
    fileprivate var json: JSONValue {
        object([
            "transport": transport, "engine": engine, "size": size, "rounds": rounds,
            "goodput-bytes-per-second": goodput,
            "goodput-ratio-to-plain": goodputRatio,
            "goodput-ratio-to-blocking-c": goodputRatioToBlocking,
            "round-trip-nanoseconds": roundTrip,
            "round-trip-ratio-to-plain": roundTripRatio,
            "round-trip-ratio-to-blocking-c": roundTripRatioToBlocking,
        ])
    }
}

extension LinkScenario.Percentiles: Reportable {
    fileprivate var json: JSONValue {
        object(["p50": p50, "p90": p90, "p99": p99, "max": longest])
    }
}

extension SDUScenario.Result: Reportable {
    fileprivate var json: JSONValue {
        object([
            "engine": link.engine, "mtu": sizes.mtu, "sdu": sizes.sdu, "size": link.size,
            "rounds": link.rounds, "goodput-bytes-per-second": link.goodput,
            "goodput-ratio-to-plain": link.goodputRatio,
        ])
    }
}

extension PacketScenario.Result: Reportable {
    fileprivate var json: JSONValue {
        object([
            "engine": engine, "size": size, "messages": messages, "sdus": sdus,
            "sdu-bytes": sduBytes, "message-share": messageShare, "packets": packets,
            "packets-computed": computedPackets,
        ])
    }
}

extension StoreScenario.Result: Reportable {
    fileprivate var json: JSONValue {
        object([
            "size": size, "messages": messages, "rounds": rounds, "messages-per-second": rate,
            "ratio-to-no-stores": rateRatio, "commits-per-second": commitRate,
            "messages-per-commit": messagesPerCommit,
        ])
    }
}

extension StreamScenario.Result: Reportable {
    fileprivate var json: JSONValue {
        object([
            "transport": transport, "rounds": rounds,
            "round-trip-nanoseconds": object([
                "idle": idle, "busy": busy, "paced-idle": pacedIdle, "paced": pacedBusy,
            ]),
            "round-trip-ratio-to-idle": object(["busy": busyRatio, "paced": pacedRatio]),
            "goodput-bytes-per-second": goodput,
            "goodput-ratio-to-alone": object([
                "busy": busyShare, "paced": pacedShare, "two-streams": twoStreamsRatio,
            ]),
        ])
    }
}

extension ManyScenario.Result: Reportable {
    fileprivate var json: JSONValue {
        object([
            "engine": engine, "transport": link.rawValue, "channels": channels,
            "opened-per-second": handshakeRate, "goodput-bytes-per-second": goodput,
            "batch-goodput-bytes-per-second": batchGoodput, "goodput-ratio-to-c": goodputRatioToC,
            "batch-goodput-ratio-to-c": batchRatioToC, "slowest-over-mean": fairness, "idle": idle,
            "busy": busy,
        ])
    }
}

extension ManyScenario.Cost: Reportable {
    fileprivate var json: JSONValue {
        object([
            "resident-bytes-per-end": memory, "heap-bytes-per-end": heap,
            "descriptors-per-end": descriptors, "threads": threads, "maps": maps,
            "locked-bytes": locked,
        ])
    }
}

extension LoopsScenario.Result: Reportable {
    fileprivate var json: JSONValue {
        object([
            "engine": engine, "transport": link.rawValue, "channels": channels, "loops": loops,
            "opened-per-second": handshakeRate.median,
            "opened-ratio-to-one-loop": handshakeRate.ratioToOneLoop,
            "goodput-bytes-per-second": goodput.median,
            "goodput-ratio-to-one-loop": goodput.ratioToOneLoop,
            "batch-goodput-bytes-per-second": batchGoodput.median,
            "batch-goodput-ratio-to-one-loop": batchGoodput.ratioToOneLoop,
        ])
    }
}

extension ListenerScenario.Result: Reportable {
    fileprivate var json: JSONValue {
        object([
            "engine": engine, "dialers": dialerCount, "processor-nanoseconds-per-channel": time,
            "limit-nanoseconds": limit, "ratio-to-limit": ratioToLimit,
        ])
    }
}

extension FloodScenario.Result: Reportable {
    fileprivate var json: JSONValue {
        object([
            "engine": engine, "handshakes-per-second-alone": rateAlone,
            "handshakes-per-second-flooded": rateInFlood, "failed-share": failedShare,
            "flood-links-ended-per-second": endedLinkRate, "known-peers": groups,
        ])
    }
}

extension FloodScenario.Result.Group: Reportable {
    fileprivate var json: JSONValue {
        object([
            "flood": flood.rawValue,
            "minimum-simulated-round-trip-milliseconds": kind.roundTrip.lowerBound,
            "maximum-simulated-round-trip-milliseconds": kind.roundTrip.upperBound,
            "dials": outcome.dials, "served-at-once-share": outcome.servedAtOnceShare,
            "served-share": outcome.servedShare,
        ])
    }
}

extension UnauthenticatedCost: Reportable {
    fileprivate var json: JSONValue {
        object([
            "engine": engine, "resident-bytes-silent": bytesOfSilentPeer,
            "resident-bytes-answered": bytesOfAnsweredPeer,
            "resident-bytes-unfinished": bytesOfUnfinishedMessage,
            "processor-nanoseconds": processorTime,
        ])
    }
}

extension RadioScenario.Result: Reportable {
    fileprivate var json: JSONValue {
        object([
            "modelled": true, "variation": variation, "engine": engine ?? "bare",
            "phy": parameters.phy.rawValue, "interval-nanoseconds": Int(parameters.interval),
            "data-length": parameters.dataLength, "link-encrypted": parameters.isLinkEncrypted,
            "loss": parameters.loss, "seed": Int(parameters.seed), "mtu": parameters.mtu,
            "sdu": parameters.sdu, "mps": parameters.mps,
            "credits": parameters.credits == .linux ? "linux" : "ample",
            "host-delay-nanoseconds": Int(parameters.hostDelay),
            "limit-bytes-per-second": parameters.goodputLimit, "goodput-bytes-per-second": goodput,
            "goodput-ratio-to-bare": ratio, "first-message-nanoseconds": messageCosts?.firstMessage,
            "short-message": messageCosts.map { costs in
                let sent = costs.shortMessageTraffic
                return object([
                    "bytes": RadioScenario.shortMessageSize, "sdus": sent.sdus,
                    "sdu-bytes": sent.bytes, "packets": sent.packets,
                ])
            },
        ])
    }
}

extension RadioStreams.Result: Reportable {
    fileprivate var json: JSONValue {
        object([
            "modelled": true, "phy": parameters.phy.rawValue,
            "interval-nanoseconds": Int(parameters.interval), "idle-nanoseconds": idle,
            "busy-nanoseconds": busy, "limit-nanoseconds": longestAllowed,
            "goodput-bytes-per-second": goodput, "goodput-ratio-to-alone": share,
        ])
    }
}

extension RadioStreams.Times: Reportable {
    fileprivate var json: JSONValue { object(["median": median, "most": longest]) }
}
