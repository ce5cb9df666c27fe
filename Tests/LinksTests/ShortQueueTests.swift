import BLESecLinks
import BLESecTesting
import Testing

@Suite struct ShortQueueTests {
    enum Kind: CaseIterable {
        /// `packets` and `largePackets` are SEQPACKET sockets. Their largest SDUs are 8 and 64 KiB.
        case memory, stream, packets, largePackets

        func pair(_ loop: EventLoop) async throws -> (any Link, any Link) {
            switch self {
            case .memory: MemoryLink.pair(loop: loop)
            case .stream: try await SocketLink.pair(.stream, loop: loop)
            case .packets: try await SeqpacketPair.make(loop: loop)
            case .largePackets: try await SocketLink.pair(.seqpacket, loop: loop)
            }
        }
    }

    /// Sends `size` bytes at a time until the link takes nothing more; returns the number of bytes
    /// that it took.
    private static func fill(_ link: any Link, inSendsOf size: Int) throws -> Int {
        let bytes = [UInt8](repeating: 1, count: size)
        var total = 0
        while total < 1 << 20, case let count = try link.send(bytes), count > 0 { total += count }
        return total
    }

    /// Receives everything that has arrived; returns the number of bytes.
    private static func drain(_ link: any Link) throws -> Int {
        var total = 0
        while case let part = try link.receive(), part.outcome == .bytes {
            total += part.bytes.count
        }
        return total
    }

    @Test(
        "a short queue takes 8 to 33 KiB, takes more once the peer has read, and can be long again",
        arguments: Kind.allCases, [1_024, 4_197, 8_192, 32_768])
    func bounds(_ kind: Kind, _ size: Int) async throws {
        try await withLoop { loop in
            let (a, b) = try await kind.pair(loop)
            let size = min(size, a.maximumSDU)
            #expect(!a.keepsQueueShort)
            let longQueueBytes = try Self.fill(a, inSendsOf: size)
            #expect(longQueueBytes > 48 << 10)
            try #expect(Self.drain(b) == longQueueBytes)
            a.keepsQueueShort = true
            #expect(a.keepsQueueShort)
            let recorder = Recorder()
            recorder.whenWritable = { a.wantsWrite = false }
            a.setHandler(recorder)
            for round in 1...3 {
                let shortQueueBytes = try Self.fill(a, inSendsOf: size)
                #expect((8 << 10...33 << 10).contains(shortQueueBytes), "\(shortQueueBytes)")
                a.wantsWrite = true
                await loop.settle()
                #expect(recorder.writableCount == round - 1)
                try #expect(Self.drain(b) == shortQueueBytes)
                await loop.settle()
                #expect(recorder.writableCount == round)
            }
            a.keepsQueueShort = false
            try #expect(Self.fill(a, inSendsOf: size) == longQueueBytes)
        }
    }

    @Test("two SDUs of the largest size fit into a short queue")
    func twoSDUs() async throws {
        try await withLoop { loop in
            for size in [8_192, 20_000] {
                let (a, b) = MemoryLink.pair(loop: loop, capacity: 65_536, maximumSDU: size)
                a.keepsQueueShort = true
                try #expect(Self.fill(a, inSendsOf: size) == 2 * size)
                b.close()
            }
            let (a, b) = try await SeqpacketPair.make(loop: loop, maximumSDU: 8_192)
            a.keepsQueueShort = true
            try #expect(Self.fill(a, inSendsOf: 8_192) >= 2 * 8_192)
            b.close()
        }
    }

    @Test(
        "a link that is full when its queue becomes short takes nothing until most bytes are read",
        arguments: Kind.allCases)
    func shortWhileFull(_ kind: Kind) async throws {
        try await withLoop { loop in
            let (a, b) = try await kind.pair(loop)
            let recorder = Recorder()
            recorder.whenWritable = { a.wantsWrite = false }
            a.setHandler(recorder)
            var unreadBytes = try Self.fill(a, inSendsOf: 4_096)
            a.wantsWrite = true
            a.keepsQueueShort = true
            await loop.settle()
            try #expect(a.send([1]) == 0)
            #expect(recorder.writableCount == 0)
            while unreadBytes > 0, recorder.writableCount == 0 {
                unreadBytes -= try b.receive(upTo: 4_096).bytes.count
                await loop.settle()
            }
            #expect(recorder.writableCount == 1)
            #expect(unreadBytes < 32 << 10)
            try #expect(a.send([1]) == 1)
        }
    }

    @Test(
        "a writer that waits for room in a short queue goes on as soon as the queue is long again",
        arguments: Kind.allCases)
    func longWhileFull(_ kind: Kind) async throws {
        try await withLoop { loop in
            let (a, b) = try await kind.pair(loop)
            let recorder = Recorder()
            recorder.whenWritable = { a.wantsWrite = false }
            a.setHandler(recorder)
            a.keepsQueueShort = true
            _ = try Self.fill(a, inSendsOf: 4_096)
            a.wantsWrite = true
            await loop.settle()
            #expect(recorder.writableCount == 0)
            a.keepsQueueShort = false
            await loop.settle()
            #expect(recorder.writableCount == 1)
            try #expect(Self.fill(a, inSendsOf: 4_096) > 16 << 10)
            b.close()
        }
    }

    @Test(
        "bytes arrive unchanged while the queue becomes short and long again all the time",
        arguments: Kind.allCases)
    func changes(_ kind: Kind) async throws {
        try await withLoop { loop in
            let (a, b) = try await kind.pair(loop)
            var random = SeededGenerator(seed: 11)
            let bytes = random.bytes(1 << 20)
            var sent = 0
            var received: [UInt8] = []
            for _ in 0..<20_000 where received.count < bytes.count {
                a.keepsQueueShort = Bool.random(using: &random)
                let size = Int.random(in: 1...min(a.maximumSDU, 30_000), using: &random)
                if sent < bytes.count {
                    let end = min(sent + size, bytes.count)
                    sent += try a.send(Array(bytes[sent..<end]))
                }
                if Bool.random(using: &random) { received += try b.receive(upTo: size).bytes }
            }
            #expect(received == bytes)
        }
    }

    @Test("a closed link ignores `keepsQueueShort`, and so does a link whose peer has closed")
    func closed() async throws {
        try await withLoop { loop in
            for kind in Kind.allCases {
                let (a, b) = try await kind.pair(loop)
                a.close()
                a.keepsQueueShort = true
                a.keepsQueueShort = false
                b.keepsQueueShort = true
                #expect(throws: LinkError.self) { try b.send([1]) }
                try #expect(b.receive().outcome == .end)
            }
        }
    }

    @Test("a link with faults passes `keepsQueueShort` on to the link that it wraps")
    func wrapped() async throws {
        try await withLoop { loop in
            let (a, b) = MemoryLink.pair(loop: loop)
            let faulty = FaultyLink(a)
            faulty.keepsQueueShort = true
            #expect(a.keepsQueueShort && faulty.keepsQueueShort)
            try #expect(Self.fill(faulty, inSendsOf: 4_096) <= 24 << 10)
            b.close()
        }
    }
}
