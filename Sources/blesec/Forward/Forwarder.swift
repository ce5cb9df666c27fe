internal import BLESec
internal import BLESecJSON
internal import BLESecLinks
internal import BLESecToolKit

/// Carries local connections as streams of one connection to a peer.
struct Forwarder: Sendable {
    let connection: PeerConnection
    /// The targets that the peer may reach here, by their descriptions.
    let allowed: [String: ForwardTarget]

    /// Why a stream is reset.
    private enum Reason: UInt32 {
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
            while !Task.isCancelled {
                do {
                    let link = try await listener.accept()
                    // While too many streams are open, further connections wait in the kernel.
                    let stream = try await connection.open(target.description)
                    group.addTask { await carry(link, stream, to: target) }
                } catch let error as LinkError {
                    if error.code == .closed || error.code == .cancelled { return }
                    // Descriptors or memory ran out: wait until some are freed.
                    Self.note("forward-failed", "\(error)", "\(target)", at: -1)
                    try? await connection.loop.sleep(for: .milliseconds(100))
                } catch {
                    return
                }
            }
        }
    }

    private func carry(
        _ link: any Link, _ stream: PeerConnection.Stream, to target: ForwardTarget
    ) async {
        await splice(ForwardedSocket(link), stream)
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
                group.addTask { await serve(stream) }
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
        let loop = connection.loop
        do throws(LinkError) {
            let link = try await target.dial(
                until: loop.now.advanced(by: Self.dialTimeout), on: loop)
            await splice(ForwardedSocket(link), stream)
        } catch {
            // This side's end has cancelled the dial, so it says nothing about the target.
            guard error.code != .cancelled else { return await Self.refuse(stream, .broken) }
            Self.note("forward-failed", "\(error)", "\(target)", at: -1)
            await Self.refuse(stream, .notReached)
        }
    }

    /// Reports why a connection to a target is not carried.
    private static func note(
        _ event: String, _ reason: String, _ target: String, at level: Int = 0
    ) {
        let fields: [(String, JSONValue)] = [
            ("target", .string(target)), ("reason", .string(reason)),
        ]
        Diagnostics.note("forward: \(reason)", event, fields, at: level)
    }

    /// Refuses each stream that the peer opens, for a command that carries no connections. If the
    /// peer runs `blesec forward`, it reports that its target is not allowed.
    static func refuseStreams(of connection: PeerConnection) async {
        for await stream in connection.incomingStreams { await refuse(stream, .notAllowed) }
    }

    /// Waits for a message of the peer, and returns an error, since the command that belongs to
    /// `command` sends none. Returns nil when no message can come, or when the task is cancelled.
    static func awaitMessage(
        on connection: PeerConnection, _ command: String
    ) async -> ChannelError? {
        guard (try? await connection.receive()) != nil else { return nil }
        return ChannelError(
            .protocolViolation,
            "the peer has sent a message, so it runs another command: \(command)")
    }

    private static func refuse(_ stream: PeerConnection.Stream, _ reason: Reason) async {
        await stream.reset(code: reason.rawValue)
        await stream.stop(code: reason.rawValue)
    }

    /// Moves bytes both ways until both directions have ended. If one direction fails, both end.
    private func splice(_ socket: ForwardedSocket, _ stream: PeerConnection.Stream) async {
        let isComplete = await withTaskGroup(of: Bool.self) { group in
            group.addTask {
                do {
                    while let bytes = try await socket.read() { try await stream.write(bytes) }
                    await stream.finish()
                    return true
                } catch {
                    return false
                }
            }
            group.addTask {
                do {
                    while let bytes = try await stream.read() { try await socket.write(bytes) }
                    await socket.finish()
                    return true
                } catch {
                    return false
                }
            }
            var isComplete = true
            for await hasSucceeded in group where !hasSucceeded {
                isComplete = false
                group.cancelAll()
            }
            return isComplete
        }
        if !isComplete {
            await stream.reset(code: Reason.broken.rawValue)
            await stream.stop(code: Reason.broken.rawValue)
        }
        await socket.close(inOrder: isComplete)
    }
}
