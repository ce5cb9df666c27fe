internal import BLESec
internal import BLESecLinks

/// Moves bytes between a local connection and a stream, in both directions.
///
/// Each direction ends by itself: a program that takes no more bytes can still send, as over TCP.
struct Splice: Sendable {
    let socket: ForwardedSocket
    let stream: PeerConnection.Stream

    /// How a direction has ended.
    private enum End {
        /// All bytes and the end were passed on.
        case inOrder
        /// The receiver takes no more bytes, although the sender may have more.
        case refused
        /// The sender's end will not come.
        case broken
    }

    private enum Direction { case outgoing, incoming }

    /// When the sender of a direction has given up, the time in which the receiver can still take
    /// what was sent before.
    private static let grace: Duration = .seconds(3)

    /// Moves bytes until both directions have ended, and closes the connection.
    func run() async {
        await socket.begin()
        let isComplete = await withTaskGroup(of: (Direction, End).self) { group in
            group.addTask { (.outgoing, await send()) }
            group.addTask { (.incoming, await receive()) }
            var isComplete = true
            for await (direction, end) in group where end != .inOrder {
                isComplete = false
                if direction == .incoming { await socket.stopDiscarding() }
            }
            return isComplete
        }
        // The peer may have refused bytes, or the stream may be lost, after the local program's end.
        let isInOrder = isComplete && stream.sendingFailure == nil
        if !isInOrder { await socket.drain() }
        await socket.close(inOrder: isInOrder)
    }

    // MARK: - From the local program to the peer

    private func send() async -> End {
        let end = await first(
            { await sendAll() }, { await awaitFailureOfStream() }, { await awaitResetOfSocket() })
        switch end {
        case .inOrder: break
        case .refused: await socket.discardInput()
        case .broken:
            let code = Forwarder.Reason.broken.rawValue
            await stream.resetAfterWritten(code: code)
            _ = await first({ await awaitFailureOfStream() }, { await pause() })
            await stream.reset(code: code)
        }
        return end
    }

    private func sendAll() async -> End {
        do throws(LinkError) {
            while let bytes = try await socket.read() {
                do throws(ChannelError) {
                    try await stream.write(bytes)
                } catch {
                    return Self.end(after: error)
                }
            }
        } catch {
            return .broken
        }
        await stream.finish()
        return .inOrder
    }

    /// Waits until the stream takes no more bytes.
    private func awaitFailureOfStream() async -> End? {
        do throws(ChannelError) {
            try await stream.waitUntilTaken()
            return nil
        } catch {
            return error.code == .cancelled ? nil : Self.end(after: error)
        }
    }

    private static func end(after error: ChannelError) -> End {
        error.code == .streamReset ? .refused : .broken
    }

    /// Waits until the connection is reset, and then gives ``sendAll()`` the time to pass on what has
    /// arrived before.
    private func awaitResetOfSocket() async -> End? {
        await socket.waitUntilReset() ? await pause() : nil
    }

    private func pause() async -> End? {
        try? await socket.loop.sleep(for: Self.grace)
        return Task.isCancelled ? nil : .broken
    }

    // MARK: - From the peer to the local program

    private func receive() async -> End {
        let end = await first(
            { await receiveAll() }, { await awaitRefusal() }, { await awaitResetOfStream() })
        if case .refused = end { await stream.stop(code: Forwarder.Reason.broken.rawValue) }
        return end
    }

    private func receiveAll() async -> End {
        do throws(ChannelError) {
            while let bytes = try await stream.read() {
                do throws(LinkError) {
                    try await socket.write(bytes)
                } catch {
                    return .refused
                }
            }
        } catch {
            return .broken
        }
        await socket.finish()
        return .inOrder
    }

    /// Waits until the peer gives up its direction, and then gives ``receiveAll()`` the time to pass
    /// on what has arrived before.
    private func awaitResetOfStream() async -> End? {
        await stream.waitUntilReset()
        return await pause()
    }

    private func awaitRefusal() async -> End? {
        await socket.waitUntilRefused() ? .refused : nil
    }

    // MARK: -

    /// Runs all functions at once, and returns the first result that is not nil. Cancels the others.
    private func first(_ functions: (@Sendable () async -> End?)...) async -> End {
        await withTaskGroup(of: End?.self) { group in
            for function in functions { group.addTask { await function() } }
            for await end in group {
                guard let end else { continue }
                group.cancelAll()
                return end
            }
            return .broken
        }
    }
}
