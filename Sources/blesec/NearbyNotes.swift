internal import BLESec
internal import BLESecJSON
internal import BLESecToolKit

/// Messages on standard error about searching and advertising.
struct NearbyNotes: Sendable {
    let failures: FailureLog

    var onEvent: @Sendable (NearbyEvent) -> Void {
        { [failures] event in
            switch event {
            case .adapter(let state): Self.adapter(state)
            case .advertising(let state): Self.advertising(state)
            case .dialFailed(let candidate, let error):
                failures.note(PeerFailure(peer: candidate.address.description, error: error))
            case .dialCancelled: break
            case .acceptFailed(let failure): failures.note(failure)
            case .duplicate(let peer):
                Diagnostics.note(
                    "ended one of two channels to \(peer)", "duplicate",
                    [("peer", .string(peer.description))])
            case .dialing(let candidate): Self.reportStep("dialing", candidate, at: 1)
            case .opening(let candidate): Self.reportStep("opening", candidate, at: 2)
            case .handshaking(let candidate, _): Self.reportStep("handshaking", candidate, at: 2)
            }
        }
    }

    /// Reports a step of an attempt to reach a candidate, with `--verbose`.
    private static func reportStep(_ step: String, _ candidate: Candidate, at level: Int) {
        let address = candidate.address.description
        Diagnostics.note(
            "\(step) \(address)", step, [("address", .string(address))], at: level)
    }

    /// Reports the adapter's state, such as `the adapter is on again`.
    static func adapter(_ state: AdapterState) {
        let text =
            switch state {
            case .noService: "bluetoothd has gone; waiting for it to come back"
            case .absent: "the adapter has gone; waiting for it to come back"
            case .off: "the adapter was switched off; waiting for it to be on again"
            case .blocked: "the adapter was blocked; waiting for `rfkill unblock bluetooth`"
            case .on: "the adapter is on again"
            }
        Diagnostics.note(text, "adapter", [("state", .string(state.rawValue))])
    }

    /// Reports `advertising again`, or why the service is not advertised.
    private static func advertising(_ state: AdvertisingState) {
        let (text, name) =
            switch state {
            case .on: ("advertising again", "on")
            case .crowded:
                ("advertising stops for 30 s: too many peers failed to prove a key", "crowded")
            case .failed(let error): ("cannot advertise again: \(error.reason)", "failed")
            }
        Diagnostics.note(text, "advertising-changed", [("state", .string(name))])
    }

    /// `looking for UUID on hci0`
    static func looking(_ service: NearbyService) {
        Diagnostics.note(
            "looking for \(service.service) on \(service.adapter)", "looking", members(service))
    }

    /// `advertising UUID on hci0: l2cap:…`, or `gatt` where there is no L2CAP
    static func advertising(_ service: NearbyService) async {
        let address = await service.localAddress?.description ?? "gatt"
        Diagnostics.note(
            "advertising \(service.service) on \(service.adapter): \(address)", "advertising",
            members(service) + [("endpoint", .string(address))])
    }

    private static func members(_ service: NearbyService) -> [(String, JSONValue)] {
        [
            ("service", .string(service.service.description)),
            ("adapter", .string(service.adapter)),
        ]
    }
}
