internal import BLESecChannelCore
internal import BLESecPrimitives

// Records that arrive (`docs/wire-format.md`, "Records").
extension ChannelMachine {
    /// Opens one record and acts on it; returns `false` while the record is incomplete or may not
    /// be read.
    mutating func readRecord(now: UInt64) throws(ChannelError) -> Bool {
        guard !inbound.isEmpty else { return false }
        guard wantsBytes else { return false }
        guard let record = try Self.open(&engine, &inbound) else {
            if clocks.recordBegan == nil { clocks.recordBegan = now }
            return false
        }
        if let plaintext = record.plaintext {
            clocks.recordBegan = nil
            receiving.add(plaintext.count)
            if configuration.mode == .direct {
                try takeDirect(plaintext, now: now)
            } else {
                try takeNegotiated(plaintext, now: now)
            }
        }
        // Handling the record may have ended the channel and emptied the buffer.
        if outcome == nil { inbound.consume(record.consumed) }
        if inbound.isEmpty { clocks.recordBegan = nil }
        return outcome == nil
    }

    private static func open(
        _ engine: inout Engine, _ inbound: inout WireBuffer
    ) throws(ChannelError) -> OpenedRecord? {
        try inbound.withBytes { bytes throws(ChannelError) in try engine.open(&bytes) }
    }

    private mutating func takeDirect(
        _ plaintext: Range<Int>, now: UInt64
    ) throws(ChannelError) {
        if awaitsProof {
            guard engine.isPeerProven else {
                throw .unproven("the peer's first message proves nothing")
            }
            peerIsProven(now: now)
            // An empty message that serves as the proof is not an end.
            if plaintext.isEmpty { return }
        }
        peerWentQuiet = plaintext.isEmpty
        if peerWentQuiet, engine.provesEnd { directPeerEnded = true }
        guard !plaintext.isEmpty else { return }
        try Self.keep(plaintext, isLast: true, from: &inbound, in: &inbox)
    }

    private mutating func takeNegotiated(
        _ plaintext: Range<Int>, now: UInt64
    ) throws(ChannelError) {
        guard !plaintext.isEmpty else { throw .violation("a record without a type") }
        let typeIndex = plaintext.lowerBound
        let type = inbound.withBytes { RecordType(rawValue: $0[typeIndex]) }
        let payload = typeIndex + 1..<plaintext.upperBound
        guard isPeerReady || type == .ready || type == .reject || type.isIgnorable else {
            throw .violation("a record before its ready")
        }
        switch type {
        case .data:
            try refuseAfterEnd()
            try Self.keep(payload, isLast: true, from: &inbound, in: &inbox)
            clocks.messageMoved = nil
            acknowledgements.didReceive(now: now)
        case .dataMore:
            try refuseAfterEnd()
            guard !payload.isEmpty else { throw .violation("an empty piece of a message") }
            if inbox.part == nil {
                inbox.part = budget.part(of: identity, revoke: revokeReassembly)
            }
            clocks.messageMoved = now
            try Self.keep(payload, isLast: false, from: &inbound, in: &inbox)
        case .end:
            try takeEnd(bytes(payload), now: now)
        case .ping:
            guard payload.count <= Record.maximumPing, control.pong == nil else {
                throw .violation("a ping that is too long or does not wait for its pong")
            }
            control.pong = bytes(payload)
        case .pong:
            guard payload.count == 8, let ping = control.outstandingPing, number(payload) == ping
            else {
                throw .violation("a pong to no ping")
            }
            control.outstandingPing = nil
        case .rekey:
            guard payload.isEmpty, receiving.records > Record.leastRekeyInterval,
                !engine.announcesRekey
            else {
                throw .violation("a rekey that is malformed or too soon after the last")
            }
            try engine.rekeyReceiving()
            receiving.reset()
        case .ready:
            try takeReady(bytes(payload), now: now)
        case .reject:
            try takeReject(bytes(payload))
        case .ack:
            guard payload.count == Record.ackLength else { throw .violation("a malformed ack") }
            try acknowledgements.peerAcknowledged(number(payload))
            if clocks.closing != nil { clocks.closing = now }
        default:
            guard type.isIgnorable else { throw .violation("a record of an unknown type") }
        }
    }

    private static func keep(
        _ range: Range<Int>, isLast: Bool, from inbound: inout WireBuffer, in inbox: inout Inbox
    ) throws(ChannelError) {
        try inbound.withBytes { bytes throws(ChannelError) in
            try inbox.append(bytes.span.extracting(range), isLast: isLast)
        }
    }

    private mutating func bytes(_ range: Range<Int>) -> [UInt8] {
        inbound.withBytes { $0.span.array(in: range) }
    }

    /// Reads a big-endian number of eight bytes.
    private mutating func number(_ range: Range<Int>) -> UInt64 {
        inbound.withBytes { bytes in
            var number: UInt64 = 0
            for index in range { number = number << 8 | UInt64(bytes[index]) }
            return number
        }
    }

    private func refuseAfterEnd() throws(ChannelError) {
        guard !acknowledgements.endReceived else { throw .violation("data after its end") }
    }

    private mutating func takeEnd(_ payload: [UInt8], now: UInt64) throws(ChannelError) {
        try refuseAfterEnd()
        guard payload.count == 1, !inbox.isMidMessage else {
            throw .violation("an end that is malformed or cuts a message")
        }
        peerEndReason = EndReason(rawValue: payload[0])
        acknowledgements.didReceiveEnd(now: now)
        restartClose(now: now)
    }

    private mutating func takeReady(_ payload: [UInt8], now: UInt64) throws(ChannelError) {
        let expected = transcript.ready(from: role.peer)
        guard !isPeerReady, constantTimeEqual(payload.span, expected.span) else {
            throw ChannelError(
                .authenticationFailed, "the peer's ready does not confirm the negotiation")
        }
        isPeerReady = true
        if isReady { becomeReady(now: now) }
    }

    private mutating func takeReject(_ payload: [UInt8]) throws(ChannelError) {
        guard !isPeerReady, payload.count == Record.readyLength,
            let code = RejectCode(rawValue: payload[0]), payload.dropFirst().allSatisfy({ $0 == 0 })
        else { throw .violation("a malformed reject") }
        switch code {
        case .refused: throw ChannelError(.refused, "the peer refuses this identity")
        case .busy: throw ChannelError(.busy, "the peer has too many channels; try again later")
        case .internal: throw ChannelError(.refused, "something failed inside the peer")
        }
    }
}

extension ChannelError {
    static func violation(_ what: String) -> ChannelError {
        ChannelError(.protocolViolation, "the peer broke the protocol: \(what)")
    }
}

extension UInt64 {
    var bigEndianBytes: [UInt8] { (0..<8).map { UInt8(truncatingIfNeeded: self >> (56 - 8 * $0)) } }
}
