@testable internal import BLESec
@testable internal import BLESecTLSEngine

extension FuzzTarget {
    /// The content that a TLS peer sends, in pieces of any size: the blesec/1 records that are read
    /// must equal those that were sent.
    static let tls = FuzzTarget(name: "tls") { input in
        var script = Script(input)
        let role: ChannelRole = script.flag() ? .acceptor : .dialer
        let scene = TLSScene(victim: role)
        while !script.isOver { scene.play(&script) }
    } seeds: {
        let courses: [[UInt8]] = [
            [0, 5, 0, 3, 1, 2, 3, 0, 4, 0, 1, 9, 0], [0, 1, 0, 0, 2, 3, 5, 0, 3, 1, 2, 3],
            [0, 12, 0, 1, 1, 0, 1, 2, 0, 0, 0, 2, 3, 4, 2, 0, 3, 0, 1, 5],
            [3, 200, 3, 255, 3, 255, 1, 0, 3, 255], [2, 4, 23, 3, 3, 0], [0, 2, 255, 255, 4],
            [2, 5, 23, 3, 3, 0, 0, 1, 1, 1, 1], [5, 3, 0, 3, 0, 3, 9, 9, 9],
        ]
        return courses.flatMap { [[0] + $0, [1] + $0] }
    }
}

/// An engine, and a plain OpenSSL session as its peer.
private final class TLSScene {
    private var engine: Engine
    private let peer: TLSSession
    /// The bytes on their way to the engine.
    private var wire: [UInt8] = []
    /// The bytes that have arrived at the engine, and that the engine has not read yet.
    private var inbound: [UInt8] = []
    /// The content that the peer has sent inside TLS and the engine has not returned.
    private var unread: [UInt8] = []
    /// Whether the engine gets exactly the bytes that the peer's OpenSSL has written.
    private var isWireUnchanged = true

    init(victim role: ChannelRole) {
        engine = must { Engine(try TLSEngine(Devices.tls(role), role: role, isNegotiated: true)) }
        peer = must { try TLSSession(Devices.tls(role.peer), role: role.peer, isNegotiated: true) }
        peer.isAdmitted = true
        for _ in 0..<4 { Self.step(&engine, peer, &wire) }
        guard case .established = engine.phase else { fatalError("no handshake: \(engine.phase)") }
    }

    private static func step(_ engine: inout Engine, _ peer: TLSSession, _ wire: inout [UInt8]) {
        must {
            if case .awaitingTrustDecision = engine.phase { try engine.admit() }
            if peer.identity == nil { _ = try peer.advance() }
            while let flight = try engine.nextHandshake() { try hand(flight, to: peer) }
            wire += peer.pipe.takeFlight()
            if case .handshaking = engine.phase {
                wire.removeFirst(try engine.receiveHandshake(wire.span))
            }
        }
    }

    /// Gives the peer a flight of the handshake, one TLS record at a time. A dialer's handshake is
    /// suspended for the trust decision; this peer has its decision already, so it continues.
    private static func hand(_ flight: [UInt8], to peer: TLSSession) throws {
        var rest = flight
        while let length = try TLSRecords.length(rest.span, isHello: true), length <= rest.count {
            let step = try unsafe rest.withUnsafeBufferPointer { buffer in
                guard let base = buffer.baseAddress else { return TLSSession.Step.wantsMore }
                return try unsafe peer.advance(with: base, count: length)
            }
            if step == .suspended { _ = try peer.advance() }
            rest.removeFirst(length)
        }
    }

    func play(_ script: inout Script) {
        switch script.number(below: 7) {
        case 0: seal(script.piece())
        case 1: peer.changesKey = true
        case 2: inject(script.piece())
        case 3: seal(Array(repeating: script.byte(), count: 6_000))
        case 4:
            isWireUnchanged = false
            wire = script.damage(wire)
        case 5: deliver(Int(script.byte()) << 4)
        default: _ = try? engine.rekeySending()
        }
        if script.flag() { deliver(wire.count) }
    }

    private func deliver(_ count: Int) {
        inbound += wire.prefix(count)
        wire.removeFirst(min(count, wire.count))
        open()
    }

    private func inject(_ bytes: [UInt8]) {
        isWireUnchanged = isWireUnchanged && bytes.isEmpty
        wire += bytes
    }

    /// Seals bytes as a TLS record.
    private func seal(_ bytes: [UInt8]) {
        guard !bytes.isEmpty else { return }
        let room = bytes.count + 100
        var output = [UInt8](repeating: 0, count: room)
        output.replaceSubrange((room - bytes.count)..., with: bytes)
        let count = must {
            try unsafe output.withUnsafeMutableBufferPointer { buffer in
                guard let base = buffer.baseAddress else { return 0 }
                return try unsafe peer.write(count: bytes.count, to: base, room: room)
            }
        }
        wire += output.prefix(count)
        unread += bytes
    }

    private func open() {
        guard case .established = engine.phase else { return }
        do {
            while let record = try Self.open(&engine, &inbound) {
                precondition(record.consumed > 0 && record.consumed <= inbound.count)
                if let plaintext = record.plaintext {
                    precondition(plaintext.upperBound <= record.consumed)
                    expect(Array(inbound[plaintext]))
                }
                inbound.removeFirst(record.consumed)
            }
        } catch {
            precondition(engine.phase == .failed, "an error that does not end the engine")
            // Bytes that OpenSSL wrote can cause an error for two reasons only: the content begins
            // with a length above that of the longest record, or too many TLS records have no data.
            let length = unread.count < 2 ? 0 : Int(unread[0]) << 8 | Int(unread[1])
            precondition(
                !isWireUnchanged || length > TLSRecords.longestRecord
                    || error.code == .limitExceeded,
                "unchanged bytes cause an unexpected error: \(error)")
        }
    }

    private static func open(
        _ engine: inout Engine, _ bytes: inout [UInt8]
    ) throws(ChannelError) -> OpenedRecord? {
        var span = bytes.mutableSpan
        return try engine.open(&span)
    }

    /// Checks that a record from the engine is the next one that the peer has sent.
    private func expect(_ record: [UInt8]) {
        guard isWireUnchanged else { return }
        precondition(unread.count >= 2 + record.count, "the engine returns more than was sent")
        precondition(Int(unread[0]) << 8 | Int(unread[1]) == record.count)
        precondition(unread.dropFirst(2).prefix(record.count).elementsEqual(record))
        unread.removeFirst(2 + record.count)
    }
}
