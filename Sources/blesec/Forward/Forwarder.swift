internal import BLESec
internal import BLESecJSON
internal import BLESecLinks
internal import BLESecToolKit

/// Carries local connections as streams of one connection to a peer.
struct Forwarder: Sendable {
    let connection: PeerConnection
    /// The targets that the peer may reach here, by their descriptions.
    let allowed: [String: ForwardTarget]
    /// The places for the connections that this side forwards to the peer, and for the connections
    /// that the peer forwards to this side.
    private let ownPlaces, peerPlaces: ForwardPlaces

    init(connection: PeerConnection, allowed: [String: ForwardTarget]) {
        self.connection = connection
        self.allowed = allowed
        func places(_ side: String) -> ForwardPlaces {
            ForwardPlaces(loop: connection.loop) { count in
                Self.note(
                    "forward-waiting",
                    "\(count) connections \(side) are carried; further ones wait until one ends",
                    nil)
            }
        }
        ownPlaces = places("to the peer")
        peerPlaces = places("from the peer")
    }

    /// Why a stream is reset.
    enum Reason: UInt32 {
        /// The stream, or the local connection, did not end in good order.
        case broken = 0
        case notAllowed = 1
        case notReached = 2
    }

    private static let dialTimeout: Duration = .seconds(10)

    /// Accepts connections from `listener`, and forwards each to `target` on the peer's side, until
    /// the task is cancelled.
    func forward(_ listener: ForwardListener, to target: ForwardTarget) async {
        let connection = connection
        await withDiscardingTaskGroup { group in
            while true {
                let socket: ForwardedSocket
                do throws(LinkError) {
                    socket = try await listener.accept()
                } catch {
                    if error.code == .closed || error.code == .cancelled { return }
                    // Descriptors or memory ran out: wait until some are freed.
                    Self.note("forward-failed", "\(error)", "\(target)", at: -1)
                    try? await connection.loop.sleep(for: .milliseconds(100))
                    continue
                }
                // The place is taken after the accept, so that a listener to which nobody connects
                // takes none. While all places are taken, one connection of each listener waits
                // here, and further ones wait in the kernel.
                guard await ownPlaces.take() else { return await socket.close(inOrder: false) }
                do throws(ChannelError) {
                    let stream = try await connection.open(target.description)
                    group.addTask {
                        await carry(socket, stream, to: target)
                        await ownPlaces.giveBack()
                    }
                } catch {
                    await socket.close(inOrder: false)
                    return await ownPlaces.giveBack()
                }
            }
        }
    }

    private func carry(
        _ socket: ForwardedSocket, _ stream: PeerConnection.Stream, to target: ForwardTarget
    ) async {
        await Splice(socket: socket, stream: stream).run()
        let problem: String? =
            switch stream.resetCode.flatMap(Reason.init(rawValue:)) {
            case .notAllowed: "the peer does not allow \(target)"
            case .notReached: "the peer cannot reach \(target)"
            case .broken, nil: nil
            }
        if let problem { Self.note("forward-failed", problem, "\(target)", at: -1) }
    }

    /// Serves each stream that the peer opens, until the task is cancelled: connects to the target
    /// that the stream's label names, and moves bytes both ways.
    func serve() async {
        await withDiscardingTaskGroup { group in
            for await stream in connection.incomingStreams {
                guard await peerPlaces.take() else { return await Self.refuse(stream, .broken) }
                group.addTask {
                    await serve(stream)
                    await peerPlaces.giveBack()
                }
            }
        }
    }

    private func serve(_ stream: PeerConnection.Stream) async {
        guard let target = allowed[stream.label] else {
            Self.note(
                "forward-refused", "the peer asked for \(stream.label), which is not allowed",
                stream.label)
            return await Self.refuse(stream, .notAllowed)
        }
        do throws(LinkError) {
            guard let socket = try await dial(target, for: stream) else { return }
            await Splice(socket: socket, stream: stream).run()
        } catch {
            // The dial was cancelled because this command ends, so the error says nothing about the
            // target.
            guard error.code != .cancelled else { return await Self.refuse(stream, .broken) }
            Self.note("forward-failed", "\(error)", "\(target)", at: -1)
            await Self.refuse(stream, .notReached)
        }
    }

    /// Connects to the target. Returns nil if the peer resets its direction, or the stream is lost,
    /// before the target has answered. A `stop` of the peer does not end the dial, since the target
    /// still has to get the peer's bytes.
    private func dial(
        _ target: ForwardTarget, for stream: PeerConnection.Stream
    ) async throws(LinkError) -> ForwardedSocket? {
        let loop = connection.loop
        let result = await withTaskGroup(of: Result<ForwardedSocket, LinkError>?.self) { group in
            group.addTask {
                do throws(LinkError) {
                    let link = try await target.dial(
                        until: loop.now.advanced(by: Self.dialTimeout), on: loop)
                    return .success(ForwardedSocket(link, isTCP: target.isTCP))
                } catch {
                    return .failure(error)
                }
            }
            group.addTask {
                await stream.waitUntilReset()
                return nil
            }
            let first = await group.next() ?? nil
            group.cancelAll()
            // The dial may have succeeded just as the stream ended.
            for await case .success(let socket)? in group { await socket.close(inOrder: false) }
            return first
        }
        return try result?.get()
    }

    /// Reports an event of forwarding. `target` is nil if the event concerns no single target.
    private static func note(
        _ event: String, _ reason: String, _ target: String?, at level: Int = 0
    ) {
        let fields: [(String, JSONValue)] = [
            ("target", target.map { .string($0) } ?? .null), ("reason", .string(reason)),
        ]
        Diagnostics.note("forward: \(reason)", event, fields, at: level)
    }

    /// Refuses each stream that the peer opens, for a command that carries no connections. A peer
    /// that runs `blesec forward` then reports that its target is not allowed.
    static func refuseStreams(of connection: PeerConnection) async {
        for await stream in connection.incomingStreams { await refuse(stream, .notAllowed) }
    }

    /// Waits for a message of the peer, and returns an error with `advice`: a peer that sends a
    /// message runs the wrong command. If `expectsNoEnd` is true, this also holds for a peer that
    /// ends its messages. Returns nil when no message can come, or when the task is cancelled.
    static func awaitMessage(
        on connection: PeerConnection, expectsNoEnd: Bool = false, _ advice: String
    ) async -> ChannelError? {
        let event: String
        do throws(ChannelError) {
            if try await connection.receive() != nil {
                event = "sent a message"
            } else {
                // `receive` also returns nil when the connection is closed.
                guard expectsNoEnd, await connection.status.state != .closed else { return nil }
                event = "ended its messages"
            }
        } catch {
            return nil
        }
        return ChannelError(
            .protocolViolation,
            "the peer has \(event), so it runs another command; \(advice)")
    }

    private static func refuse(_ stream: PeerConnection.Stream, _ reason: Reason) async {
        await stream.reset(code: reason.rawValue)
        await stream.stop(code: reason.rawValue)
    }
}
