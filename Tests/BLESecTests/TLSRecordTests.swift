import BLESecChannelCore
import TestSupport
import Testing

@testable import BLESec

/// A proven peer that sends forbidden records, or divides records of blesec/1 over TLS records in
/// unusual ways.
@Suite("Records over TLS")
struct TLSRecordTests {
    static let roles = [ChannelRole.dialer, .acceptor]

    @Test("a record that is not allowed ends the channel", arguments: roles)
    func forbidden(role: ChannelRole) throws {
        let long = [UInt8](repeating: 0, count: Record.maximumPayload + 1)
        for bytes in [
            MaliciousTLSPeer.record(RecordType(rawValue: 0x09)),
            MaliciousTLSPeer.record(RecordType(rawValue: 0x7F)),
            MaliciousTLSPeer.record(.rekey), MaliciousTLSPeer.record(.dataMore),
            MaliciousTLSPeer.record(.end, []),
            MaliciousTLSPeer.record(.pong), MaliciousTLSPeer.record(.ack, [1]), [0, 0],
            MaliciousTLSPeer.record(.data, long),
        ] {
            let peer = try MaliciousTLSPeer.ready(role)
            peer.write(bytes)
            #expect(
                peer.endLinkReturningVictimFailure()?.code == .protocolViolation,
                "\(bytes.prefix(3))")
        }
    }

    @Test("even after 1,100 records a rekey record ends the channel: TLS has its own rekeying")
    func lateRekey() throws {
        let peer = try MaliciousTLSPeer.ready()
        for _ in 0..<1_100 { peer.send(.padding) }
        peer.send(.rekey)
        #expect(peer.endLinkReturningVictimFailure()?.code == .protocolViolation)
    }

    @Test("records of types from 0x80 on are ignored, and a second ready ends the channel")
    func ignorable() throws {
        let peer = try MaliciousTLSPeer.ready()
        for type in 0x80...0xFF {
            peer.send(RecordType(rawValue: UInt8(type)), Array(repeating: 0, count: type))
        }
        peer.send(.data, [1])
        #expect(peer.victim.nextMessage() == [1])
        peer.send(.ready, Array(repeating: 0, count: 32))
        #expect(peer.endLinkReturningVictimFailure()?.code == .authenticationFailed)
    }

    @Test(
        "a data, end or reject record before ready ends the channel, and so does a wrong ready",
        arguments: roles)
    func beforeReady(role: ChannelRole) throws {
        let fixture = try CertificateFixture.shared()
        for (record, code) in [
            (MaliciousTLSPeer.record(.data, [1]), ChannelError.Code.protocolViolation),
            (MaliciousTLSPeer.record(.end, [0]), .protocolViolation),
            (
                MaliciousTLSPeer.record(.ready, Array(repeating: 0, count: 32)),
                .authenticationFailed
            ),
            (MaliciousTLSPeer.record(.reject, [1] + Array(repeating: 0, count: 31)), .refused),
        ] {
            let peer = try MaliciousTLSPeer(
                role, .init(certificate: role == .dialer ? "dialer" : "acceptor"),
                in: fixture.authority.folder, victim: fixture.configuration(role.peer))
            try peer.run()
            peer.write(record)
            #expect(!peer.isVictimReady && peer.endLinkReturningVictimFailure()?.code == code)
        }
    }

    @Test(
        "a TLS record may contain a part of a record, or several records",
        arguments: [1, 2, 3, 7, 100, 16_384])
    func cut(piece: Int) throws {
        let peer = try MaliciousTLSPeer.ready()
        var stream: [UInt8] = []
        let sizes = [0, 1, 40, 3_000, 0, 5]
        for size in sizes {
            stream += MaliciousTLSPeer.record(.data, [UInt8](repeating: 8, count: size))
        }
        for start in stride(from: 0, to: stream.count, by: piece) {
            peer.write(Array(stream[start..<min(start + piece, stream.count)]))
        }
        for size in sizes { #expect(peer.victim.nextMessage()?.count == size) }
        #expect(peer.unprocessedBytes == 0)
        peer.send(.ping, [1])
        #expect(peer.types.last == .pong)
    }

    @Test(
        "the longest record may arrive in TLS records of one byte; less than 100 kB is buffered")
    func byteByByte() throws {
        let peer = try MaliciousTLSPeer.ready()
        let payload = (0..<Record.maximumPayload).map { UInt8(truncatingIfNeeded: $0) }
        for byte in MaliciousTLSPeer.record(.data, payload) {
            peer.deliver(peer.sealed([byte]))
            guard peer.unprocessedBytes < 100_000 else {
                Issue.record("\(peer.unprocessedBytes) bytes wait to be processed")
                break
            }
        }
        #expect(peer.victim.nextMessage() == payload)
        #expect(peer.unprocessedBytes == 0)
    }

    @Test(
        "a record that is incomplete after 30 seconds ends the channel, even if bytes still arrive")
    func slow() throws {
        let peer = try MaliciousTLSPeer.ready()
        let bytes = peer.sealed(MaliciousTLSPeer.record(.data, Array(repeating: 1, count: 100)))
        for second in 0..<31 where !peer.isVictimOver {
            peer.deliver([bytes[second]])
            peer.now += Duration.seconds(1).wholeNanoseconds
            peer.victim.handleTimeout(now: peer.now)
            if second < 28 { #expect(!peer.isVictimOver) }
        }
        #expect(peer.endLinkReturningVictimFailure()?.code == .timedOut)
    }

    @Test("the peer may change its key between messages, but not 33 times without a message")
    func keyUpdates() throws {
        for role in Self.roles {
            let peer = try MaliciousTLSPeer.ready(role)
            for round in 0..<40 as Range<UInt8> {
                peer.changeKey(asking: round % 2 == 0)
                peer.send(.data, [round])
                #expect(peer.victim.nextMessage() == [round])
                _ = try peer.victim.queue([round])
                peer.pump()
                #expect(peer.opened.last?.payload == [round])
            }
            for _ in 0..<32 { peer.changeKey() }
            #expect(!peer.isVictimOver)
            peer.changeKey()
            #expect(
                [.limitExceeded, .protocolViolation].contains(
                    peer.endLinkReturningVictimFailure()?.code))
        }
    }

    @Test(
        "data goes both ways after a side with nothing to send has got several requests to change its key",
        arguments: roles)
    func keyRequests(role: ChannelRole) throws {
        let peer = try MaliciousTLSPeer.ready(role)
        for count in [2, 3, 40] {
            for _ in 0..<count {
                peer.changeKey(asking: true)
                peer.send(.padding)
            }
            _ = try peer.victim.queue([UInt8(count)])
            peer.pump()
            #expect(peer.opened.last?.payload == [UInt8(count)])
            peer.send(.data, [UInt8(count)])
            #expect(peer.victim.nextMessage() == [UInt8(count)])
        }
        for _ in 0..<3 { peer.changeKey(asking: true) }
        _ = try peer.victim.queue([1])
        peer.pump()
        #expect(peer.opened.last?.payload == [1])
    }

    @Test("requests for a change of key end the channel if this side never has anything to send")
    func tooManyKeyRequests() throws {
        let peer = try MaliciousTLSPeer.ready()
        for _ in 0..<100 where !peer.isVictimOver {
            peer.changeKey(asking: true)
            peer.send(.padding)
        }
        #expect(peer.isVictimOver)
        #expect(peer.endLinkReturningVictimFailure()?.code == .limitExceeded)
    }

    @Test("messages wait while only a part of a session ticket has arrived, and are sent after it")
    func ticketInParts() throws {
        let peer = try MaliciousTLSPeer.ready(.acceptor)
        let ticket = peer.ticketRecords()
        try #require(ticket.count > 1)
        let recordCountBefore = peer.records.count
        for record in ticket.dropLast() { peer.deliver(record) }
        _ = try peer.victim.queue([1])
        peer.pump()
        #expect(!peer.isVictimOver && peer.records.count == recordCountBefore)
        peer.deliver(ticket[ticket.count - 1])
        peer.pump()
        #expect(peer.opened.last?.payload == [1])
        peer.send(.data, [2])
        #expect(peer.victim.nextMessage() == [2])
    }

    @Test("with rekeyAfterRecords = 1 the key changes every 1,024 records, without rekey records")
    func rekeyOfThisSide() throws {
        let peer = try MaliciousTLSPeer.ready {
            $0.limits.rekeyAfterRecords = 1
            $0.limits.sendAhead = 1 << 20
        }
        let recordCountBefore = peer.records.count
        for index in 0..<2_500 { _ = try peer.victim.queue([UInt8(index & 0xFF)]) }
        peer.pump()
        #expect(peer.opened.count { $0.type == .data } == 2_500)
        #expect(!peer.types.contains(.rekey))
        // 2,500 TLS records with data, and two that change the key.
        #expect(peer.records.count - recordCountBefore == 2_502)
    }

    @Test("a full inbox stops the reading, and later records are read once there is room")
    func readAhead() throws {
        let peer = try MaliciousTLSPeer.ready { $0.limits.readAhead = 10_000 }
        var records: [UInt8] = []
        for index in 0..<30 {
            records += MaliciousTLSPeer.record(
                .data, [UInt8](repeating: UInt8(index), count: 1_000))
        }
        // Each TLS record contains several records of blesec/1.
        peer.deliver(peer.sealed(records))
        #expect(!peer.victim.wantsBytes && peer.victim.unreceivedBytes < 12_000)
        for index in 0..<30 {
            #expect(peer.victim.nextMessage() == [UInt8](repeating: UInt8(index), count: 1_000))
            if peer.victim.wantsBytes { peer.victim.didResumeReading(now: peer.now) }
        }
        #expect(peer.unprocessedBytes == 0)
    }

    /// A dialer with the second list of groups has to send a second ClientHello.
    @Test(
        "the first ClientHello may fill several records of version 1.0; later records must have 1.2",
        arguments: ["X25519", "P-521:P-256"])
    func recordVersion(groups: String) throws {
        let fixture = try CertificateFixture.shared()
        for laterRecordHasOldVersion in [false, true] {
            let peer = try MaliciousTLSPeer(
                .dialer, .init(groups: groups), in: fixture.authority.folder,
                victim: fixture.configuration(.acceptor))
            peer.tamper = { [unowned peer] bytes in
                switch peer.flights.count {
                case 0: return Self.inTwoRecords(bytes)
                case 1 where laterRecordHasOldVersion: return [bytes[0], 3, 1] + bytes[3...]
                default: return bytes
                }
            }
            try peer.run()
            #expect(peer.flights.count == (groups == "X25519" || laterRecordHasOldVersion ? 2 : 3))
            #expect(peer.types == (laterRecordHasOldVersion ? [] : [.ready]))
            guard laterRecordHasOldVersion else { continue }
            #expect(peer.endLinkReturningVictimFailure()?.code == .protocolViolation)
        }
    }

    /// The content of the handshake record `record` in two records of version 1.0.
    private static func inTwoRecords(_ record: [UInt8]) -> [UInt8] {
        let half = (record.count - 5) / 2
        var records: [UInt8] = []
        for part in [record[5..<5 + half], record[(5 + half)...]] {
            records += [22, 3, 1, UInt8(part.count >> 8), UInt8(part.count & 0xFF)]
            records += part
        }
        return records
    }

    @Test("a changed record ends the channel without an alert", arguments: roles)
    func changed(role: ChannelRole) throws {
        let peer = try MaliciousTLSPeer.ready(role)
        let recordCountBefore = peer.records.count
        var bytes = peer.sealed(MaliciousTLSPeer.record(.data, [1]))
        bytes[bytes.count - 1] ^= 1
        peer.deliver(bytes)
        peer.pump()
        #expect(peer.endLinkReturningVictimFailure()?.code == .authenticationFailed)
        #expect(peer.records.count == recordCountBefore && peer.alert == nil)
    }

    @Test("a channel that ends with close_notify alone is truncated, and nothing after it is read")
    func closeNotify() throws {
        let silentPeer = try MaliciousTLSPeer.ready()
        silentPeer.shutDown()
        #expect(!silentPeer.isVictimOver && silentPeer.unprocessedBytes == 0)
        #expect(silentPeer.endLinkReturningVictimFailure()?.code == .truncated)
        let sendingPeer = try MaliciousTLSPeer.ready()
        let more = sendingPeer.sealed(MaliciousTLSPeer.record(.data, [1]))
        sendingPeer.shutDown()
        sendingPeer.deliver(more)
        #expect(
            sendingPeer.endLinkReturningVictimFailure() != nil
                && sendingPeer.victim.nextMessage() == nil)
    }

    @Test(
        "a byte after close_notify ends the channel at once, even if it belongs to no complete record",
        arguments: roles)
    func byteAfterCloseNotify(role: ChannelRole) throws {
        for bytes: [UInt8] in [[23], [23, 3, 3, 0]] {
            let peer = try MaliciousTLSPeer.ready(role)
            peer.shutDown()
            #expect(!peer.isVictimOver)
            peer.deliver(bytes)
            #expect(peer.isVictimOver)
            #expect(peer.endLinkReturningVictimFailure()?.code == .protocolViolation)
        }
    }
}
