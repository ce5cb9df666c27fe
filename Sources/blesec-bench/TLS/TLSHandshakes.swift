internal import BLESecChannelCore
internal import BLESecTLSEngine

/// Full handshakes of mutual TLS, with certificates as `blesec ca` writes them.
final class TLSHandshakes: HandshakeSubject {
    let name = TLSContext.protocolName
    let limit: (any HandshakeLimit)?
    private let company: BenchCompany

    init(_ company: BenchCompany) {
        self.company = company
        limit = company.raw
    }

    func run(_ count: Int) throws -> HandshakeSample {
        let contexts = BothSides(
            dialer: company.context(.dialer), acceptor: company.context(.acceptor))
        return try Self.run(count, contexts)
    }

    /// Runs `count` handshakes between two contexts.
    static func run(_ count: Int, _ contexts: BothSides<TLSContext>) throws -> HandshakeSample {
        var sample = HandshakeSample()
        let dialers = (0..<count).map { _ in Side() }
        let acceptors = (0..<count).map { _ in Side() }
        try sample.charge(\.dialer) {
            for side in dialers { try side.begin(contexts.dialer, .dialer) }
        }
        try sample.charge(\.acceptor) {
            for side in acceptors { try side.begin(contexts.acceptor, .acceptor) }
        }
        while !dialers[0].isEstablished || !acceptors[0].isEstablished {
            guard sample.flights.dialer < 4 else {
                throw BenchError.wrongResult(TLSContext.protocolName)
            }
            try sample.charge(\.dialer) { for side in dialers { try side.write() } }
            sample.count(dialers[0].message, \.dialer)
            try sample.charge(\.acceptor) { try Self.read(acceptors, dialers) }
            try sample.charge(\.acceptor) { for side in acceptors { try side.write() } }
            sample.count(acceptors[0].message, \.acceptor)
            try sample.charge(\.dialer) { try Self.read(dialers, acceptors) }
        }
        return sample
    }

    /// The engines of one finished handshake.
    static func engines(
        _ company: BenchCompany
    ) throws -> (dialer: Side, acceptor: Side) {
        let (dialer, acceptor) = (Side(), Side())
        try dialer.begin(company.context(.dialer), .dialer)
        try acceptor.begin(company.context(.acceptor), .acceptor)
        for _ in 0..<3 {
            try dialer.write()
            try acceptor.read(dialer.message)
            try acceptor.write()
            try dialer.read(acceptor.message)
        }
        return (dialer, acceptor)
    }

    private static func read(_ readers: [Side], _ writers: [Side]) throws {
        for index in readers.indices { try readers[index].read(writers[index].message) }
    }

    /// One side of one handshake.
    final class Side {
        private var engine: TLSEngine?
        private(set) var message: [UInt8] = []

        var isEstablished: Bool {
            if case .established = engine?.phase { true } else { false }
        }

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

        /// Hands the engine over.
        func take() throws -> TLSEngine {
            guard let taken = engine.take() else { throw BenchError.wrongResult("TLSEngine") }
            return taken
        }
    }
}

extension HandshakeSample {
    /// Counts the bytes and the flight of a side, if it has sent any.
    fileprivate mutating func count(
        _ message: [UInt8], _ side: WritableKeyPath<BothSides<Int>, Int>
    ) {
        guard !message.isEmpty else { return }
        flights[keyPath: side] += 1
        bytes[keyPath: side] += message.count
    }
}
