public import BLESecChannelCore

extension PeerConnection {
    /// Sends a message, and returns its fate once the peer's program has taken it or the link is
    /// lost.
    ///
    /// Receive the peer's messages meanwhile: the acknowledgement comes after them. The only
    /// deadlines are those of the link: while the peer's program hangs but its device responds,
    /// this call waits.
    ///
    /// - Throws: `noSuchPeer` without a link, unless the call waits for one; `closed`, or the error
    ///   that closed the connection; `limitExceeded` for a message above the limit; `configuration`
    ///   in direct mode, which has no acknowledgements; `cancelled`. If it throws, nothing was
    ///   sent.
    public func deliver(
        _ message: [UInt8], whenDisconnected: WhenDisconnected = .wait
    ) async throws(ChannelError) -> Delivery {
        let pending = try await send(message, whenDisconnected: whenDisconnected)
        return await pending.delivery()
    }

    /// Queues a message on the link after the messages queued before, and returns when the link has
    /// it. The return says nothing about the peer. Throws as
    /// ``deliver(_:whenDisconnected:)-([UInt8],_)`` does.
    public func send(
        _ message: [UInt8], whenDisconnected: WhenDisconnected = .wait
    ) async throws(ChannelError) -> PendingDelivery {
        let ticket = turns.take()
        defer {
            turns.give(back: ticket)
            waiting.wake(.turn)
        }
        while !turns.isNext(ticket) {
            if machine.isClosed || hasFinished { throw closedError }
            if whenDisconnected == .fail { try refuseWhenApart() }
            try await wait(for: .turn) {
                turns.isNext(ticket) || machine.isClosed || hasFinished
                    || whenDisconnected == .fail && current == nil
            }
        }
        while true {
            if machine.isClosed || hasFinished { throw closedError }
            guard let channel = current?.channel else {
                if whenDisconnected == .fail { try refuseWhenApart() }
                try await wait(for: .link) {
                    current != nil || machine.isClosed || hasFinished
                }
                continue
            }
            do throws(ChannelError) {
                let number = try await channel.enqueue(message)
                return PendingDelivery(channel: channel, number: number)
            } catch {
                if hasFinished { throw closedError }
                // On a channel that is ending nothing was sent; any other error concerns this
                // message.
                guard await channel.isEnding else { throw error }
                forget(channel, because: error, hasCarried: await channel.hasCarried)
            }
        }
    }

    private func refuseWhenApart() throws(ChannelError) {
        guard current == nil else { return }
        if machine.isClosed { throw closedError }
        throw ChannelError(.noSuchPeer, "there is no link to the peer now")
    }

    var closedError: ChannelError {
        machine.status.failure ?? ChannelError(.closed, "the connection is closed")
    }
}

/// A queue of tasks: each task holds a ticket, and is next when all earlier tickets are given back.
struct Turns {
    private var last: UInt64 = 0
    private var waiting: [UInt64] = []

    mutating func take() -> UInt64 {
        last += 1
        waiting.append(last)
        return last
    }

    func isNext(_ ticket: UInt64) -> Bool { waiting.first == ticket }

    mutating func give(back ticket: UInt64) {
        if let index = waiting.firstIndex(of: ticket) { waiting.remove(at: index) }
    }
}
