import BLESecChannelCore
import BLESecNoiseEngine
import Testing

@testable import BLESec

/// A proven peer that breaks the rules of records.
@Suite("Records")
struct RecordTests {
    /// Sends records as a dialer and as an acceptor. Expects that the last record breaks the
    /// protocol, and that the records before it do not.
    static func expectViolation(_ records: [(type: RecordType, payload: [UInt8])]) throws {
        for role in [ChannelRole.dialer, .acceptor] {
            let peer = try MaliciousNoisePeer.ready(role)
            for (index, record) in records.enumerated() {
                if index == records.count - 1 { #expect(peer.victimFailure == nil) }
                try peer.send(record.type, record.payload)
            }
            #expect(peer.victimFailure == .protocolViolation)
        }
    }

    @Test("on a channel without delivery and pairing, types 0x09 to 0x7F break the protocol")
    func unexpectedTypes() throws {
        for type in 0x09...0x7F {
            try Self.expectViolation([(RecordType(rawValue: UInt8(type)), [])])
        }
    }

    @Test("records of every type from 0x80 on are ignored")
    func ignorableTypes() throws {
        let peer = try MaliciousNoisePeer.ready()
        for type in 0x80...0xFF {
            try peer.send(RecordType(rawValue: UInt8(type)), Array(repeating: 0, count: type))
        }
        #expect(peer.victimFailure == nil)
        #expect(peer.victim.nextMessage() == nil)
    }

    @Test("a record without a type ends the channel")
    func noType() throws {
        let peer = try MaliciousNoisePeer.ready()
        peer.deliver(try peer.sealed(nil, []))
        #expect(peer.victimFailure == .protocolViolation)
    }

    @Test("a data, dataMore or end record after the end breaks the protocol")
    func afterEnd() throws {
        for type in [RecordType.data, .dataMore, .end] {
            try Self.expectViolation([(.end, [0]), (type, [0])])
        }
    }

    @Test("acknowledgements, pings and padding are allowed after the end, and pings are answered")
    func controlAfterEnd() throws {
        let peer = try MaliciousNoisePeer.ready()
        _ = try peer.victim.queue([1])
        try peer.pump()
        try peer.send(.end, [0])
        try peer.send(.ack, UInt64(1).bigEndianBytes)
        try peer.send(.ping, [7])
        try peer.send(.padding, [7])
        #expect(peer.victimFailure == nil)
        #expect(peer.records.contains { $0 == (.pong, [7]) })
        #expect(peer.victim.acknowledged == 1)
    }

    @Test("an end between the pieces of a message, or with any length but one, breaks the protocol")
    func malformedEnd() throws {
        try Self.expectViolation([(.dataMore, [1]), (.end, [0])])
        try Self.expectViolation([(.end, [])])
        try Self.expectViolation([(.end, [0, 0])])
    }

    @Test(
        "an end is accepted with any reason, known or unknown",
        arguments: [0, 1, 2, 3, 4, 255] as [UInt8])
    func reasons(reason: UInt8) throws {
        let peer = try MaliciousNoisePeer.ready()
        try peer.send(.end, [reason])
        #expect(peer.victimFailure == nil)
        #expect(peer.victim.session?.peerEndReason == EndReason(rawValue: reason))
        #expect(peer.victim.hasPeerEnded == true)
    }

    @Test("an empty piece that is not the last breaks the protocol")
    func emptyPiece() throws {
        try Self.expectViolation([(.dataMore, [])])
        try Self.expectViolation([(.dataMore, [1]), (.dataMore, [])])
    }

    @Test("a message's last piece may be empty, and so may a whole message")
    func emptyLast() throws {
        let peer = try MaliciousNoisePeer.ready()
        try peer.send(.dataMore, [1])
        try peer.send(.data)
        try peer.send(.data)
        #expect(peer.victim.nextMessage() == [1])
        #expect(peer.victim.nextMessage() == [])
    }

    @Test("control records between the pieces of a message do not change the message")
    func interleaved() throws {
        let peer = try MaliciousNoisePeer.ready()
        try peer.send(.dataMore, [1])
        try peer.send(.ping, [])
        try peer.send(.padding, [9, 9])
        try peer.send(.data, [2])
        #expect(peer.victim.nextMessage() == [1, 2])
    }

    @Test("a ping of up to eight bytes is answered with the same bytes", arguments: 0...8)
    func pings(count: Int) throws {
        let peer = try MaliciousNoisePeer.ready()
        let payload = (0..<count).map { UInt8($0) }
        try peer.send(.ping, payload)
        #expect(peer.records.last?.type == .pong)
        #expect(peer.records.last?.payload == payload)
    }

    @Test("a ping of nine bytes breaks the protocol")
    func longPing() throws {
        try Self.expectViolation([(.ping, Array(repeating: 0, count: 9))])
    }

    @Test("a second ping before the first one's pong has left breaks the protocol")
    func pingFlood() throws {
        let peer = try MaliciousNoisePeer.ready()
        let type = RecordType.ping.rawValue
        let pings = try peer.sealed(type, [1]) + peer.sealed(type, [2])
        peer.deliver(pings)
        #expect(peer.victimFailure == .protocolViolation)
    }

    @Test("a peer that sends ping after ping while the link takes no pong breaks the protocol")
    func pingsWhileBlocked() throws {
        let peer = try MaliciousNoisePeer.ready()
        peer.isBlocked = true
        _ = try peer.victim.queue(Array(repeating: 1, count: 60_000))
        try peer.pump()
        let byteCountBeforePings = peer.victim.bytesAwaitingLink
        for _ in 0..<100 where peer.victimFailure == nil { try peer.send(.ping, [1]) }
        #expect(peer.victimFailure == .protocolViolation)
        #expect(byteCountBeforePings < 32_768, "only a part of the message is sealed")
    }

    @Test("a pong without a ping, or with bytes other than the ping's, breaks the protocol")
    func strayPong() throws {
        try Self.expectViolation([(.pong, [])])
        let peer = try MaliciousNoisePeer.ready()
        try peer.passTime(.seconds(30))
        let ping = try #require(peer.records.last)
        #expect(ping.type == .ping)
        try peer.send(.pong, ping.payload.reversed())
        #expect(peer.victimFailure == .protocolViolation)
    }

    @Test("the same pong twice breaks the protocol")
    func pongTwice() throws {
        let peer = try MaliciousNoisePeer.ready()
        try peer.passTime(.seconds(30))
        let ping = try #require(peer.records.last)
        try peer.send(.pong, ping.payload)
        #expect(peer.victimFailure == nil)
        try peer.send(.pong, ping.payload)
        #expect(peer.victimFailure == .protocolViolation)
    }

    @Test("a rekey after fewer than 1,024 records ends the channel")
    func rekeyTooSoon() throws {
        let peer = try MaliciousNoisePeer.ready()
        // The malicious peer's `ready` was the first record.
        for _ in 0..<1_022 { try peer.send(.padding) }
        #expect(peer.victimFailure == nil)
        try peer.send(.rekey)
        #expect(peer.victimFailure == .protocolViolation)
    }

    @Test("a rekey after 1,024 records changes the key; the next rekey needs 1,024 more records")
    func rekey() throws {
        let peer = try MaliciousNoisePeer.ready()
        for _ in 0..<1_023 { try peer.send(.padding) }
        try peer.send(.rekey)
        try peer.engine.rekeySending()
        try peer.send(.data, [5])
        #expect(peer.victim.nextMessage() == [5])
        for _ in 0..<1_022 { try peer.send(.padding) }
        #expect(peer.victimFailure == nil)
        try peer.send(.rekey)
        #expect(peer.victimFailure == .protocolViolation)
    }

    @Test("a record under the old key after a rekey ends the channel")
    func oldKey() throws {
        let peer = try MaliciousNoisePeer.ready()
        for _ in 0..<1_023 { try peer.send(.padding) }
        try peer.send(.rekey)
        try peer.send(.data, [5])
        #expect(peer.victimFailure == .authenticationFailed)
    }

    @Test("a rekey with a payload ends the channel")
    func malformedRekey() throws {
        let peer = try MaliciousNoisePeer.ready()
        for _ in 0..<1_023 { try peer.send(.padding) }
        try peer.send(.rekey, [0])
        #expect(peer.victimFailure == .protocolViolation)
    }

    @Test("with a limit of one record, the victim still changes its key only after 1,024 records")
    func rekeyOfVictim() throws {
        let peer = try MaliciousNoisePeer.ready {
            $0.limits.rekeyAfterRecords = 1
            $0.limits.sendAhead = 1 << 20
        }
        for index in 0..<2_500 { _ = try peer.victim.queue([UInt8(index & 0xFF)]) }
        try peer.pump()
        let rekeyIndices = peer.records.enumerated().filter { $0.element.type == .rekey }
            .map(\.offset)
        // Each key seals 1,024 records, and then a rekey record.
        #expect(rekeyIndices == [1_024, 2_049])
        #expect(peer.records.count { $0.type == .data } == 2_500)
    }

    @Test("the victim also changes its key when the limit in bytes is reached")
    func rekeyOfVictimByBytes() throws {
        let peer = try MaliciousNoisePeer.ready { $0.limits.rekeyAfterBytes = 1_500_000 }
        for _ in 0..<3_000 {
            _ = try peer.victim.queue(Array(repeating: 1, count: 1_000))
            try peer.pump()
        }
        let rekeyIndices = peer.records.enumerated().filter { $0.element.type == .rekey }
            .map(\.offset)
        // Each key seals 1,500 messages, and then a rekey record. The first key also seals `ready`.
        #expect(rekeyIndices == [1_501, 3_002])
    }

    @Test("an acknowledged count that does not grow, or exceeds what was sent, ends the channel")
    func acknowledgements() throws {
        for (before, after) in [(0, 3), (0, 0), (2, 1), (2, 2), (0, UInt64.max)]
            as [(UInt64, UInt64)]
        {
            let peer = try MaliciousNoisePeer.ready()
            for _ in 0..<2 { _ = try peer.victim.queue([1]) }
            try peer.pump()
            if before > 0 { try peer.send(.ack, before.bigEndianBytes) }
            #expect(peer.victimFailure == nil)
            try peer.send(.ack, after.bigEndianBytes)
            #expect(peer.victimFailure == .protocolViolation)
        }
    }

    @Test("an acknowledgement of a message that is not sealed yet ends the channel")
    func acknowledgesUnsent() throws {
        let peer = try MaliciousNoisePeer.ready()
        peer.isBlocked = true
        for _ in 0..<20 { _ = try peer.victim.queue(Array(repeating: 1, count: 3_000)) }
        try peer.pump()
        #expect(peer.victim.unsealedBytes > 0)
        try peer.send(.ack, UInt64(20).bigEndianBytes)
        #expect(peer.victimFailure == .protocolViolation)
    }

    @Test("an acknowledgement of a wrong length ends the channel", arguments: [0, 7, 9])
    func malformedAck(count: Int) throws {
        let peer = try MaliciousNoisePeer.ready()
        _ = try peer.victim.queue([1])
        try peer.pump()
        try peer.send(.ack, Array(repeating: 0, count: max(0, count - 1)) + (count > 0 ? [1] : []))
        #expect(peer.victimFailure == .protocolViolation)
    }

    @Test("messages are acknowledged after 32 of them, after 50 ms, or when the peer's end arrives")
    func acknowledgementsOfVictim() throws {
        let peer = try MaliciousNoisePeer.ready()
        for index in 1...64 {
            try peer.send(.data, [1])
            #expect(peer.records.count { $0.type == .ack } == index / 32)
        }
        try peer.send(.data, [1])
        try peer.passTime(.milliseconds(49))
        #expect(peer.records.count { $0.type == .ack } == 2)
        try peer.passTime(.milliseconds(1))
        #expect(peer.records.last?.payload == UInt64(65).bigEndianBytes)
        try peer.send(.end, [0])
        #expect(peer.records.last?.type == .ack)
        #expect(peer.records.last?.payload == UInt64(66).bigEndianBytes)
    }

    @Test("a second ready ends the channel with authenticationFailed")
    func readyTwice() throws {
        let peer = try MaliciousNoisePeer.ready()
        try peer.send(.ready, peer.transcript.ready(from: .dialer))
        #expect(peer.victimFailure == .authenticationFailed)
    }

    @Test("the longest record may arrive one byte at a time")
    func longestRecord() throws {
        let peer = try MaliciousNoisePeer.ready()
        let payload = [UInt8](repeating: 3, count: Record.maximumPayload)
        let record = try peer.sealed(RecordType.data.rawValue, payload)
        #expect(record.count == 2 + 65_535)
        for (index, byte) in record.dropLast().enumerated() {
            peer.deliver([byte])
            // Nothing of a record is processed or dropped before its last byte arrives.
            if index % 8_192 == 0 || index == record.count - 2 {
                #expect(peer.victim.unprocessedBytes == index + 1)
            }
        }
        #expect(peer.victim.nextMessage() == nil)
        peer.deliver([record[record.count - 1]])
        #expect(peer.victim.unprocessedBytes == 0)
        #expect(peer.victim.nextMessage() == payload)
    }

    @Test(
        "a record that is incomplete after 30 seconds ends the channel, even if bytes still arrive")
    func slowRecord() throws {
        let peer = try MaliciousNoisePeer.ready()
        let record = try peer.sealed(RecordType.data.rawValue, Array(repeating: 1, count: 100))
        for second in 0..<31 where peer.victimFailure == nil {
            peer.deliver([record[second]])
            try peer.passTime(.seconds(1))
            if second < 29 { #expect(peer.victimFailure == nil) }
        }
        #expect(peer.victimFailure == .timedOut)
    }

    @Test("a record whose length is less than a tag's 16 bytes ends the channel", arguments: 0..<16)
    func tiny(length: UInt8) throws {
        let peer = try MaliciousNoisePeer.ready()
        peer.deliver([0, length])
        #expect(peer.victimFailure == .protocolViolation)
    }

    @Test("a full inbox stops the reading, and later records are read once there is room")
    func readAhead() throws {
        let peer = try MaliciousNoisePeer.ready { $0.limits.readAhead = 10_000 }
        var records: [UInt8] = []
        for index in 0..<30 {
            records += try peer.sealed(
                RecordType.data.rawValue, [UInt8](repeating: UInt8(index), count: 1_000))
        }
        peer.deliver(records)
        #expect(peer.victim.wantsBytes == false)
        #expect(peer.victim.unreceivedBytes < 12_000)
        // While the victim does not read, the idle deadline does not apply.
        try peer.passTime(.seconds(3_600))
        #expect(peer.victimFailure == nil)
        for index in 0..<30 {
            #expect(
                peer.victim.nextMessage() == [UInt8](repeating: UInt8(index), count: 1_000))
            if peer.victim.wantsBytes { peer.victim.didResumeReading(now: peer.now) }
        }
    }

    @Test("a side that does not read sends padding twice a minute, and no pings")
    func keepsAlive() throws {
        let peer = try MaliciousNoisePeer.ready { $0.limits.readAhead = 1_000 }
        try peer.send(.data, Array(repeating: 1, count: 1_000))
        // The acknowledgement leaves after 50 ms, and the first padding 30 s after it.
        try peer.passTime(.seconds(601))
        #expect(peer.records.count { $0 == (.padding, []) } == 20)
        #expect(peer.records.count { $0.type == .ping } == 0)
        #expect(peer.victim.nextMessage()?.count == 1_000)
        peer.victim.didResumeReading(now: peer.now)
        try peer.passTime(.seconds(59))
        #expect(peer.records.count { $0 == (.padding, []) } == 20)
        #expect(peer.records.count { $0.type == .ping } == 1)
    }

    @Test("a side that reads one message at a time, with long pauses, sends padding")
    func keepsAliveWhileReadingSlowly() throws {
        let peer = try MaliciousNoisePeer.ready {
            $0.limits.readAhead = 1_000
            $0.acknowledgement = .manual
        }
        for _ in 0..<20 { try peer.send(.data, Array(repeating: 1, count: 1_000)) }
        for _ in 0..<6 {
            try peer.passTime(.seconds(20))
            _ = peer.victim.takeMessage(now: peer.now)
            peer.victim.didResumeReading(now: peer.now)
            try peer.pump()
        }
        #expect(peer.records.count { $0 == (.padding, []) } >= 3)
    }

    @Test("a peer's pings cannot prolong a close while the link takes only few bytes")
    func closesBesidePings() throws {
        let peer = try MaliciousNoisePeer.ready()
        _ = try peer.victim.queue([UInt8](repeating: 1, count: 2_000))
        peer.victim.close(now: peer.now)
        peer.isBlocked = true
        try peer.pump()
        for _ in 0..<20 {
            for _ in 0..<20 { try peer.send(.ping, [7]) }
            _ = peer.victim.transmit(atMost: 500, now: peer.now)
            #expect(peer.victim.outcome != nil || peer.victim.bytesAwaitingLink > 0)
            try peer.passTime(.seconds(9))
        }
        #expect(peer.victimFailure == .unacknowledged)
    }

    @Test("a silent peer is pinged once, and the channel times out after a minute")
    func deadPeer() throws {
        let peer = try MaliciousNoisePeer.ready()
        try peer.passTime(.seconds(59))
        #expect(peer.records.count { $0.type == .ping } == 1)
        #expect(peer.victimFailure == nil)
        try peer.passTime(.seconds(1))
        #expect(peer.victimFailure == .timedOut)
    }

    @Test("a peer that answers stays connected, with two pings a minute")
    func livingPeer() throws {
        let peer = try MaliciousNoisePeer.ready()
        try peer.keepAlive(for: .seconds(20))
        var answeredPings = 0
        for _ in 0..<600 {
            try peer.passTime(.seconds(1))
            let pings = peer.records.filter { $0.type == .ping }
            if pings.count > answeredPings {
                answeredPings = pings.count
                try peer.send(.pong, pings[answeredPings - 1].payload)
            }
        }
        #expect(peer.victimFailure == nil)
        #expect((19...20).contains(answeredPings))
    }

    @Test("a channel to a silent peer does not time out while the link takes what is sent")
    func progress() throws {
        let peer = try MaliciousNoisePeer.ready()
        for _ in 0..<10 {
            peer.isBlocked = true
            _ = try peer.victim.queue(Array(repeating: 1, count: 20_000))
            try peer.passTime(.seconds(50))
            peer.isBlocked = false
            try peer.pump()
        }
        #expect(peer.victimFailure == nil)
        try peer.passTime(.seconds(60))
        #expect(peer.victimFailure == .timedOut)
    }
}
