import BLESecChannelCore
import TestSupport
import Testing

@testable import BLESec

/// A proven peer that breaks the rules of records over TLS, or divides records over TLS records at
/// will.
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
            let rogue = try MaliciousTLSPeer.ready(role)
            rogue.write(bytes)
            #expect(rogue.failure?.code == .protocolViolation, "\(bytes.prefix(3))")
        }
    }

    @Test("a rekey record ends the channel at any time, since TLS has its own rekeying")
    func lateRekey() throws {
        let rogue = try MaliciousTLSPeer.ready()
        for _ in 0..<1_100 { rogue.send(.padding) }
        rogue.send(.rekey)
        #expect(rogue.failure?.code == .protocolViolation)
    }

    @Test("ignorable records are ignored, and a second ready is not")
    func ignorable() throws {
        let rogue = try MaliciousTLSPeer.ready()
        for type in 0x80...0xFF {
            rogue.send(RecordType(rawValue: UInt8(type)), Array(repeating: 0, count: type))
        }
        rogue.send(.data, [1])
        #expect(rogue.victim.nextMessage() == [1])
        rogue.send(.ready, Array(repeating: 0, count: 32))
        #expect(rogue.failure?.code == .authenticationFailed)
    }

    @Test("before ready every other record is refused, and so is a wrong ready", arguments: roles)
    func beforeReady(role: ChannelRole) throws {
        let company = try CertificateFixture.shared()
        for (record, code) in [
            (MaliciousTLSPeer.record(.data, [1]), ChannelError.Code.protocolViolation),
            (MaliciousTLSPeer.record(.end, [0]), .protocolViolation),
            (
                MaliciousTLSPeer.record(.ready, Array(repeating: 0, count: 32)),
                .authenticationFailed
            ),
            (MaliciousTLSPeer.record(.reject, [1] + Array(repeating: 0, count: 31)), .refused),
        ] {
            let rogue = try MaliciousTLSPeer(
                role, .init(certificate: role == .dialer ? "dialer" : "acceptor"),
                in: company.authority.folder, victim: company.configuration(role.peer))
            try rogue.run()
            rogue.write(record)
            #expect(!rogue.isReady && rogue.failure?.code == code)
        }
    }

    @Test(
        "records may be divided over TLS records in any way", arguments: [1, 2, 3, 7, 100, 16_384])
    func cut(piece: Int) throws {
        let rogue = try MaliciousTLSPeer.ready()
        var stream: [UInt8] = []
        let sizes = [0, 1, 40, 3_000, 0, 5]
        for size in sizes {
            stream += MaliciousTLSPeer.record(.data, [UInt8](repeating: 8, count: size))
        }
        for start in stride(from: 0, to: stream.count, by: piece) {
            rogue.write(Array(stream[start..<min(start + piece, stream.count)]))
        }
        for size in sizes { #expect(rogue.victim.nextMessage()?.count == size) }
        #expect(rogue.held == 0)
        rogue.send(.ping, [1])
        #expect(rogue.types.last == .pong)
    }

    @Test("the longest record in the shortest TLS records is read, and little more memory is held")
    func dripping() throws {
        let rogue = try MaliciousTLSPeer.ready()
        let payload = (0..<Record.maximumPayload).map { UInt8(truncatingIfNeeded: $0) }
        for byte in MaliciousTLSPeer.record(.data, payload) {
            rogue.deliver(rogue.sealed([byte]))
            guard rogue.held < 100_000 else {
                Issue.record("\(rogue.held) bytes are held")
                break
            }
        }
        #expect(rogue.victim.nextMessage() == payload)
        #expect(rogue.held == 0)
    }

    @Test(
        "a record that is incomplete after 30 seconds ends the channel, even if bytes still arrive")
    func slow() throws {
        let rogue = try MaliciousTLSPeer.ready()
        let bytes = rogue.sealed(MaliciousTLSPeer.record(.data, Array(repeating: 1, count: 100)))
        for second in 0..<31 where !rogue.isOver {
            rogue.deliver([bytes[second]])
            rogue.now += Duration.seconds(1).wholeNanoseconds
            rogue.victim.handleTimeout(now: rogue.now)
            if second < 28 { #expect(!rogue.isOver) }
        }
        #expect(rogue.failure?.code == .timedOut)
    }

    @Test("the peer may change its key, but not too often")
    func keyUpdates() throws {
        for role in Self.roles {
            let rogue = try MaliciousTLSPeer.ready(role)
            for round in 0..<40 as Range<UInt8> {
                rogue.changeKey(asking: round % 2 == 0)
                rogue.send(.data, [round])
                #expect(rogue.victim.nextMessage() == [round])
                _ = try rogue.victim.queue([round])
                rogue.pump()
                #expect(rogue.opened.last?.payload == [round])
            }
            for _ in 0..<33 where !rogue.isOver { rogue.changeKey() }
            #expect([.limitExceeded, .protocolViolation].contains(rogue.failure?.code))
        }
    }

    @Test("this side changes its key when its limit is reached, without a rekey record")
    func ownRekey() throws {
        let rogue = try MaliciousTLSPeer.ready {
            $0.limits.rekeyAfterRecords = 1
            $0.limits.sendAhead = 1 << 20
        }
        let before = rogue.records.count
        for index in 0..<2_500 { _ = try rogue.victim.queue([UInt8(index & 0xFF)]) }
        rogue.pump()
        #expect(rogue.opened.count { $0.type == .data } == 2_500)
        #expect(!rogue.types.contains(.rekey))
        // Two records that change a key.
        #expect(rogue.records.count - before == 2_502)
    }

    @Test("a full inbox stops the reading, and a record that was cut there is completed later")
    func readAhead() throws {
        let rogue = try MaliciousTLSPeer.ready { $0.limits.readAhead = 10_000 }
        var records: [UInt8] = []
        for index in 0..<30 {
            records += MaliciousTLSPeer.record(
                .data, [UInt8](repeating: UInt8(index), count: 1_000))
        }
        // Each TLS record has several records in it.
        rogue.deliver(rogue.sealed(records))
        #expect(!rogue.victim.wantsBytes && rogue.victim.unreceivedBytes < 12_000)
        for index in 0..<30 {
            #expect(rogue.victim.nextMessage() == [UInt8](repeating: UInt8(index), count: 1_000))
            if rogue.victim.wantsBytes { rogue.victim.didResumeReading(now: rogue.now) }
        }
        #expect(rogue.held == 0)
    }

    @Test("a changed record ends the channel without an alert", arguments: roles)
    func changed(role: ChannelRole) throws {
        let rogue = try MaliciousTLSPeer.ready(role)
        let before = rogue.records.count
        var bytes = rogue.sealed(MaliciousTLSPeer.record(.data, [1]))
        bytes[bytes.count - 1] ^= 1
        rogue.deliver(bytes)
        rogue.pump()
        #expect(rogue.failure?.code == .authenticationFailed)
        #expect(rogue.records.count == before && rogue.alert == nil)
    }

    @Test("close_notify does not end a channel properly, and nothing after it is read")
    func closeNotify() throws {
        let quiet = try MaliciousTLSPeer.ready()
        quiet.shutDown()
        #expect(!quiet.isOver && quiet.held == 0)
        #expect(quiet.failure?.code == .truncated)
        let loud = try MaliciousTLSPeer.ready()
        let more = loud.sealed(MaliciousTLSPeer.record(.data, [1]))
        loud.shutDown()
        loud.deliver(more)
        #expect(loud.failure != nil && loud.victim.nextMessage() == nil)
    }
}
