internal import BLESecChannelCore
internal import BLESecTLSEngine

/// Full handshakes of mutual TLS, with certificates as `blesec ca` writes them.
final class TLSHandshakes: HandshakeSubject {
    let name = TLSContext.protocolName
    /// The same handshakes by OpenSSL alone, driven from C. Reports call their time the limit.
    let reference: (any HandshakeReference)?
    private let devices: TLSDevices

    init(_ devices: TLSDevices) {
        self.devices = devices
        reference = devices.rawTLS
    }

    func run(_ count: Int) throws -> HandshakeSample { try Self.run(count, devices.contexts) }

    static func run(_ count: Int, _ contexts: BothSides<TLSContext>) throws -> HandshakeSample {
        try batch(count, contexts).sample
    }

    static func finishedSides(_ devices: TLSDevices) throws -> (dialer: Side, acceptor: Side) {
        try batch(1, devices.contexts).first
    }

    private static func batch(
        _ count: Int, _ contexts: BothSides<TLSContext>
    ) throws -> HandshakeBatch<Side> {
        var batch = HandshakeBatch(count) { Side() }
        try batch.step(
            { try $0.begin(contexts.dialer, .dialer) },
            { try $0.begin(contexts.acceptor, .acceptor) })
        while !batch.first.dialer.isEstablished || !batch.first.acceptor.isEstablished {
            // A handshake of TLS 1.3 needs fewer flights.
            guard batch.sample.flights.dialer < 4 else {
                throw BenchError.wrongResult(TLSContext.protocolName)
            }
            try batch.pass(fromDialers: true)
            try batch.pass(fromDialers: false)
        }
        return batch
    }

    final class Side: HandshakeSide {
        private var engine: TLSEngine?
        private(set) var message: [UInt8] = []

        var isEstablished: Bool { if case .established = engine?.phase { true } else { false } }

        func begin(_ context: TLSContext, _ role: ChannelRole) throws {
            engine = try TLSEngine(context, role: role, isNegotiated: true)
        }

        func write() throws { message = try engine?.nextHandshake() ?? [] }

        func read(_ message: [UInt8]) throws {
            guard !isEstablished else { return try readTicket(message) }
            var rest = message.span
            while !rest.isEmpty, let used = try engine?.receiveHandshake(rest) {
                rest = rest.extracting(droppingFirst: used)
                guard case .awaitingTrustDecision = engine?.phase else { return }
                try engine?.admit()
            }
        }

        private func readTicket(_ message: [UInt8]) throws {
            guard !message.isEmpty else { return }
            var record = message
            var span = record.mutableSpan
            guard let opened = try engine?.open(&span), opened.plaintext == nil,
                opened.consumed == message.count
            else { throw BenchError.wrongResult("a ticket") }
        }

        func takeEngine() throws -> TLSEngine {
            guard let taken = engine.take() else { throw BenchError.wrongResult("TLSEngine") }
            return taken
        }
    }
}
