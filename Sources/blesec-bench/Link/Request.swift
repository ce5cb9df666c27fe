internal import BLESec

/// A request of the measuring end to the other end, sent as a message.
struct Request: Sendable, Equatable {
    enum Kind: UInt8, Sendable {
        /// Receive `count` messages, then answer with a single byte.
        case sink = 1
        /// Return `count` messages, each as soon as it has arrived.
        case echo = 2
    }

    var kind: Kind
    /// The number of messages that follow the request, and the size of each in bytes.
    var count: Int
    var size: Int

    private static let length = 9

    init(_ kind: Kind, count: Int, size: Int) {
        self.kind = kind
        self.count = count
        self.size = size
    }

    /// Parses the result of ``encoded``.
    init(_ bytes: [UInt8]) throws {
        guard bytes.count == Self.length, let kind = Kind(rawValue: bytes[0]) else {
            throw BenchError.wrongResult("the peer's request")
        }
        self.kind = kind
        count = bytes[1..<5].reduce(0) { $0 << 8 | Int($1) }
        size = bytes[5..<9].reduce(0) { $0 << 8 | Int($1) }
    }

    var encoded: [UInt8] { [kind.rawValue] + Self.bytes(count) + Self.bytes(size) }

    private static func bytes(_ number: Int) -> [UInt8] {
        [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: number >> $0) }
    }
}

/// The end that serves the measuring end's requests, until the channel ends.
enum Responder {
    /// Reads the preface of another process's link, and serves the link with the engine that the
    /// preface names, until the channel ends. Call this on the link's loop.
    static func serve(_ link: any Link) async throws {
        try await serve(LinkPreface.receive(from: link), over: link)
    }

    /// Serves a link with this engine until the channel ends. Call this on the link's loop.
    static func serve(_ engine: EngineChoice, over link: any Link) async throws {
        try await serve(engine.open(over: link, role: .acceptor))
    }

    private static func serve(_ channel: some MessageChannel) async throws {
        while let message = try await channel.receive() {
            let request = try Request(message)
            for _ in 0..<request.count {
                guard let payload = try await channel.receive(), payload.count == request.size
                else { throw BenchError.wrongResult("the peer's messages") }
                if request.kind == .echo { try await channel.send(payload) }
            }
            if request.kind == .sink { try await channel.send([1]) }
        }
        try await channel.close()
    }
}
