internal import BLESecChannelCore

// What a connection over several channels has to know of each.
extension SecureChannel {
    /// Queues a message that is to be acknowledged, and returns its number.
    func enqueue(_ message: [UInt8]) async throws(ChannelError) -> UInt64 {
        try requireAcknowledgements()
        try await waitForRoom()
        return try queue(message)
    }

    func requireAcknowledgements() throws(ChannelError) {
        guard configuration.mode == .negotiated else {
            throw ChannelError(.configuration, "direct mode has no acknowledgements; use send")
        }
    }

    /// What ``receive()`` returns, with its number.
    func receiveNumbered() async throws(ChannelError) -> (message: [UInt8], number: UInt64)? {
        guard let message = try await receive() else { return nil }
        // Nothing runs between the two: both happen in one turn of the actor.
        return (message, lastReceived)
    }

    /// What has become of a message, as soon as that is certain, or as the task is cancelled.
    func delivery(of number: UInt64) async -> Delivery {
        awaitAcknowledgement()
        defer { machine.acknowledgementWaiters -= 1 }
        while machine.acknowledgements.acknowledged < number, machine.outcome == nil {
            do throws(ChannelError) {
                try await wait(for: .acknowledgement) {
                    machine.acknowledgements.acknowledged >= number || machine.outcome != nil
                }
            } catch {
                break
            }
        }
        return machine.acknowledgements.acknowledged >= number ? acknowledgedMeans : .unknown
    }

    /// What an acknowledgement of this peer's says of a message.
    var acknowledgedMeans: Delivery {
        machine.features.contains(.acknowledgesTaken) ? .delivered : .received
    }

    /// Somebody waits for acknowledgements: what stands before them is read, too.
    func awaitAcknowledgement() {
        let wasFull = !machine.wantsBytes
        machine.acknowledgementWaiters += 1
        resumeReading(if: wasFull)
    }

    /// Returns when the channel is over, or the peer has said that it sends no more and why.
    func waitUntilEnding() async -> EndReason? {
        while machine.outcome == nil, !machine.hasPeerEnded {
            do throws(ChannelError) {
                try await wait(for: .end) { machine.outcome != nil || machine.hasPeerEnded }
            } catch {
                break
            }
        }
        return machine.hasPeerEnded ? machine.peerEndReason ?? .done : nil
    }

    /// Whether it takes no messages any more.
    var isEnding: Bool { machine.outcome != nil || machine.endRequested != nil }

    /// What it has ended with; nil while it has not.
    var endError: ChannelError? { machine.outcome?.error }

    /// Whether messages wait to be received.
    var hasUnread: Bool { !machine.inbox.isEmpty }

    /// Whether a message has come, or was acknowledged.
    var hasCarried: Bool {
        let acknowledgements = machine.acknowledgements
        return acknowledgements.received > (acknowledgements.endReceived ? 1 : 0)
            || acknowledgements.acknowledged > (acknowledgements.isSendingComplete ? 1 : 0)
    }
}

extension ChannelError {
    static func notTaken(within limit: Duration) -> ChannelError {
        ChannelError(
            .timedOut,
            "the peer's program has not taken the message within "
                + "\(limit.components.seconds) s; whether it will is unknown")
    }

    static var hiddenAcknowledgements: ChannelError {
        ChannelError(
            .limitExceeded,
            "so many of the peer's messages wait here that no acknowledgement gets through; "
                + "receive them while you deliver")
    }
}
