import BLESecChannelCore
import BLESecNoise
import BLESecPrimitives
import Testing

@testable import BLESec

/// What one side of a course has seen when it is over.
struct CourseSide {
    /// Whether it has ever told its application that both sides are proven.
    var wasReady = false
    /// How it ended; `nil` means success.
    var failure: ChannelError.Code?
    /// The messages that its application got.
    var received: [[UInt8]] = []
}

/// A channel's whole life between two machines: the handshake, a few messages each way, both ends,
/// and every deadline that it takes. An attacker stands between them.
struct AttackRun {
    static let messages: [ChannelRole: [[UInt8]]] = [
        .dialer: [Array("from the dialer".utf8), []],
        .acceptor: [Array("from the acceptor".utf8), Array(repeating: 7, count: 40)],
    ]

    var dialer = CourseSide()
    var acceptor = CourseSide()
    /// What each side has sent, before the attacker touched it.
    var sent: [ChannelRole: [UInt8]] = [:]
    /// How long it took.
    var elapsed: Duration = .zero

    subscript(role: ChannelRole) -> CourseSide { role == .dialer ? dialer : acceptor }

    var bothComplete: Bool { dialer.failure == nil && acceptor.failure == nil }

    /// Runs a channel to its end on both sides.
    ///
    /// `attack` gets what one side sends, with the offset of its first byte in all that this side
    /// sends, and gives what arrives; `nil` ends the link for both, and so does `endsWhen` once what it let
    /// through has arrived.
    init(
        _ configurations: (dialer: ChannelConfiguration, acceptor: ChannelConfiguration),
        attack: @escaping (ChannelRole, _ offset: Int, [UInt8]) -> [UInt8]? = { $2 },
        endsWhen: @escaping () -> Bool = { false }
    ) throws {
        let pair = try MachinePair(
            dialer: configurations.dialer, acceptor: configurations.acceptor)
        let start = pair.now
        var isCut = false
        var sent: [ChannelRole: [UInt8]] = [.dialer: [], .acceptor: []]
        pair.tamper = { role, bytes in
            let offset = sent[role, default: []].count
            sent[role, default: []] += bytes
            guard !isCut else { return [] }
            guard let changed = attack(role, offset, bytes) else {
                isCut = true
                return []
            }
            return changed
        }
        for _ in 0..<200 {
            pair.run()
            Self.serve(&pair.dialer, .dialer, &dialer, pair.now)
            Self.serve(&pair.acceptor, .acceptor, &acceptor, pair.now)
            if pair.dialer.outbound.isEmpty,
                pair.dialer.linkShutdown(canHalfClose: false, now: pair.now) == .closeWhenDrained
            {
                pair.dialer.didCloseLink()
            }
            let isOver = pair.dialer.outcome != nil || pair.acceptor.outcome != nil
            if isOver || isCut || endsWhen() {
                pair.dialer.linkEnded(nil, now: pair.now)
                pair.acceptor.linkEnded(nil, now: pair.now)
                Self.serve(&pair.dialer, .dialer, &dialer, pair.now)
                Self.serve(&pair.acceptor, .acceptor, &acceptor, pair.now)
                break
            }
            guard !pair.hasBytes else { continue }
            let next = min(
                pair.dialer.deadline(now: pair.now), pair.acceptor.deadline(now: pair.now))
            guard next != .max else {
                Issue.record("nothing will ever happen")
                break
            }
            #expect(next > pair.now)
            pair.passTime(.nanoseconds(next - pair.now))
        }
        guard let last = pair.dialer.outcome, let other = pair.acceptor.outcome else {
            Issue.record("the channel does not end")
            return
        }
        dialer.failure = last.code
        acceptor.failure = other.code
        self.sent = sent
        elapsed = .nanoseconds(pair.now - start)
    }

    /// What an application does: it sends once it may, says `end`, and receives.
    private static func serve(
        _ machine: inout ChannelMachine, _ role: ChannelRole, _ side: inout CourseSide,
        _ now: UInt64
    ) {
        if machine.isReady, !side.wasReady {
            side.wasReady = true
            if machine.outcome == nil {
                for message in messages[role, default: []] {
                    _ = try? machine.queue(message)
                }
                machine.end()
            }
        }
        while let message = machine.takeMessage(now: now) { side.received.append(message) }
    }

    /// Records an issue unless nothing was believed that is not true, whatever the attacker did.
    func expectNoLie(_ comment: @autoclosure () -> Comment) {
        for role in [ChannelRole.dialer, .acceptor] {
            let side = self[role]
            let truth = Self.messages[role.peer, default: []]
            #expect(side.received == Array(truth.prefix(side.received.count)), comment())
            #expect(side.received.isEmpty || side.wasReady, comment())
            if side.failure == nil {
                #expect(side.wasReady, comment())
                #expect(side.received == truth, comment())
                #expect(self[role.peer].received == Self.messages[role, default: []], comment())
            }
        }
    }
}

extension ChannelMachine.Outcome {
    /// The code of a failure.
    var code: ChannelError.Code? {
        switch self {
        case .complete: nil
        case .failed(let error): error.code
        }
    }
}

/// The pieces of what one side sends: its hello or answer, then whatever stands behind a length.
struct Flight {
    /// How the bytes behind the negotiation are cut.
    enum Framing {
        case noise, tls

        /// A header whose last two bytes are the length of what follows.
        var header: Int { self == .noise ? 2 : 5 }
        /// A `ready` on the wire: header, type, 32 bytes and tag, and in TLS a length and a type more.
        /// No other piece of a handshake is that long.
        var readyLength: Int { header + 1 + 32 + 16 + (self == .noise ? 0 : 3) }
    }

    /// Where each piece lies.
    let pieces: [Range<Int>]
    let framing: Framing

    /// Cuts what a side has sent. A dialer's early message always stands behind two bytes.
    init(of bytes: [UInt8], framing: Framing = .noise, role: ChannelRole = .acceptor) {
        var pieces: [Range<Int>] = []
        var start = 0
        while start < bytes.count {
            let isEarly = pieces.count == 1 && role == .dialer
            let header = start == 0 ? 6 : isEarly ? 2 : framing.header
            let length = Int(bytes[start + header - 2]) << 8 | Int(bytes[start + header - 1])
            pieces.append(start..<start + header + length)
            start += header + length
        }
        self.pieces = pieces
        self.framing = framing
    }

    /// How many bytes this side sends up to and with its `ready`: a peer that did not get all of
    /// them as they were must never become ready.
    var provingBytes: Int? { pieces.first { $0.count == framing.readyLength }?.upperBound }
}

extension PinnedPeers {
    /// Both sides' configurations for one offer, with pre-shared keys where it wants them.
    func configurations(_ offer: String) throws -> (
        dialer: ChannelConfiguration, acceptor: ChannelConfiguration
    ) {
        var dialer = try configuration(.dialer, [offer])
        var acceptor = try configuration(.acceptor, [offer])
        let pattern = try ProtocolName(offer).pattern
        let psks = try (0..<pattern.pskCount).map { index in
            try PreSharedKey(SecretBytes(copying: [UInt8](repeating: UInt8(index), count: 32).span))
        }
        dialer.presharedKeys = psks
        acceptor.presharedKeys = psks
        if !pattern.authenticates(.responder) { dialer.trust = .anyone }
        if !pattern.authenticates(.initiator) { acceptor.trust = .anyone }
        return (dialer, acceptor)
    }
}
