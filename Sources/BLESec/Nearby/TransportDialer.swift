internal import BLESecChannelCore
internal import BLESecDiscovery
internal import BLESecL2CAP
internal import BLESecLinks

/// Finds out over which transport a connected candidate accepts a channel, and opens the transport.
///
/// The transport is opened only after bluetoothd has queried the peer's services; if the PSM is
/// known, the wait for this query is limited (``knownPSMDelay``). During the query, the peer's
/// bluetoothd can open L2CAP channels of its own (enhanced ATT), and kernels confuse the signalling
/// of two sides that open channels at the same time.
final class TransportDialer {
    /// The time limit for opening the transport.
    private static let openTimeout = Duration.seconds(4)
    /// How long bluetoothd's query of a candidate's services may delay a dial to a known PSM.
    private static let knownPSMDelay = Duration.seconds(2)
    /// The time limit for querying a candidate over GATT.
    private static let queryTimeout = Duration.seconds(10)

    private let setup: NearbySetup
    /// PSMs that were read over GATT.
    private var psms = PSMCache()
    /// PSMs on which no peer listened.
    private var refusedPSMs = PSMCache()

    private enum Transport {
        case l2cap(PSM)
        case gattStream(GATTStreamDialer)
    }

    init(_ setup: NearbySetup) { self.setup = setup }
    private var loop: EventLoop { setup.loop }
    private var transports: NearbyOptions.Transports { setup.options.transports }
    /// Forgets the PSM that was read from a candidate.
    func forget(_ candidate: Candidate) { psms[candidate] = nil }

    /// Opens the transport, and returns the link. Also returns the endpoint that can be dialed again
    /// without a query over GATT; `nil` for a stream over GATT.
    ///
    /// - Parameter advertised: the PSM that the candidate advertises.
    func open(
        _ candidate: Candidate, advertised: PSM?
    ) async throws(ChannelError) -> (link: any Link, endpoint: Endpoint?) {
        let address = candidate.address
        switch try await transport(of: candidate, advertised) {
        case .l2cap(let psm):
            let target = L2CAPAddress(device: address.address, type: address.type, psm: psm)
            return (try await dial(target, candidate), Endpoint(target))
        case .gattStream(let stream): return (try await dial(stream), nil)
        }
    }

    /// Returns the candidate's transport: from an earlier GATT read, from its advertisement, or
    /// from a GATT read now. Throws `noSuchPeer` if this read finds no transport either.
    private func transport(
        of candidate: Candidate, _ advertised: PSM?
    ) async throws(ChannelError) -> Transport {
        let device = setup.adapter.device(candidate.address)
        if let psm = knownPSM(of: candidate, advertised) {
            // A known PSM needs no query, but bluetoothd's query should end before the dial.
            let delayEnd = loop.now.advanced(by: Self.knownPSMDelay)
            do throws(DiscoveryError) {
                try await device.waitForServices(until: delayEnd)
            } catch {
                // Other errors do not matter: if the link was lost, the kernel makes another link.
                guard error.code != .cancelled else {
                    throw ChannelError(discovery: error).during(.connecting)
                }
            }
            return .l2cap(psm)
        }
        let deadline = loop.now.advanced(by: Self.queryTimeout)
        do throws(DiscoveryError) {
            try await device.waitForServices(until: deadline)
            if transports.contains(.l2cap),
                let psm = try await device.readPSM(of: setup.service, until: deadline)
            {
                psms[candidate] = psm
                return .l2cap(psm)
            }
            let stream = try await GATTStreamDialer(to: setup.service, of: device)
            if transports.contains(.gattStream), let stream { return .gattStream(stream) }
        } catch {
            throw ChannelError(discovery: error).during(.connecting)
        }
        throw ChannelError(
            .noSuchPeer,
            "\(device.address) offers the service, but nothing that a channel may run over",
            phase: .connecting)
    }

    private func knownPSM(of candidate: Candidate, _ advertised: PSM?) -> PSM? {
        guard transports.contains(.l2cap) else { return nil }
        if let psm = psms[candidate] { return psm }
        return advertised == refusedPSMs[candidate] ? nil : advertised
    }

    private func dial(_ stream: GATTStreamDialer) async throws(ChannelError) -> any Link {
        do throws(DiscoveryError) {
            return try await stream.dial(until: loop.now.advanced(by: Self.openTimeout))
        } catch {
            throw ChannelError(discovery: error).during(.connecting)
        }
    }

    private func dial(
        _ target: L2CAPAddress, _ candidate: Candidate
    ) async throws(ChannelError) -> any Link {
        do throws(LinkError) {
            return try await SocketLink.dial(
                target, from: try Adapter.named(setup.adapter.name.description),
                deadline: loop.now.advanced(by: Self.openTimeout), loop: loop)
        } catch {
            // The peer may have another PSM now. The next dial reads the PSM over GATT, unless the
            // candidate then advertises a PSM other than the refused one.
            if error.code == .refused { refusedPSMs[candidate] = target.psm }
            throw ChannelError(link: error).during(.connecting)
        }
    }
}
