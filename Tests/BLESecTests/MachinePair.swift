import BLESecChannelCore
import BLESecPrimitives
import Testing

@testable import BLESec

/// A dialer's and an acceptor's machine without a link between them: a test carries the bytes, may
/// change the bytes on the way, and moves the time.
final class MachinePair {
    var dialer: ChannelMachine
    var acceptor: ChannelMachine
    var now: UInt64 = 1_000_000_000
    /// Changes what one side has sent; `nil` leaves it alone.
    var tamper: ((ChannelRole, [UInt8]) -> [UInt8])?
    /// Everything that each side has sent, by pieces.
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

    /// Carries bytes in both directions until neither side has any left, in pieces of at most
    /// `piece`.
    func run(piece: Int = .max) {
        for _ in 0..<100_000 {
            let moved = step(.dialer, piece: piece) || step(.acceptor, piece: piece)
            if !moved { return }
        }
    }

    /// Whether either side has something to send.
    var hasBytes: Bool {
        dialer.sealPending(now: now)
        acceptor.sealPending(now: now)
        return dialer.unsentBytes > 0 || acceptor.unsentBytes > 0
    }

    /// Carries what `role` wants to send, and returns whether there was anything.
    @discardableResult
    func step(_ role: ChannelRole, piece: Int = .max) -> Bool {
        let bytes = take(role)
        guard !bytes.isEmpty else { return false }
        sent[role, default: []].append(bytes)
        deliver(tamper?(role, bytes) ?? bytes, to: role.peer, piece: piece)
        return true
    }

    /// Takes one SDU from what `role` wants to send.
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

    /// Moves the time by `duration`, and gives both sides their timeout.
    func passTime(_ duration: Duration) {
        now += duration.wholeNanoseconds
        dialer.handleTimeout(now: now)
        acceptor.handleTimeout(now: now)
    }

    private static func deliver(_ bytes: [UInt8], to machine: inout ChannelMachine, now: UInt64) {
        guard machine.outcome == nil else { return }
        machine.arrive(bytes, now: now)
        // A driver asks a store on another thread, and returns the store's answer in the same way.
        let handshake = machine.stage as? Handshake
        if case .lookUp(let lookUp) = handshake?.question {
            machine.didDecide(lookUp(), now: now)
        }
    }

    /// What both sides have negotiated, out of what they have sent.
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

/// Two identities that pin each other.
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
        let own = role == .dialer ? dialer : acceptor
        let other = role == .dialer ? acceptor : dialer
        var configuration = ChannelConfiguration(
            identity: own, trust: .pinned([try PeerKey(publicKey: other.publicKey)]))
        if let protocols { configuration.protocols = protocols }
        return configuration
    }

    func pair(_ protocols: [String]? = nil, maximumSDU: Int = 8_192) throws -> MachinePair {
        try MachinePair(
            dialer: configuration(.dialer, protocols),
            acceptor: configuration(.acceptor, protocols), maximumSDU: maximumSDU)
    }
}
