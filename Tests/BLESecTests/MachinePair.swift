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
    /// Gets the sender and each SDU that it sends, and returns the bytes that arrive. With `nil`
    /// every SDU arrives unchanged.
    var tamper: ((ChannelRole, [UInt8]) -> [UInt8])?
    /// Everything that each side has sent through ``step(_:piece:)``, before ``tamper``, one
    /// element for each SDU.
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
    /// `piece` bytes.
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

    /// Carries one SDU from `role` to its peer, and returns whether there was one.
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

    /// Advances the time by `duration` in one step, and then calls `handleTimeout` once on both
    /// sides.
    func passTime(_ duration: Duration) {
        now += duration.wholeNanoseconds
        dialer.handleTimeout(now: now)
        acceptor.handleTimeout(now: now)
    }

    private static func deliver(_ bytes: [UInt8], to machine: inout ChannelMachine, now: UInt64) {
        guard machine.outcome == nil else { return }
        machine.arrive(bytes, now: now)
        // A driver would call the store on another thread and pass its answer to `didDecide`. Here
        // the call is direct.
        let handshake = machine.stage as? Handshake
        if case .lookUp(let lookUp) = handshake?.question { machine.didDecide(lookUp(), now: now) }
    }

    /// The transcript of the negotiation, taken from what both sides have sent.
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
