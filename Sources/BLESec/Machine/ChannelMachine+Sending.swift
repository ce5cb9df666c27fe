internal import BLESecChannelCore

// Sending: from the application's messages to the link's bytes.
extension ChannelMachine {
    /// The bytes of the messages that wait to be sealed.
    var unsealedBytes: Int { outbox.byteCount }

    /// Whether another message may be queued now; otherwise `send` waits.
    var hasRoom: Bool { outbox.isEmpty || outbox.byteCount < configuration.limits.sendAhead }

    /// Whether this side has sent its end, or is about to send it.
    var isEnding: Bool { endRequested != nil }

    /// Queues a message, and returns its number. The message is delivered when the count of
    /// acknowledged messages reaches that number.
    mutating func queue(_ message: [UInt8]) throws(ChannelError) -> UInt64 {
        if let outcome { throw outcome.error }
        guard !isEnding else {
            throw ChannelError(.closed, "the channel has been ended on this side")
        }
        guard message.count <= configuration.limits.maximumMessageLength else {
            throw ChannelError(
                .limitExceeded,
                "a message of \(message.count) bytes is longer than the "
                    + "\(configuration.limits.maximumMessageLength) bytes allowed")
        }
        guard configuration.mode == .negotiated || !message.isEmpty else {
            throw ChannelError(
                .configuration, "an empty message cannot be told from the end in direct mode")
        }
        outbox.append(message)
        queued += 1
        return queued
    }

    /// Sends `end` after the messages that are queued.
    mutating func end(_ reason: EndReason = .done) {
        if endRequested == nil { endRequested = reason }
    }

    /// Seals records until ``outbound`` holds a whole SDU or nothing is left to seal.
    mutating func sealPending(now: UInt64) {
        guard outcome == nil else { return }
        do throws(ChannelError) {
            while outbound.count < maximumSDU, try sealNext(now: now) {}
        } catch {
            fail(error)
        }
    }

    /// Records that the link took `count` bytes of ``outbound``. A smaller count than offered means
    /// that the link is full.
    mutating func didSend(_ count: Int, now: UInt64) {
        guard outcome == nil else { return }
        // Until this side's `end` has left, progress of the link restarts the close deadline; what
        // is queued is finite.
        if clocks.closing != nil, !hasEndLeft { clocks.closing = now }
        outbound.consume(count)
        if acknowledgements.endSent, outbound.isEmpty { hasEndLeft = true }
        clocks.didSend(now: now)
        noteCompletion(now: now)
    }

    /// Records that the link took nothing.
    mutating func didBlock() { clocks.isBlocked = true }

    private mutating func sealNext(now: UInt64) throws(ChannelError) -> Bool {
        guard stage == .records || stage == .refusing else { return false }
        if configuration.mode == .direct {
            guard stage == .records else { return false }
            return try sealDirect()
        }
        if let code = control.reject {
            control.reject = nil
            try seal(.reject, [code.rawValue] + Array(repeating: 0, count: Record.readyLength - 1))
            return true
        }
        if control.ready {
            control.ready = false
            try seal(.ready, transcript.ready(from: role))
            isOwnReadySent = true
            if isReady { becomeReady(now: now) }
            return true
        }
        guard isReady, stage == .records else { return false }
        if try sealControl(now: now) { return true }
        if !outbox.isEmpty { return try sealMessage() }
        guard let reason = endRequested, !acknowledgements.endSent else { return false }
        try seal(.end, [reason.rawValue])
        acknowledgements.didSendEnd()
        return true
    }

    private mutating func sealControl(now: UInt64) throws(ChannelError) -> Bool {
        if sending.records >= configuration.limits.rekeyAfterRecords
            || sending.bytes >= configuration.limits.rekeyAfterBytes,
            sending.records >= Record.leastRekeyInterval
        {
            if !engine.announcesRekey { try seal(.rekey, []) }
            try engine.rekeySending()
            sending.reset()
            return true
        }
        if owesAck(now: now) {
            try seal(.ack, number: acknowledgements.takeAck())
            return true
        }
        if let pong = control.pong {
            control.pong = nil
            try seal(.pong, pong)
            return true
        }
        if control.keepAlive {
            control.keepAlive = false
            try seal(.padding, [])
            return true
        }
        if control.ping {
            control.ping = false
            control.outstandingPing = now
            try seal(.ping, number: now)
            return true
        }
        return false
    }

    /// The maximum payload of a bulk record: smaller if the link's SDUs are small, so that other
    /// records do not wait long behind a bulk record.
    var bulkPayload: Int {
        min(engine.bulkPayload, max(Record.leastBulkPayload, 4 * maximumSDU))
    }

    private mutating func sealMessage() throws(ChannelError) -> Bool {
        let isLast = try Self.sealMessage(
            &engine, &outbox, &outbound, &sending, atMost: bulkPayload)
        if isLast { acknowledgements.didSend() }
        return true
    }

    private static func sealMessage(
        _ engine: inout Engine, _ outbox: inout Outbox, _ outbound: inout WireBuffer,
        _ count: inout DirectionCount, atMost limit: Int
    ) throws(ChannelError) -> Bool {
        try outbox.take(atMost: limit) { piece, isLast throws(ChannelError) in
            let type = isLast ? RecordType.data : .dataMore
            try Self.seal(&engine, &outbound, type, piece)
            count.add(piece.count)
        }
    }

    private mutating func sealDirect() throws(ChannelError) -> Bool {
        guard isReady else { return false }
        if engine.owesProof {
            // The peer waits for the proof, and the application may have nothing to send first.
            try Self.seal(&engine, &outbound, nil, [UInt8]().span)
            return true
        }
        if !outbox.isEmpty {
            _ = try Self.sealDirect(&engine, &outbox, &outbound, atMost: bulkPayload)
            return true
        }
        guard endRequested != nil, !acknowledgements.endSent else { return false }
        try Self.seal(&engine, &outbound, nil, [UInt8]().span)
        acknowledgements.didSendEnd()
        return true
    }

    private static func sealDirect(
        _ engine: inout Engine, _ outbox: inout Outbox, _ outbound: inout WireBuffer,
        atMost limit: Int
    ) throws(ChannelError) -> Bool {
        try outbox.take(atMost: limit) { piece, _ throws(ChannelError) in
            try Self.seal(&engine, &outbound, nil, piece)
        }
    }

    private mutating func seal(_ type: RecordType, _ payload: [UInt8]) throws(ChannelError) {
        try Self.seal(&engine, &outbound, type, payload.span)
        sending.add(payload.count)
    }

    /// Seals a number as eight bytes, big-endian, without an allocation.
    private mutating func seal(_ type: RecordType, number: UInt64) throws(ChannelError) {
        var bytes: [8 of UInt8] = .init(repeating: 0)
        for index in 0..<8 { bytes[index] = UInt8(truncatingIfNeeded: number >> (56 - 8 * index)) }
        try Self.seal(&engine, &outbound, type, bytes.span)
        sending.add(bytes.count)
    }

    private static func seal(
        _ engine: inout Engine, _ outbound: inout WireBuffer, _ type: RecordType?,
        _ payload: Span<UInt8>
    ) throws(ChannelError) {
        let length = engine.sealedLength(payload.count + (type == nil ? 0 : 1))
        try outbound.append(room: length) { output throws(ChannelError) in
            try engine.seal(type?.rawValue, payload, into: &output)
        }
    }
}

extension ChannelMachine.Outcome {
    /// The error that calls on an ended channel throw.
    var error: ChannelError {
        switch self {
        case .complete: ChannelError(.closed, "the channel has ended")
        case .failed(let error): error
        }
    }
}
