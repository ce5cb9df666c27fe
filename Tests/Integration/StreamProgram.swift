import BLESec
import BLESecChannelCore
import BLESecPrimitives
import Testing

/// What the programs at both ends of a stream do. The label of a stream is `KIND COUNT CODE TEXT`,
/// and both programs know from it what to expect. `stream_programs.py` has the same programs.
struct StreamProgram {
    /// What the two programs do. With every kind but `quit`, the opener of the stream sends `count`
    /// bytes.
    enum Kind: String, CaseIterable {
        /// The other side sends all bytes back.
        case echo
        /// As `echo`, but after its bytes the opener resets its direction.
        case reset
        /// As `reset`, but the opener finishes first, so that either the end or the reset arrives.
        case waver
        /// The other side reads half of the bytes and stops the stream; the opener does not finish.
        case refuse
        /// As `refuse`, but the opener finishes.
        case leave
        /// The other side reads all bytes and then stops the stream.
        case enough
        /// The other side sends half of the bytes back, and resets its direction.
        case back
        /// The opener sends nothing. The other side sends `count` bytes, and the opener reads half
        /// of them and stops the stream.
        case quit
    }

    private static let texts = ["", "x", "größe", "a b c", String(repeating: "ü", count: 100)]

    let kind: Kind
    let count: Int
    let code: UInt32
    let label: String
    private var generator: SeededGenerator

    /// A program for a new stream of at most `maximum` bytes.
    init(most maximum: Int, using generator: inout SeededGenerator) {
        // `echo` is more frequent than all other kinds together.
        let isEcho = Bool.random(using: &generator)
        kind = isEcho ? .echo : Kind.allCases.randomElement(using: &generator) ?? .echo
        let count = [0, 1, 10, maximum / 10, maximum].randomElement(using: &generator) ?? 0
        let needsTwoBytes = [.refuse, .leave, .enough, .quit].contains(kind)
        self.count = needsTwoBytes ? max(2, count) : count
        code = UInt32.random(in: 0...UInt32.max, using: &generator)
        let text = Self.texts.randomElement(using: &generator) ?? ""
        label = "\(kind) \(self.count) \(code) \(text)"
        self.generator = SeededGenerator(seed: UInt64.random(in: 0...UInt64.max, using: &generator))
    }

    /// The program for a stream that the peer has opened.
    init(label: String, seed: UInt64) throws {
        let words = label.split(separator: " ", maxSplits: 3, omittingEmptySubsequences: false)
        try #require(words.count == 4, "\(label)")
        kind = try #require(Kind(rawValue: String(words[0])))
        count = try #require(Int(words[1]))
        code = try #require(UInt32(words[2]))
        self.label = label
        generator = SeededGenerator(seed: seed)
    }

    private static func pattern(_ count: Int) -> [UInt8] {
        (0..<count).map { UInt8((31 * $0 + $0 / 251) % 251) }
    }

    // MARK: - The side that opens the stream

    func begin(_ stream: PeerConnection.Stream) async throws {
        var program = self
        let data = program.bytes(kind == .quit ? 0 : count)
        async let answer: Void = checkAnswer(stream, to: data)
        var wasTaken = true
        do {
            try await program.write(data, to: stream)
            if kind != .reset, kind != .refuse { await stream.finish() }
            if kind == .waver, Bool.random(using: &program.generator) { await Task.yield() }
            if kind == .reset || kind == .waver { await stream.reset(code: code) }
            try await stream.waitUntilTaken()
        } catch let error as ChannelError where error.code == .streamReset {
            wasTaken = false
            if [.refuse, .leave, .enough].contains(kind) {
                #expect(stream.resetCode == code, "\(label)")
            }
        }
        switch kind {
        case .echo, .back, .quit: #expect(wasTaken, "\(label)")
        case .reset, .refuse, .leave: #expect(!wasTaken, "\(label)")
        case .waver, .enough: break
        }
        try await answer
    }

    private func checkAnswer(_ stream: PeerConnection.Stream, to data: [UInt8]) async throws {
        var program = self
        if kind == .quit {
            let half = try await program.read(count / 2, from: stream)
            #expect(half == Array(Self.pattern(count).prefix(count / 2)), "\(label)")
            await stream.stop(code: code)
            return
        }
        let (answer, wasReset) = try await program.readAll(from: stream)
        #expect(wasReset == (kind == .back), "\(label)")
        if wasReset { #expect(stream.resetCode == code, "\(label)") }
        switch kind {
        case .echo: #expect(answer == data, "\(label)")
        case .refuse, .leave, .enough: #expect(answer.isEmpty, "\(label)")
        default: #expect(data.starts(with: answer), "\(label)")
        }
    }

    // MARK: - The other side

    func answer(_ stream: PeerConnection.Stream) async throws {
        var program = self
        switch kind {
        case .refuse, .leave, .enough:
            _ = try await program.read(kind == .enough ? count : count / 2, from: stream)
            await stream.stop(code: code)
            await stream.finish()
        case .back:
            let half = try await program.read(count / 2, from: stream)
            try await program.write(half, to: stream)
            await stream.reset(code: code)
            let (rest, wasReset) = try await program.readAll(from: stream)
            #expect(!wasReset && half.count + rest.count == count, "\(label)")
        case .quit:
            await #expect(throws: ChannelError(.streamReset, ""), "\(label)") {
                try await program.write(Self.pattern(count), to: stream)
                try await stream.waitUntilTaken()
            }
            #expect(stream.resetCode == code, "\(label)")
            let (rest, wasReset) = try await program.readAll(from: stream)
            #expect(rest.isEmpty && !wasReset, "\(label)")
        case .echo, .reset, .waver:
            var received = 0
            var wasReset = false
            do {
                while let bytes = try await stream.read(atMost: program.pieceSize) {
                    received += bytes.count
                    try await program.write(bytes, to: stream)
                }
            } catch let error as ChannelError where error.code == .streamReset {
                wasReset = true
                #expect(stream.resetCode == code, "\(label)")
            }
            #expect(kind == .waver || wasReset == (kind == .reset), "\(label)")
            #expect(wasReset || received == count, "\(label)")
            await stream.finish()
        }
    }

    // MARK: - Bytes

    /// The size of the next read or write, drawn at random.
    private var pieceSize: Int {
        mutating get { [1, 100, 1_000, 10_000].randomElement(using: &generator) ?? 1 }
    }

    private mutating func bytes(_ count: Int) -> [UInt8] {
        (0..<count).map { _ in UInt8.random(in: 0...255, using: &generator) }
    }

    private mutating func write(_ bytes: [UInt8], to stream: PeerConnection.Stream) async throws {
        var rest = bytes[...]
        while !rest.isEmpty {
            let next = rest.prefix(pieceSize)
            rest = rest.dropFirst(next.count)
            try await stream.write(Array(next))
            try await pause()
        }
    }

    /// All bytes up to the end or the reset, and whether the peer has reset its direction.
    private mutating func readAll(
        from stream: PeerConnection.Stream
    ) async throws -> ([UInt8], Bool) {
        var everything: [UInt8] = []
        do {
            while let bytes = try await stream.read(atMost: pieceSize) {
                everything += bytes
                try await pause()
            }
        } catch let error as ChannelError where error.code == .streamReset {
            return (everything, true)
        }
        return (everything, false)
    }

    private mutating func read(
        _ count: Int, from stream: PeerConnection.Stream
    ) async throws -> [UInt8] {
        var everything: [UInt8] = []
        while everything.count < count {
            let size = min(pieceSize, count - everything.count)
            everything += try #require(try await stream.read(atMost: size), "\(label)")
        }
        return everything
    }

    private mutating func pause() async throws {
        if Int.random(in: 0..<10, using: &generator) == 0 {
            try await Task.sleep(for: .milliseconds(2))
        }
    }
}
