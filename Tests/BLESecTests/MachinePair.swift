import BLESecChannelCore
import BLESecPrimitives
import Testing

@testable import BLESec

/// A dialer's and an acceptor's machine without a link between them: a test carries the bytes, may
/// change the bytes on the way, and sets the time.
final class MachinePair {
    var dialer: ChannelMachine
    var acceptor: ChannelMachine
    /// The present time, in nanoseconds.
    var now: UInt64 = 1_000_000_000
    /// Changes the SDUs that ``step(_:piece:)`` carries: it gets the sender and an SDU, and returns
    /// the bytes that arrive. If this is `nil`, every SDU arrives unchanged.
    var tamper: ((ChannelRole, [UInt8]) -> [UInt8])?
    /// The SDUs that each side has sent through ``step(_:piece:)``, as they were before ``tamper``.
    private(set) var sent: [ChannelRole: [[UInt8]]] = [.dialer: [], .acceptor: []]

    init(
        dialer: ChannelConfiguration, acceptor: ChannelConfiguration, maximumSDU: Int = 8_192
    ) throws {
        self.dialer = ChannelMachine(
            role: .dialer, configuration: dialer, maximumSDU: maximumSDU, now: now)
        self.acceptor = ChannelMachine(
            role: .acceptor, configuration: acceptor, maximumSDU: maximumSDU, now: now)
        try self.dialer.begin()
        try self.acceptor.begin()
    }

    /// Carries SDUs in both directions until neither side has any left. Each SDU arrives in pieces
    /// of at most `piece` bytes.
    func run(piece: Int = .max) {
        for _ in 0..<100_000 {
            let hasCarried = step(.dialer, piece: piece) || step(.acceptor, piece: piece)
            if !hasCarried { return }
        }
    }

    /// Whether either side has something to send.
    var hasBytes: Bool {
        dialer.sealPending(now: now)
        acceptor.sealPending(now: now)
        return dialer.bytesAwaitingLink > 0 || acceptor.bytesAwaitingLink > 0
    }

    /// Carries one SDU from `role` to its peer, and returns whether there was one.
    @discardableResult
    func step(_ role: ChannelRole, piece: Int = .max) -> Bool {
        let bytes = take(role)
        guard !bytes.isEmpty else { return false }
        sent[role, default: []].append(bytes)
        deliver(tamper?(role, bytes) ?? bytes, to: role.peer, piece: piece)
        return true
    }

    /// Takes the next SDU that `role` wants to send; empty if there is none.
    func take(_ role: ChannelRole) -> [UInt8] {
        role == .dialer ? dialer.transmit(now: now) : acceptor.transmit(now: now)
    }

    /// Hands bytes to `role`.
    func deliver(_ bytes: [UInt8], to role: ChannelRole, piece: Int = .max) {
        var rest = bytes[...]
        while !rest.isEmpty {
            let part = Array(rest.prefix(min(piece, 65_536)))
            rest = rest.dropFirst(part.count)
            if role == .dialer {
                Self.deliver(part, to: &dialer, now: now)
            } else {
                Self.deliver(part, to: &acceptor, now: now)
            }
        }
    }

    /// Advances the time by `duration` in one step, and then calls `handleTimeout` once on both
    /// sides.
    func passTime(_ duration: Duration) {
        now += duration.wholeNanoseconds
        dialer.handleTimeout(now: now)
        acceptor.handleTimeout(now: now)
    }

    private static func deliver(_ bytes: [UInt8], to machine: inout ChannelMachine, now: UInt64) {
        guard machine.outcome == nil else { return }
        machine.feed(bytes, now: now)
        // A driver would call the store on another thread. Here the store is called directly, and
        // its answer is passed to `didDecide`.
        let handshake = machine.stage as? Handshake
        if case .lookUp(let lookUp) = handshake?.question {
            machine.didDecide(lookUp().refusal, now: now)
        }
    }

    /// The transcript of the negotiation, made from the first SDU that each side has sent.
    func transcript(context: [UInt8] = []) throws -> NegotiationTranscript {
        var transcript = NegotiationTranscript(context: context)
        let flight = sent[.dialer, default: []].first ?? []
        let hello = try #require(try Hello(prefixOf: flight.span))
        transcript.hello = hello.encoded
        transcript.early = Array(flight.dropFirst(hello.encoded.count + 2))
        let answer = sent[.acceptor, default: []].first ?? []
        transcript.answer = try #require(
            try Answer(prefixOf: answer.span, offerCount: hello.offers.count)
        ).encoded
        return transcript
    }
}

/// Two identities, whose configurations pin each other's keys.
struct PinnedPeers {
    let dialer: IdentityKey
    let acceptor: IdentityKey

    init(hash: HashAlgorithm = .sha256) throws {
        dialer = try .generate(hash: hash)
        acceptor = try .generate(hash: hash)
    }

    func configuration(_ role: ChannelRole, _ protocols: [String]? = nil) throws
        -> ChannelConfiguration
    {
        let identity = role == .dialer ? dialer : acceptor
        let peer = role == .dialer ? acceptor : dialer
        var configuration = ChannelConfiguration(
            identity: identity, trust: .pinned([try PeerKey(publicKey: peer.publicKey)]))
        if let protocols { configuration.protocols = protocols }
        return configuration
    }

    func pair(_ protocols: [String]? = nil, maximumSDU: Int = 8_192) throws -> MachinePair {
        try MachinePair(
            dialer: configuration(.dialer, protocols),
            acceptor: configuration(.acceptor, protocols), maximumSDU: maximumSDU)
    }
}
