import BLESecChannelCore
import BLESecTLSEngine

/// Two engines between which a test carries the bytes.
struct EnginePair: ~Copyable {
    var dialer: TLSEngine
    var acceptor: TLSEngine
    /// How many bytes each side has sent, and the bytes that are not read yet.
    private(set) var sent: [ChannelRole: Int] = [:]
    private var waiting: [ChannelRole: [UInt8]] = [:]

    init(_ dialer: TLSContext, _ acceptor: TLSContext, isNegotiated: Bool = true) throws {
        self.init(
            dialer: try TLSEngine(dialer, role: .dialer, isNegotiated: isNegotiated),
            acceptor: try TLSEngine(acceptor, role: .acceptor, isNegotiated: isNegotiated))
    }

    init(dialer: consuming TLSEngine, acceptor: consuming TLSEngine) {
        self.dialer = dialer
        self.acceptor = acceptor
    }

    /// Carries messages, in pieces of at most `piece` bytes, until no side has more to send; admits
    /// every peer for which a decision is pending.
    mutating func shakeHands(piece: Int = 65_536) throws {
        for _ in 0..<10 {
            try step(.dialer, piece: piece)
            try step(.acceptor, piece: piece)
        }
    }

    /// Lets one side send, and the other side read what its handshake takes.
    mutating func step(_ role: ChannelRole, piece: Int = 65_536) throws {
        let bytes = role == .dialer ? try Self.speak(&dialer) : try Self.speak(&acceptor)
        sent[role, default: 0] += bytes.count
        waiting[role, default: []] += bytes
        var size = 0
        let unread = waiting[role, default: []]
        var start = 0
        while start < unread.count, size < unread.count - start {
            size = min(size + piece, unread.count - start)
            let chunk = Array(unread[start..<start + size])
            let used =
                if role == .dialer {
                    try Self.listen(&acceptor, chunk)
                } else {
                    try Self.listen(&dialer, chunk)
                }
            start += used
            size -= used
        }
        waiting[role] = Array(unread[start...])
    }

    /// What a side has sent and the other side has not read in its handshake.
    func unread(from role: ChannelRole) -> [UInt8] { waiting[role, default: []] }

    private static func listen(_ engine: inout TLSEngine, _ bytes: [UInt8]) throws -> Int {
        guard case .handshaking = engine.phase else { return 0 }
        return try engine.receiveHandshake(bytes.span)
    }

    private static func speak(_ engine: inout TLSEngine) throws -> [UInt8] {
        if case .awaitingTrustDecision = engine.phase { try engine.admit() }
        return try engine.nextHandshake() ?? []
    }
}

extension TLSEngine {
    /// Seals a record, and returns it as an array.
    mutating func sealed(_ type: UInt8?, _ payload: [UInt8]) throws -> [UInt8] {
        let length = sealedLength(payload.count + (type == nil ? 0 : 1))
        return try [UInt8](capacity: length) { output throws(ChannelError) in
            try seal(type, payload.span, into: &output)
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

    /// The plaintexts of complete records.
    mutating func opened(_ bytes: [UInt8]) throws -> [[UInt8]] {
        var bytes = bytes
        let plaintexts = try opened(&bytes)
        guard bytes.isEmpty else { throw ChannelError(.truncated, "bytes are left") }
        return plaintexts
    }

    var established: PeerIdentity? {
        if case .established(let identity) = phase { identity } else { nil }
    }
}
