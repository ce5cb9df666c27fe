import BLESecChannelCore
import BLESecTLSEngine

/// Two engines between which a test carries the bytes.
struct EnginePair: ~Copyable {
    var dialer: TLSEngine
    var acceptor: TLSEngine
    /// How many bytes of handshake messages and tickets each side has sent.
    private(set) var sentCounts: [ChannelRole: Int] = [:]
    /// The bytes of each side that the other side has not read yet.
    private var unreadBytes: [ChannelRole: [UInt8]] = [:]

    init(_ dialer: TLSContext, _ acceptor: TLSContext, isNegotiated: Bool = true) throws {
        self.init(
            dialer: try TLSEngine(dialer, role: .dialer, isNegotiated: isNegotiated),
            acceptor: try TLSEngine(acceptor, role: .acceptor, isNegotiated: isNegotiated))
    }

    init(dialer: consuming TLSEngine, acceptor: consuming TLSEngine) {
        self.dialer = dialer
        self.acceptor = acceptor
    }

    /// Runs ten steps of each side, more than any handshake needs, and admits every peer. Messages
    /// arrive in pieces of at most `piece` bytes.
    mutating func shakeHands(piece: Int = 65_536) throws {
        for _ in 0..<10 {
            try step(.dialer, piece: piece)
            try step(.acceptor, piece: piece)
        }
    }

    /// Lets the side of `role` send its next message. The peer reads the message if the peer is
    /// still in its handshake. An engine may use only some of the offered bytes; the unused bytes
    /// are offered again, together with the next piece.
    mutating func step(_ role: ChannelRole, piece: Int = 65_536) throws {
        let bytes =
            role == .dialer ? try Self.nextMessage(&dialer) : try Self.nextMessage(&acceptor)
        sentCounts[role, default: 0] += bytes.count
        unreadBytes[role, default: []] += bytes
        var offered = 0
        let unread = unreadBytes[role, default: []]
        var start = 0
        while start < unread.count, offered < unread.count - start {
            offered = min(offered + piece, unread.count - start)
            let chunk = Array(unread[start..<start + offered])
            let used =
                if role == .dialer {
                    try Self.read(chunk, &acceptor)
                } else {
                    try Self.read(chunk, &dialer)
                }
            start += used
            offered -= used
        }
        unreadBytes[role] = Array(unread[start...])
    }

    /// What a side has sent and the other side has not read in its handshake.
    func unread(from role: ChannelRole) -> [UInt8] { unreadBytes[role, default: []] }

    /// Returns how many of the bytes the engine has used; none after its handshake.
    private static func read(_ bytes: [UInt8], _ engine: inout TLSEngine) throws -> Int {
        guard case .handshaking = engine.phase else { return 0 }
        return try engine.receiveHandshake(bytes.span)
    }

    /// Admits the peer if the engine waits for that, and returns the engine's next handshake
    /// message; empty if there is none.
    private static func nextMessage(_ engine: inout TLSEngine) throws -> [UInt8] {
        if case .awaitingTrustDecision = engine.phase { try engine.admit() }
        return try engine.nextHandshake() ?? []
    }
}

extension TLSEngine {
    /// Seals a record, and returns it as an array. In direct mode, `type` is nil.
    mutating func sealed(_ type: UInt8?, _ payload: [UInt8]) throws -> [UInt8] {
        let head = type.map { [$0] } ?? []
        let length = sealedLength(head.count + payload.count)
        return try [UInt8](capacity: length) { output throws(ChannelError) in
            try seal(head.span, payload.span, into: &output)
        }
    }

    /// The plaintexts of all complete records in `bytes`; removes the bytes that were used.
    mutating func opened(_ bytes: inout [UInt8]) throws -> [[UInt8]] {
        var plaintexts: [[UInt8]] = []
        while !bytes.isEmpty {
            var span = bytes.mutableSpan
            guard let record = try open(&span) else { break }
            if let plaintext = record.plaintext { plaintexts.append(Array(bytes[plaintext])) }
            bytes.removeFirst(record.consumed)
        }
        return plaintexts
    }

    /// The plaintexts of the records in `bytes`, of which the last must be complete.
    mutating func opened(_ bytes: [UInt8]) throws -> [[UInt8]] {
        var bytes = bytes
        let plaintexts = try opened(&bytes)
        guard bytes.isEmpty else { throw ChannelError(.truncated, "bytes are left") }
        return plaintexts
    }

    /// The peer's identity, once records can be exchanged.
    var established: PeerIdentity? {
        if case .established(let identity) = phase { identity } else { nil }
    }
}
