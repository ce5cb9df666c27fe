public import BLESecChannelCore

extension PeerConnection {
    /// Sends a message, and says what became of it once the peer's program has taken it or the link
    /// has gone.
    ///
    /// What the peer sends has to be received meanwhile: an acknowledgement comes behind it. There is
    /// no deadline but those of the link: a peer whose program hangs, and not its device, makes it wait.
    ///
    /// - Throws: `noSuchPeer` without a link, where that is not waited for; `closed`, or what has
    ///   closed the connection; `limitExceeded` for a message above the limit; `configuration` in
    ///   direct mode, which has no acknowledgements; `cancelled`. Nothing was sent then.
    public func deliver(
        _ message: [UInt8], whenDisconnected: WhenDisconnected = .wait
    ) async throws(ChannelError) -> Delivery {
        let pending = try await send(message, whenDisconnected: whenDisconnected)
        return await pending.delivery()
    }

    /// Queues a message on the link, behind those that were queued before, and returns when the link
    /// has it, which says nothing about the peer. Throws as ``deliver(_:whenDisconnected:)-([UInt8],_)`` does.
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
                // On a channel that is over nothing was sent; all else is the message's own fault.
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

/// Tasks in a row: each has a ticket, and is next when all before it have given theirs back.
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
