internal import BLESecChannelCore

// What a connection over several channels needs from each channel.
extension SecureChannel {
    /// Queues a message for which the caller expects an acknowledgement, and returns the message's
    /// number.
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

    /// Receives a message as ``receive()`` does, and returns it with its number.
    func receiveNumbered() async throws(ChannelError) -> (message: [UInt8], number: UInt64)? {
        guard let message = try await receive() else { return nil }
        // No other code runs in between: both lines run in one turn of the actor.
        return (message, lastReceived)
    }

    /// Returns the fate of a message, as soon as it is certain or the task is cancelled.
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

    /// What an acknowledgement from this peer means for a message.
    var acknowledgedMeans: Delivery {
        machine.features.contains(.acknowledgesTaken) ? .delivered : .received
    }

    /// Counts a call that waits for an acknowledgement; the messages that precede the
    /// acknowledgement are read, too.
    func awaitAcknowledgement() {
        let wasFull = !machine.wantsBytes
        machine.acknowledgementWaiters += 1
        resumeReading(if: wasFull)
    }

    /// Returns when the channel is over, or when the peer has sent its end; returns the peer's
    /// reason, if any.
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

    /// Whether the channel takes no more messages.
    var isEnding: Bool { machine.outcome != nil || machine.endRequested != nil }

    /// The error with which the channel has ended; `nil` while it has not ended.
    var endError: ChannelError? { machine.outcome?.error }

    /// Whether messages wait to be received.
    var hasUnread: Bool { !machine.inbox.isEmpty }

    /// Whether the peer has sent a message on this channel, or acknowledged one.
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
