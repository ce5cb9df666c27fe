internal import ChannelCore

// What a connection over several channels has to know of each.
extension SecureChannel {
    /// Queues a message that is to be acknowledged, and returns its number.
    func enqueue(_ message: [UInt8]) async throws(ChannelError) -> UInt64 {
        guard configuration.mode == .negotiated else {
            throw ChannelError(.configuration, "direct mode has no acknowledgements; use send")
        }
        try await waitForRoom()
        let number = try machine.queue(message)
        pump()
        return number
    }

    /// Whether the peer has acknowledged the message, as soon as it has or never will.
    func isAcknowledged(_ number: UInt64) async -> Bool {
        while machine.ledger.acknowledged < number, machine.outcome == nil {
            do throws(ChannelError) {
                try await wait(for: .acknowledgement) {
                    machine.ledger.acknowledged >= number || machine.outcome != nil
                }
            } catch {
                break
            }
        }
        return machine.ledger.acknowledged >= number
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
        let ledger = machine.ledger
        return ledger.received > (ledger.endReceived ? 1 : 0)
            || ledger.acknowledged > (ledger.isSendingComplete ? 1 : 0)
    }
}
