internal import BLESec
internal import BLESecJSON
internal import BLESecLocking
internal import BLESecToolKit

/// Finds a peer at its last address, or else by its service.
final class PeerSearch: Sendable {
    /// A peer's last address.
    typealias LastAddress = (endpoint: Endpoint, peer: PeerKey)

    /// The time limit for dialing the last address.
    private static let dialLimit = Duration.seconds(4)

    private let settings: NearbyArguments
    private let configuration: ChannelConfiguration
    private let memory: PeerMemory
    private let notes: ConnectionNotes

    private struct State: Sendable {
        /// The last address; nil if it is unknown, or was dialed already.
        var lastAddress: LastAddress?
        /// An error at the last address that says more than a failed search: the device there shows
        /// a different key, refuses this side, or is this device itself.
        var addressError: ChannelError?
        var service: NearbyService?
        /// The function to which the present search reports its state.
        var progress: PeerRoute.Progress?
    }
    private let state: Locked<State>

    init(
        _ settings: NearbyArguments, _ configuration: ChannelConfiguration, last: LastAddress?,
        _ memory: PeerMemory, _ notes: ConnectionNotes
    ) {
        var settings = settings
        settings.options.accepts = false
        settings.options.rules.links = 1
        self.settings = settings
        self.configuration = configuration
        self.memory = memory
        self.notes = notes
        state = Locked(State(lastAddress: last))
    }

    /// Dials the last address, if there is one that was not tried yet. If there is none, or if
    /// dialing fails, searches for a peer that the trust policy admits. Only one call may run at a time.
    func dial(_ progress: @escaping PeerRoute.Progress) async throws(ChannelError) -> SecureChannel
    {
        if let last = state.withLock({ $0.lastAddress.take() }),
            let channel = try await dial(last, progress)
        {
            return channel
        }
        do throws(ChannelError) {
            let channel = try await search(progress)
            state.withLock { $0.addressError = nil }
            return channel
        } catch {
            throw explained(error)
        }
    }

    /// The error to report: if the search found no peer, an error at the last address takes
    /// precedence over `error`, which ended the search.
    func explained(_ error: ChannelError) -> ChannelError {
        guard [.timedOut, .noSuchAdapter, .permission, .link].contains(error.code),
            var addressError = state.withLock({ $0.addressError })
        else { return error }
        addressError.reason += "; elsewhere it was not found: \(error.reason)"
        return addressError
    }

    private func search(
        _ progress: @escaping PeerRoute.Progress
    ) async throws(ChannelError) -> SecureChannel {
        let service = try await service()
        state.withLock { $0.progress = progress }
        progress(.searching)
        return try await service.next()
    }

    /// Reports the state of the search that follows from an event of the service.
    private func report(_ event: NearbyEvent) {
        guard let progress = state.withLock({ $0.progress }) else { return }
        switch event {
        case .dialing: progress(.dialing)
        case .opening: progress(.opening)
        case .handshaking: progress(.handshaking)
        case .dialFailed: progress(.searching)
        // A dial is cancelled when the candidate's own link is accepted, or when the search ends.
        // This service accepts no links, so only the end of the search remains.
        case .dialCancelled, .adapter, .advertising, .acceptFailed, .duplicate: break
        }
    }

    /// Ends the search. A channel that the search has made stays open.
    func end() async { await state.withLock({ $0.service.take() })?.close() }

    private func dial(
        _ last: LastAddress, _ progress: PeerRoute.Progress
    ) async throws(ChannelError) -> SecureChannel? {
        var endpoint = last.endpoint
        endpoint.adapter = settings.options.adapter
        Diagnostics.note(
            "dialing \(endpoint), where the peer was last", "dialing",
            [("endpoint", .string(endpoint.description))])
        var configuration = configuration
        configuration.timeouts.connect = min(configuration.timeouts.connect, Self.dialLimit)
        do throws(ChannelError) {
            let channel = try await PeerRoute.dial(endpoint, configuration, progress)
            notes.didDial(endpoint, linkDescription: channel.linkDescription)
            return channel
        } catch {
            if [.cancelled, .configuration].contains(error.code) { throw error }
            let isUseful = [.refused, .selfConnection].contains(error.code)
            let addressError =
                memory.changedKeyError(error, of: last.peer, at: endpoint)
                ?? (isUseful ? error : nil)
            state.withLock { $0.addressError = addressError }
            return nil
        }
    }

    private func service() async throws(ChannelError) -> NearbyService {
        if let service = state.withLock({ $0.service }) { return service }
        let service = try await NearbyService.start(
            settings.service, configuration: configuration, options: settings.options
        ) { [weak self, onEvent = notes.onEvent] event in
            onEvent(event)
            self?.report(event)
        }
        if let addressError = state.withLock({ $0.addressError }) {
            let text = "\(addressError.reason); looking for it elsewhere"
            Diagnostics.note(text, "elsewhere", addressError.members)
        }
        NearbyNotes.looking(service)
        state.withLock { $0.service = service }
        return service
    }
}
