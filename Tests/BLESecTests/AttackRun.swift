import BLESecChannelCore
import BLESecNoise
import BLESecPrimitives
import Testing

@testable import BLESec

/// What one side has observed by the end of a run.
struct CourseSide {
    /// Whether the side was ever ready.
    var wasReady = false
    /// The code of the error with which the side ended; `nil` means success.
    var failure: ChannelError.Code?
    /// The messages that the side's application received.
    var received: [[UInt8]] = []
}

/// A whole channel between two machines: the handshake, two messages each way, the `end` of each
/// side, and every deadline on the way. An attacker between the machines can change what they send.
struct AttackRun {
    static let messages: [ChannelRole: [[UInt8]]] = [
        .dialer: [Array("from the dialer".utf8), []],
        .acceptor: [Array("from the acceptor".utf8), Array(repeating: 7, count: 40)],
    ]

    var dialer = CourseSide()
    var acceptor = CourseSide()
    /// What each side has sent, before the attacker changed it.
    var sent: [ChannelRole: [UInt8]] = [:]
    /// How long the run took.
    var elapsed: Duration = .zero

    subscript(role: ChannelRole) -> CourseSide { role == .dialer ? dialer : acceptor }

    var bothComplete: Bool { dialer.failure == nil && acceptor.failure == nil }

    /// Runs a channel to its end on both sides.
    ///
    /// `attack` gets the bytes that one side sends, with the offset of the first byte in everything
    /// that this side sends, and returns the bytes that arrive. If `attack` returns `nil`, the link
    /// ends for both sides. If `endsWhen` returns true, the link ends once the bytes that were let
    /// through have arrived.
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
            Self.serve(&pair.dialer, .dialer, &dialer, pair.now)
            Self.serve(&pair.acceptor, .acceptor, &acceptor, pair.now)
            if pair.dialer.unsentBytes == 0,
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
                pair.dialer.nextTimeout(now: pair.now), pair.acceptor.nextTimeout(now: pair.now))
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

    /// Acts as the application: once the side is ready, sends its messages and its `end`; receives
    /// all messages that have arrived.
    private static func serve(
        _ machine: inout ChannelMachine, _ role: ChannelRole, _ side: inout CourseSide,
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

    /// Records an issue unless each side received only what its peer sent, in order, and nothing
    /// without becoming ready; and unless a side that succeeded was ready, and both sides then
    /// received everything.
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

/// The pieces of what one side sends: its hello or answer, then every message that has a length
/// header.
struct Flight {
    /// How the bytes after the negotiation are divided.
    enum Framing {
        case noise, tls

        /// A header whose last two bytes are the length of the rest.
        var header: Int { self == .noise ? 2 : 5 }
        /// The size of a `ready` on the wire: header, type, 32 bytes and tag; in TLS also two bytes
        /// of length and one of type. No other piece of a handshake has this size.
        var readyLength: Int { header + 1 + 32 + 16 + (self == .noise ? 0 : 3) }
    }

    /// Where each piece lies.
    let pieces: [Range<Int>]
    let framing: Framing

    /// Divides what a side has sent. A dialer's early message always has a length of two bytes
    /// before it.
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

    /// How many bytes this side sends up to the end of its `ready`. A peer that did not get all of
    /// these bytes unchanged must never become ready.
    var provingBytes: Int? { pieces.first { $0.count == framing.readyLength }?.upperBound }
}

extension PinnedPeers {
    /// Both sides' configurations for one offer, with pre-shared keys where the offer needs them.
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
