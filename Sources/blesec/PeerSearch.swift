internal import BLESec
internal import Locking
internal import ToolKit

/// Finds a peer by a service, or first where it was last.
final class PeerSearch: Sendable {
    /// How long is waited for a peer where it was last.
    private static let patience = Duration.seconds(4)

    private let settings: NearbyArguments
    private let configuration: ChannelConfiguration
    private let notes: ConnectionNotes

    private struct State: Sendable {
        var last: Endpoint?
        var service: NearbyService?
    }
    private let state: Locked<State>

    init(
        _ settings: NearbyArguments, _ configuration: ChannelConfiguration, last: Endpoint?,
        _ notes: ConnectionNotes
    ) {
        var settings = settings
        settings.options.accepts = false
        settings.options.rules.links = 1
        self.settings = settings
        self.configuration = configuration
        self.notes = notes
        state = Locked(State(last: last))
    }

    /// Looks for someone who is accepted, and for nobody else once there is a channel. One at a time.
    func dial(_ progress: @escaping PeerRoute.Progress) async throws(ChannelError) -> SecureChannel
    {
        // Where it was once is tried once.
        if let last = state.withLock({ $0.last.take() }),
            let channel = try await dial(last, progress)
        {
            return channel
        }
        let service = try await service()
        await service.observe { event in
            switch event {
            case .dialing: progress(.dialing)
            case .opening: progress(.opening)
            case .handshaking: progress(.handshaking)
            case .dialFailed: progress(.searching)
            case .adapter, .advertising, .acceptFailed, .duplicate: break
            }
        }
        progress(.searching)
        return try await service.next()
    }

    /// Ends the search. A channel that has come of it lives on.
    func end() async { await state.withLock({ $0.service.take() })?.close() }

    private func dial(
        _ last: Endpoint, _ progress: PeerRoute.Progress
    ) async throws(ChannelError) -> SecureChannel? {
        var endpoint = last
        endpoint.adapter = settings.options.adapter
        Diagnostics.note(
            "dialing \(endpoint), where the peer was last", "dialing",
            [("endpoint", .string(endpoint.description))])
        var configuration = configuration
        configuration.deadlines.connect = min(configuration.deadlines.connect, Self.patience)
        do throws(ChannelError) {
            let channel = try await PeerRoute.dial(endpoint, configuration, progress)
            notes.reached(endpoint, over: channel.linkDescription)
            return channel
        } catch {
            if [.cancelled, .configuration].contains(error.code) { throw error }
            return nil
        }
    }

    private func service() async throws(ChannelError) -> NearbyService {
        if let service = state.withLock({ $0.service }) { return service }
        let service = try await NearbyService.start(
            settings.service, configuration: configuration, options: settings.options,
            onEvent: notes.take)
        NearbyNotes.looking(service)
        state.withLock { $0.service = service }
        return service
    }
}
