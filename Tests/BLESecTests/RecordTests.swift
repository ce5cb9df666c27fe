import BLESecChannelCore
import BLESecNoiseEngine
import Testing

@testable import BLESec

/// A proven peer that breaks the rules of records.
@Suite("Records")
struct RecordTests {
    static func expect(
        _ code: ChannelError.Code?, _ records: [(RecordType, [UInt8])],
        _ comment: Comment? = nil
    ) throws {
        for role in [ChannelRole.dialer, .acceptor] {
            let forger = try MaliciousNoisePeer.ready(role)
            for (index, record) in records.enumerated() {
                if index == records.count - 1 { #expect(forger.failure == nil, comment) }
                try forger.send(record.0, record.1)
            }
            #expect(forger.failure == code, comment)
        }
    }

    @Test("every unknown type below 0x80 ends the channel")
    func unknownTypes() throws {
        for type in 0x09...0x7F {
            try Self.expect(.protocolViolation, [(RecordType(rawValue: UInt8(type)), [])])
        }
    }

    @Test("every record of a type from 0x80 on is ignored, whatever its content")
    func ignorableTypes() throws {
        let forger = try MaliciousNoisePeer.ready()
        for type in 0x80...0xFF {
            try forger.send(RecordType(rawValue: UInt8(type)), Array(repeating: 0, count: type))
        }
        #expect(forger.failure == nil)
        #expect(forger.victim.nextMessage() == nil)
    }

    @Test("a record without a type ends the channel")
    func noType() throws {
        let forger = try MaliciousNoisePeer.ready()
        forger.deliver(try forger.sealed(nil, []))
        #expect(forger.failure == .protocolViolation)
    }

    @Test("a data, piece or end record after the end breaks the protocol")
    func afterEnd() throws {
        for type in [RecordType.data, .dataMore, .end] {
            try Self.expect(.protocolViolation, [(.end, [0]), (type, [0])])
        }
    }

    @Test("pings, pongs, acknowledgements and padding are allowed after the end")
    func controlAfterEnd() throws {
        let forger = try MaliciousNoisePeer.ready()
        _ = try forger.victim.queue([1])
        try forger.pump()
        try forger.send(.end, [0])
        try forger.send(.ack, UInt64(1).bigEndianBytes)
        try forger.send(.ping, [7])
        try forger.send(.padding, [7])
        #expect(forger.failure == nil)
        #expect(forger.records.contains { $0 == (.pong, [7]) })
        #expect(forger.victim.acknowledged == 1)
    }

    @Test("an end inside a message, or without exactly one byte, breaks the protocol")
    func malformedEnd() throws {
        try Self.expect(.protocolViolation, [(.dataMore, [1]), (.end, [0])])
        try Self.expect(.protocolViolation, [(.end, [])])
        try Self.expect(.protocolViolation, [(.end, [0, 0])])
    }

    @Test("an end with any reason is an end", arguments: [0, 1, 2, 3, 4, 255] as [UInt8])
    func reasons(reason: UInt8) throws {
        let forger = try MaliciousNoisePeer.ready()
        try forger.send(.end, [reason])
        #expect(forger.failure == nil)
        #expect(forger.victim.session?.peerEndReason == EndReason(rawValue: reason))
        #expect(forger.victim.hasPeerEnded == true)
    }

    @Test("an empty piece that is not the last breaks the protocol")
    func emptyPiece() throws {
        try Self.expect(.protocolViolation, [(.dataMore, [])])
        try Self.expect(.protocolViolation, [(.dataMore, [1]), (.dataMore, [])])
    }

    @Test("a last piece may be empty, and so may a message")
    func emptyLast() throws {
        let forger = try MaliciousNoisePeer.ready()
        try forger.send(.dataMore, [1])
        try forger.send(.data)
        try forger.send(.data)
        #expect(forger.victim.nextMessage() == [1])
        #expect(forger.victim.nextMessage() == [])
    }

    @Test("control records between the pieces of a message do not change the message")
    func interleaved() throws {
        let forger = try MaliciousNoisePeer.ready()
        try forger.send(.dataMore, [1])
        try forger.send(.ping, [])
        try forger.send(.padding, [9, 9])
        try forger.send(.data, [2])
        #expect(forger.victim.nextMessage() == [1, 2])
    }

    @Test("a ping of up to eight bytes is answered with the same bytes", arguments: 0...8)
    func pings(count: Int) throws {
        let forger = try MaliciousNoisePeer.ready()
        let payload = (0..<count).map { UInt8($0) }
        try forger.send(.ping, payload)
        #expect(forger.records.last?.type == .pong)
        #expect(forger.records.last?.payload == payload)
    }

    @Test("a ping of nine bytes breaks the protocol")
    func longPing() throws {
        try Self.expect(.protocolViolation, [(.ping, Array(repeating: 0, count: 9))])
    }

    @Test("a second ping before the first one's pong has left breaks the protocol")
    func pingFlood() throws {
        let forger = try MaliciousNoisePeer.ready()
        let pings = try forger.sealed(3, [1]) + forger.sealed(3, [2])
        forger.deliver(pings)
        #expect(forger.failure == .protocolViolation)
    }

    @Test("pings while nothing can be sent do not pile up")
    func pingsWhileBlocked() throws {
        let forger = try MaliciousNoisePeer.ready()
        forger.isBlocked = true
        _ = try forger.victim.queue(Array(repeating: 1, count: 60_000))
        try forger.pump()
        let waiting = forger.victim.unsentBytes
        for _ in 0..<100 where forger.failure == nil { try forger.send(.ping, [1]) }
        #expect(forger.failure == .protocolViolation)
        #expect(waiting < 32_768)
    }

    @Test("a pong to no ping, or with other bytes, breaks the protocol")
    func strayPong() throws {
        try Self.expect(.protocolViolation, [(.pong, [])])
        let forger = try MaliciousNoisePeer.ready()
        try forger.passTime(.seconds(30))
        let ping = try #require(forger.records.last)
        #expect(ping.type == .ping)
        try forger.send(.pong, ping.payload.reversed())
        #expect(forger.failure == .protocolViolation)
    }

    @Test("the same pong twice breaks the protocol")
    func pongTwice() throws {
        let forger = try MaliciousNoisePeer.ready()
        try forger.passTime(.seconds(30))
        let ping = try #require(forger.records.last)
        try forger.send(.pong, ping.payload)
        #expect(forger.failure == nil)
        try forger.send(.pong, ping.payload)
        #expect(forger.failure == .protocolViolation)
    }

    @Test("a rekey that comes after fewer than 1,024 records ends the channel")
    func rekeyTooSoon() throws {
        let forger = try MaliciousNoisePeer.ready()
        // The malicious peer's `ready` was the first record.
        for _ in 0..<1_022 { try forger.send(.padding) }
        #expect(forger.failure == nil)
        try forger.send(.rekey)
        #expect(forger.failure == .protocolViolation)
    }

    @Test("a rekey after 1,024 records changes the key, and the next needs 1,024 more")
    func rekey() throws {
        let forger = try MaliciousNoisePeer.ready()
        for _ in 0..<1_023 { try forger.send(.padding) }
        try forger.send(.rekey)
        try forger.engine.rekeySending()
        try forger.send(.data, [5])
        #expect(forger.victim.nextMessage() == [5])
        for _ in 0..<1_022 { try forger.send(.padding) }
        #expect(forger.failure == nil)
        try forger.send(.rekey)
        #expect(forger.failure == .protocolViolation)
    }

    @Test("a record under the old key after a rekey ends the channel")
    func oldKey() throws {
        let forger = try MaliciousNoisePeer.ready()
        for _ in 0..<1_023 { try forger.send(.padding) }
        try forger.send(.rekey)
        try forger.send(.data, [5])
        #expect(forger.failure == .authenticationFailed)
    }

    @Test("a rekey with a payload ends the channel")
    func malformedRekey() throws {
        let forger = try MaliciousNoisePeer.ready()
        for _ in 0..<1_023 { try forger.send(.padding) }
        try forger.send(.rekey, [0])
        #expect(forger.failure == .protocolViolation)
    }

    @Test("this side changes its key when its limit is reached, and not before 1,024 records")
    func ownRekey() throws {
        let forger = try MaliciousNoisePeer.ready {
            $0.limits.rekeyAfterRecords = 1
            $0.limits.sendAhead = 1 << 20
        }
        for index in 0..<2_500 { _ = try forger.victim.queue([UInt8(index & 0xFF)]) }
        try forger.pump()
        let rekeys = forger.records.enumerated().filter { $0.element.type == .rekey }.map(\.offset)
        #expect(rekeys == [1_024, 2_049])
        #expect(forger.records.count { $0.type == .data } == 2_500)
    }

    @Test("this side changes its key after a limit in bytes, too")
    func ownRekeyByBytes() throws {
        let forger = try MaliciousNoisePeer.ready { $0.limits.rekeyAfterBytes = 1_500_000 }
        for _ in 0..<3_000 {
            _ = try forger.victim.queue(Array(repeating: 1, count: 1_000))
            try forger.pump()
        }
        let rekeys = forger.records.enumerated().filter { $0.element.type == .rekey }.map(\.offset)
        #expect(rekeys == [1_501, 3_002])
    }

    @Test("an acknowledgement that does not grow, or exceeds what was sent, ends the channel")
    func acknowledgements() throws {
        for (before, after) in [(0, 3), (0, 0), (2, 1), (2, 2), (0, UInt64.max)]
            as [(UInt64, UInt64)]
        {
            let forger = try MaliciousNoisePeer.ready()
            for _ in 0..<2 { _ = try forger.victim.queue([1]) }
            try forger.pump()
            if before > 0 { try forger.send(.ack, before.bigEndianBytes) }
            #expect(forger.failure == nil)
            try forger.send(.ack, after.bigEndianBytes)
            #expect(forger.failure == .protocolViolation)
        }
    }

    @Test("an acknowledgement of a message that is not sealed yet ends the channel")
    func acknowledgesUnsent() throws {
        let forger = try MaliciousNoisePeer.ready()
        forger.isBlocked = true
        for _ in 0..<20 { _ = try forger.victim.queue(Array(repeating: 1, count: 3_000)) }
        try forger.pump()
        #expect(forger.victim.unsealedBytes > 0)
        try forger.send(.ack, UInt64(20).bigEndianBytes)
        #expect(forger.failure == .protocolViolation)
    }

    @Test("an acknowledgement of a wrong length ends the channel", arguments: [0, 7, 9])
    func malformedAck(count: Int) throws {
        let forger = try MaliciousNoisePeer.ready()
        _ = try forger.victim.queue([1])
        try forger.pump()
        try forger.send(
            .ack, Array(repeating: 0, count: max(0, count - 1)) + (count > 0 ? [1] : []))
        #expect(forger.failure == .protocolViolation)
    }

    @Test("messages are acknowledged after 32 of them, after 50 ms, or with the end")
    func ownAcknowledgements() throws {
        let forger = try MaliciousNoisePeer.ready()
        for index in 1...64 {
            try forger.send(.data, [1])
            #expect(forger.records.count { $0.type == .ack } == index / 32)
        }
        try forger.send(.data, [1])
        try forger.passTime(.milliseconds(49))
        #expect(forger.records.count { $0.type == .ack } == 2)
        try forger.passTime(.milliseconds(1))
        #expect(forger.records.last?.payload == UInt64(65).bigEndianBytes)
        try forger.send(.end, [0])
        #expect(forger.records.last?.type == .ack)
        #expect(forger.records.last?.payload == UInt64(66).bigEndianBytes)
    }

    @Test("a second ready breaks the protocol")
    func readyTwice() throws {
        let forger = try MaliciousNoisePeer.ready()
        try forger.send(.ready, forger.transcript.ready(from: .dialer))
        #expect(forger.failure == .authenticationFailed)
    }

    @Test("the longest record is read one byte at a time, and little more memory is held")
    func longestRecord() throws {
        let forger = try MaliciousNoisePeer.ready()
        let payload = [UInt8](repeating: 3, count: Record.maximumPayload)
        let record = try forger.sealed(0, payload)
        #expect(record.count == 2 + 65_535)
        for byte in record.dropLast() {
            forger.deliver([byte])
            if forger.victim.unprocessedBytes % 8_192 == 0 {
                #expect(forger.victim.unprocessedBytes <= record.count)
            }
        }
        #expect(forger.victim.nextMessage() == nil)
        forger.deliver([record[record.count - 1]])
        #expect(forger.victim.nextMessage() == payload)
    }

    @Test(
        "a record that is incomplete after 30 seconds ends the channel, even if bytes still arrive")
    func slowRecord() throws {
        let forger = try MaliciousNoisePeer.ready()
        let record = try forger.sealed(0, Array(repeating: 1, count: 100))
        for second in 0..<31 where forger.failure == nil {
            forger.deliver([record[second]])
            try forger.passTime(.seconds(1))
            if second < 29 { #expect(forger.failure == nil) }
        }
        #expect(forger.failure == .timedOut)
    }

    @Test("a record whose length is shorter than its tag ends the channel", arguments: 0..<16)
    func tiny(length: UInt8) throws {
        let forger = try MaliciousNoisePeer.ready()
        forger.deliver([0, length])
        #expect(forger.failure == .protocolViolation)
    }

    @Test("a full inbox stops the reading, and a record that was cut there is completed later")
    func readAhead() throws {
        let forger = try MaliciousNoisePeer.ready { $0.limits.readAhead = 10_000 }
        var records: [UInt8] = []
        for index in 0..<30 {
            records += try forger.sealed(0, [UInt8](repeating: UInt8(index), count: 1_000))
        }
        forger.deliver(records)
        #expect(forger.victim.wantsBytes == false)
        #expect(forger.victim.unreceivedBytes < 12_000)
        // Neither silence nor an incomplete record counts while this side does not read.
        try forger.passTime(.seconds(3_600))
        #expect(forger.failure == nil)
        for index in 0..<30 {
            #expect(
                forger.victim.nextMessage() == [UInt8](repeating: UInt8(index), count: 1_000))
            if forger.victim.wantsBytes { forger.victim.didResumeReading(now: forger.now) }
        }
    }

    @Test("a side that does not read sends padding twice a minute, and nothing else")
    func keepsAlive() throws {
        let forger = try MaliciousNoisePeer.ready { $0.limits.readAhead = 1_000 }
        try forger.send(.data, Array(repeating: 1, count: 1_000))
        try forger.passTime(.seconds(600))
        #expect(forger.records.count { $0 == (.padding, []) } == 20)
        #expect(forger.records.count { $0.type == .ping } == 0)
        #expect(forger.victim.nextMessage()?.count == 1_000)
        forger.victim.didResumeReading(now: forger.now)
        try forger.passTime(.seconds(59))
        #expect(forger.records.count { $0 == (.padding, []) } == 20)
        #expect(forger.records.count { $0.type == .ping } == 1)
    }

    @Test("a silent peer is pinged once, and counts as dead after a minute")
    func deadPeer() throws {
        let forger = try MaliciousNoisePeer.ready()
        try forger.passTime(.seconds(59))
        #expect(forger.records.count { $0.type == .ping } == 1)
        #expect(forger.failure == nil)
        try forger.passTime(.seconds(1))
        #expect(forger.failure == .timedOut)
    }

    @Test("a peer that answers stays connected, with two pings a minute")
    func livingPeer() throws {
        let forger = try MaliciousNoisePeer.ready()
        try forger.keepAlive(for: .seconds(20))
        var answered = 0
        for _ in 0..<600 {
            try forger.passTime(.seconds(1))
            let pings = forger.records.filter { $0.type == .ping }
            if pings.count > answered {
                answered = pings.count
                try forger.send(.pong, pings[answered - 1].payload)
            }
        }
        #expect(forger.failure == nil)
        #expect((19...20).contains(answered))
    }

    @Test("a silent peer that takes what is sent does not count as dead")
    func progress() throws {
        let forger = try MaliciousNoisePeer.ready()
        for _ in 0..<10 {
            forger.isBlocked = true
            _ = try forger.victim.queue(Array(repeating: 1, count: 20_000))
            try forger.passTime(.seconds(50))
            forger.isBlocked = false
            try forger.pump()
        }
        #expect(forger.failure == nil)
        try forger.passTime(.seconds(60))
        #expect(forger.failure == .timedOut)
    }
}
