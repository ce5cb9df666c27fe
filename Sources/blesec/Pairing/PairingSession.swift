internal import BLESec
internal import BLESecLocking
internal import BLESecToolKit

/// One run of `blesec pair`. The run dials or accepts peers until one of them is paired, a failure
/// ends the run (`TrustPolicy.Pairing.finalError`), or the time is over.
final class PairingSession: Sendable {
    private let method: TrustPolicy.Pairing
    private let place: PairingPlace
    private let configuration: ChannelConfiguration
    private let limit: TimeLimit
    private let remedyAfterLimit: String
    private let log = FailureLog()
    /// Closes the listener or the service; nil if there is none.
    private let closing = Locked<(@Sendable () async -> Void)?>(nil)
    /// The endpoint that was last dialed, and the description of the link to it.
    private let dialed = Locked<(linkDescription: String, endpoint: Endpoint)?>(nil)
    /// The errors that end the wait for a peer; only the first one counts.
    private let finalErrors: AsyncStream<ChannelError>
    private let finalErrorFeed: AsyncStream<ChannelError>.Continuation
    /// The first error `mayBePaired`: a peer may have completed a pairing that failed here.
    private let uncertainty = Locked<ChannelError?>(nil)

    /// - Parameters:
    ///   - limit: how long this side waits for bluetoothd and a paired peer.
    ///   - remedy: what the user can do when the limit has passed; a part of the error's text.
    init(
        method: TrustPolicy.Pairing, place: PairingPlace, configuration: ChannelConfiguration,
        limit: TimeLimit, afterLimit remedy: String
    ) {
        self.method = method
        self.place = place
        self.configuration = configuration
        self.limit = limit
        remedyAfterLimit = remedy
        (finalErrors, finalErrorFeed) = AsyncStream.makeStream()
    }

    /// The endpoint at which this side has dialed the channel's peer; nil if the peer has dialed, or
    /// if the channel's link has no endpoint.
    func dialedEndpoint(of channel: SecureChannel) -> Endpoint? {
        guard let dialed = dialed.withLock({ $0 }),
            dialed.linkDescription == channel.linkDescription
        else { return nil }
        return dialed.endpoint
    }

    /// Closes the channel of a paired peer, and the listener or the service.
    ///
    /// Each side stores the other when the other's last record of the pairing has arrived. The
    /// acceptor of this channel has the dialer's last record. The dialer may not know yet that this
    /// record has arrived. It knows this when the acceptor ends the channel, or acknowledges the
    /// dialer's end.
    ///
    /// - Throws: `mayBePaired` if the acceptor has done neither.
    func close(_ channel: SecureChannel) async throws(ChannelError) {
        let failure: ChannelError
        do throws(ChannelError) {
            try await channel.close(within: .seconds(5))
            return await end()
        } catch {
            failure = error
        }
        await channel.abort()
        await end()
        guard place.isDialing, await channel.peerEndReason == nil,
            await !channel.hasAcknowledgement
        else { return }
        throw ChannelError(
            .mayBePaired,
            "this side and the peer may be paired: this side has stored the peer, and the peer has "
                + "not confirmed that it has stored this side; pair again within 24 hours to complete "
                + "it (\(failure.reason))")
    }

    /// Closes the listener or the service.
    func end() async {
        let close = closing.withLock { $0.take() }
        await close?()
    }

    /// Waits until a peer is paired. `show` is called as soon as peers can connect.
    func pair(
        _ show: @escaping @Sendable () throws(ChannelError) -> Void
    ) async throws(ChannelError) -> SecureChannel {
        let limit = limit.begun
        do throws(ChannelError) {
            let meet = try await begin(within: limit)
            try show()
            return try await waitForPeer(meet, within: limit)
        } catch {
            await end()
            // `end()` may have interrupted a pairing in its last confirmations. `uncertainty` is then
            // set.
            throw uncertainty.withLock { $0 } ?? error
        }
    }

    /// Dials, or waits until a peer has connected; returns the channel of the paired peer.
    private typealias Meet = @Sendable () async throws(ChannelError) -> SecureChannel

    /// Starts the listener or the service, if there is one, and returns the function that meets
    /// the peer. `limit` is the time limit for the wait for bluetoothd.
    private func begin(within limit: TimeLimit) async throws(ChannelError) -> Meet {
        let configuration = configuration
        switch place.meeting {
        case .dialing(let endpoint):
            return { [dialed] () async throws(ChannelError) in
                let channel = try await SecureChannel.dial(endpoint, configuration: configuration)
                dialed.withLock { $0 = (channel.linkDescription, endpoint) }
                return channel
            }
        case .listening(let endpoint):
            let listener = try await SecureListener.listen(
                on: endpoint, configuration: configuration)
            let failures = await listener.failures()
            let watching = Task(executorPreference: listener.loop) { [weak self] in
                for await failure in failures { self?.note(failure, as: .acceptor) }
            }
            closing.withLock {
                $0 = {
                    await listener.close()
                    await watching.value
                }
            }
            ChannelNotes.listening(listener.localEndpoint)
            return { () async throws(ChannelError) in try await listener.accept() }
        case .nearby(let settings, let advertises):
            let service = try await settings.start(configuration, within: limit) {
                [weak self] event in self?.note(event)
            }
            closing.withLock { $0 = { await service.close() } }
            if advertises {
                await NearbyNotes.advertising(service)
            } else {
                NearbyNotes.looking(service)
            }
            return { () async throws(ChannelError) in try await service.next() }
        }
    }

    /// Waits for a paired peer, for an error that ends the wait, or for the time limit, whichever
    /// comes first.
    private func waitForPeer(
        _ meet: @escaping Meet, within limit: TimeLimit
    ) async throws(ChannelError) -> SecureChannel {
        let result = await withTaskGroup(of: Result<SecureChannel, ChannelError>.self) { group in
            group.addTask {
                do throws(ChannelError) {
                    return .success(try await meet())
                } catch {
                    return .failure(error)
                }
            }
            group.addTask { [finalErrors] in
                for await error in finalErrors { return .failure(error) }
                return .failure(ChannelError(.cancelled, "interrupted"))
            }
            group.addTask { [remedyAfterLimit] in
                try? await limit.wait()
                return .failure(PairingSession.tooLate(remedyAfterLimit))
            }
            let first = await group.next()
            group.cancelAll()
            var results = first.map { [$0] } ?? []
            for await other in group { results.append(other) }
            // Meanwhile another task may have returned a paired peer. Such a success takes
            // precedence over `mayBePaired`, and `mayBePaired` over the first result.
            return results.first { if case .success = $0 { true } else { false } }
                ?? results.first {
                    if case .failure(let error) = $0 { error.code == .mayBePaired } else { false }
                }
                ?? first ?? .failure(ChannelError(.cancelled, "interrupted"))
        }
        return try result.get()
    }

    // MARK: - Failures

    /// The error when the limit has passed. `remedy` says what the user can do.
    static func tooLate(_ remedy: String) -> ChannelError {
        ChannelError(.timedOut, "nobody has paired in time: \(remedy)")
    }

    private func note(_ event: NearbyEvent) {
        switch event {
        case .handshaking(let candidate, let endpoint):
            dialed.withLock {
                $0 = endpoint.map {
                    (linkDescription: candidate.address.description, endpoint: $0)
                }
            }
        case .dialFailed(let candidate, let error):
            note(PeerFailure(peer: candidate.address.description, error: error), as: .dialer)
        case .acceptFailed(let failure): note(failure, as: .acceptor)
        case .adapter(let state): NearbyNotes.adapter(state)
        default: break
        }
    }

    /// Notes that a channel, on which this side has `role`, has failed.
    private func note(_ failure: PeerFailure, as role: ChannelRole) {
        let error = failure.error
        if error.code == .mayBePaired {
            uncertainty.withLock { $0 = $0 ?? error }
            finalErrorFeed.yield(error)
        } else {
            log.note(failure)
            // `cannotCreate` comes only from this side's store, which could not store another peer
            // either.
            if error.code == .cannotCreate { finalErrorFeed.yield(error) }
            if let error = method.finalError(after: error, as: role) { finalErrorFeed.yield(error) }
        }
    }
}
