import BLESecChannelCore
import BLESecNoise
import BLESecPrimitives
import Testing

@testable import BLESec

/// What one side has observed by the end of a run.
struct SideResult {
    /// Whether the side was ever ready.
    var wasReady = false
    /// The code of the error with which the side ended; `nil` means success.
    var failure: ChannelError.Code?
    /// The messages that the side's application received.
    var received: [[UInt8]] = []
}

/// A whole channel between two machines: the handshake, two messages from each side, and the `end`
/// of each side. An attacker between the machines can change what they send. When neither side has
/// bytes to send, the time advances to the next deadline.
struct AttackRun {
    /// The messages that each side's application sends.
    static let messages: [ChannelRole: [[UInt8]]] = [
        .dialer: [Array("from the dialer".utf8), []],
        .acceptor: [Array("from the acceptor".utf8), Array(repeating: 7, count: 40)],
    ]

    var dialer = SideResult()
    var acceptor = SideResult()
    /// The bytes that each side has sent, as they were before the attacker changed them.
    var sent: [ChannelRole: [UInt8]] = [:]
    /// How much time passed on the clock of the machines.
    var elapsed: Duration = .zero

    subscript(role: ChannelRole) -> SideResult { role == .dialer ? dialer : acceptor }

    var bothComplete: Bool { dialer.failure == nil && acceptor.failure == nil }

    /// Runs a channel to its end on both sides.
    ///
    /// `attack` is called for each SDU. It gets the sender, the number of bytes that the sender has
    /// sent before this SDU, and the SDU's bytes, and returns the bytes that arrive. If `attack`
    /// returns `nil`, nothing arrives any more, and the link ends for both sides. `endsWhen` is
    /// called whenever all bytes have arrived. If `endsWhen` returns true, the link ends for both sides.
    init(
        _ configurations: (dialer: ChannelConfiguration, acceptor: ChannelConfiguration),
        attack: @escaping (ChannelRole, _ offset: Int, [UInt8]) -> [UInt8]? = { $2 },
        endsWhen: @escaping () -> Bool = { false }
    ) throws {
        let pair = try MachinePair(dialer: configurations.dialer, acceptor: configurations.acceptor)
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
            Self.runApplication(&pair.dialer, .dialer, &dialer, pair.now)
            Self.runApplication(&pair.acceptor, .acceptor, &acceptor, pair.now)
            if pair.dialer.bytesAwaitingLink == 0,
                pair.dialer.permittedLinkShutdown(canHalfClose: false, now: pair.now)
                    == .closeWhenDrained
            {
                pair.dialer.didCloseLink()
            }
            let isOver = pair.dialer.outcome != nil || pair.acceptor.outcome != nil
            if isOver || isCut || endsWhen() {
                pair.dialer.linkEnded(nil, now: pair.now)
                pair.acceptor.linkEnded(nil, now: pair.now)
                Self.runApplication(&pair.dialer, .dialer, &dialer, pair.now)
                Self.runApplication(&pair.acceptor, .acceptor, &acceptor, pair.now)
                break
            }
            guard !pair.hasBytes else { continue }
            let next = min(
                pair.dialer.nextTimeout(now: pair.now), pair.acceptor.nextTimeout(now: pair.now))
            guard next != .max else {
                Issue.record("a side has not ended, and neither bytes nor a deadline remain")
                break
            }
            #expect(next > pair.now)
            pair.passTime(.nanoseconds(next - pair.now))
        }
        guard let dialerOutcome = pair.dialer.outcome, let acceptorOutcome = pair.acceptor.outcome
        else {
            Issue.record("the channel has not ended on both sides")
            return
        }
        dialer.failure = dialerOutcome.code
        acceptor.failure = acceptorOutcome.code
        self.sent = sent
        elapsed = .nanoseconds(pair.now - start)
    }

    /// Acts as the application of one side: when the side becomes ready, sends its messages and its
    /// `end`; on every call, receives the messages that have arrived.
    private static func runApplication(
        _ machine: inout ChannelMachine, _ role: ChannelRole, _ side: inout SideResult,
        _ now: UInt64
    ) {
        if machine.isReady, !side.wasReady {
            side.wasReady = true
            if machine.outcome == nil {
                for message in messages[role, default: []] { _ = try? machine.queue(message) }
                machine.end()
            }
        }
        while let message = machine.takeMessage(now: now) { side.received.append(message) }
    }

    /// Records an issue if a side has reported something false. What a side received must be the
    /// beginning of its peer's messages, and nothing if the side was never ready. If a side reports
    /// success, it must have been ready, and both sides must have received all messages.
    func expectTrueReports(_ comment: @autoclosure () -> Comment) {
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
    /// The code of the failure; `nil` for `complete`.
    var code: ChannelError.Code? {
        switch self {
        case .complete: nil
        case .failed(let error): error.code
        }
    }
}

/// All bytes that one side sends in a run, divided into pieces. The first piece is the hello or the
/// answer. Each other piece is a header and one message; the header states the message's length.
struct SentPieces {
    /// How the bytes after the negotiation are divided.
    enum Framing {
        case noise, tls

        /// The length of a piece's header. The header's last two bytes are the length of what
        /// follows the header.
        var headerLength: Int { self == .noise ? 2 : 5 }
        /// The size of a `ready` on the wire: header, type, hash (32 bytes) and tag (16 bytes); in
        /// TLS also the record's length (2 bytes) and TLS's content type (1 byte). No other piece
        /// of a handshake has this size.
        var readyLength: Int { headerLength + 1 + 32 + 16 + (self == .noise ? 0 : 3) }
    }

    /// The range of each piece in these bytes.
    let pieces: [Range<Int>]
    let framing: Framing

    /// Divides `bytes`, which `role` has sent. The header of a hello or answer has 6 bytes; that of
    /// a dialer's early message has 2 bytes, in TLS too.
    init(of bytes: [UInt8], framing: Framing = .noise, role: ChannelRole = .acceptor) {
        var pieces: [Range<Int>] = []
        var start = 0
        while start < bytes.count {
            let isEarly = pieces.count == 1 && role == .dialer
            let body = start + (start == 0 ? 6 : isEarly ? 2 : framing.headerLength)
            let end = body + (Int(bytes[body - 2]) << 8 | Int(bytes[body - 1]))
            pieces.append(start..<end)
            start = end
        }
        self.pieces = pieces
        self.framing = framing
    }

    /// How many bytes this side sends up to the end of its `ready`; `nil` if it sends no `ready`. A
    /// peer that did not get all of these bytes unchanged must never become ready.
    var provingByteCount: Int? { pieces.first { $0.count == framing.readyLength }?.upperBound }
}

extension PinnedPeers {
    /// Both sides' configurations for one offer, with the pre-shared keys that the offer needs. If
    /// the pattern does not authenticate a side, the other side trusts anyone.
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
