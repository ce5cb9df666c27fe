import BLESecChannelCore
import BLESecPrimitives

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
        return !dialer.outbound.isEmpty || !acceptor.outbound.isEmpty
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
        role == .dialer ? Self.take(&dialer, now: now) : Self.take(&acceptor, now: now)
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
        dialer.timeout(now: now)
        acceptor.timeout(now: now)
    }

    private static func take(_ machine: inout ChannelMachine, now: UInt64) -> [UInt8] {
        machine.sealPending(now: now)
        guard machine.outcome == nil else { return [] }
        let limit = machine.maximumSDU
        let bytes = machine.outbound.withBytes { $0.span.array }.prefix(limit)
        if !bytes.isEmpty { machine.didSend(bytes.count, now: now) }
        return Array(bytes)
    }

    private static func deliver(_ bytes: [UInt8], to machine: inout ChannelMachine, now: UInt64) {
        guard machine.outcome == nil else { return }
        machine.arrive(bytes, now: now)
        // A driver asks a store on another thread, and returns the store's answer in the same way.
        if let lookUp = machine.takeLookUp() { machine.didDecide(lookUp(), now: now) }
    }
}

extension ChannelMachine {
    /// Hands bytes from a link to the machine, as a driver does. A test brings no more bytes than
    /// there is room for.
    mutating func arrive(_ bytes: [UInt8], now: UInt64) {
        do {
            try inbound.append(bytes)
        } catch {
            preconditionFailure("\(error)")
        }
        process(arrived: bytes.count, now: now)
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

extension ChannelMachine {
    /// Takes the next message, as an application does.
    mutating func takeMessage(now: UInt64) -> [UInt8]? {
        guard let message = popMessage() else { return nil }
        didTakeMessage(now: now)
        return message
    }
}
