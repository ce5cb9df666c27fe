import BLESecDelivery
import BLESecPrimitives
import Testing

/// Two endpoints whose programs use streams, over links that are cut at any record.
private struct StreamWorld {
    /// What a program has done with a stream, and what it has read.
    struct Use {
        var written: [UInt8] = []
        var read: [UInt8] = []
        var isFinished = false
        var isAtEnd = false
        /// The error of the last read and of the last write that failed.
        var readFailure: Streams.Failure?
        var writeFailure: Streams.Failure?
        var label: String
        /// Whether this program has reset the stream.
        var hasReset = false
    }

    struct Side {
        var endpoint: DeliveryEndpoint
        var uses: [Streams.Handle: Use] = [:]
        var sent: [DeliveryRecord] = []
        /// How many streams this program has opened.
        var openedCount = 0
        /// Whether the endpoint has said that it has no record to send, and nothing that may cause
        /// a record has happened since then.
        var isIdle = false
    }

    var sides: [Side] = []
    var generator: SeededGenerator
    /// The limits of each side's endpoint.
    var limits = [DeliveryEndpoint.Limits(), DeliveryEndpoint.Limits()]
    var isLinked = false

    init(seed: UInt64) {
        generator = SeededGenerator(seed: seed)
        for side in 0...1 {
            let streams = Int.random(in: 1...6, using: &generator)
            limits[side].streams.streams = streams
            limits[side].streams.waiting = Int.random(in: 1...streams, using: &generator)
            limits[side].streams.window = Int.random(in: 1...200, using: &generator)
            sides.append(Side(endpoint: makeEndpoint(side)))
        }
    }

    mutating func makeEndpoint(_ side: Int) -> DeliveryEndpoint {
        DeliveryEndpoint(hasStore: false, limits: limits[side], using: &generator)
    }

    mutating func chance(_ percent: Int) -> Bool {
        Int.random(in: 0..<100, using: &generator) < percent
    }

    mutating func connect() {
        for side in 0...1 {
            sides[side].sent = []
            sides[side].isIdle = false
            sides[side].endpoint.linkBegan(side == 0 ? .lower : .higher)
        }
        isLinked = true
    }

    /// Cuts the link: records that were sent and have not arrived are lost.
    mutating func cut() {
        for side in 0...1 {
            sides[side].sent = []
            sides[side].endpoint.linkEnded()
        }
        isLinked = false
    }

    mutating func send(_ side: Int) {
        let limit = Int.random(in: 1...100, using: &generator)
        guard let record = sides[side].endpoint.nextRecord(atMost: limit) else {
            sides[side].isIdle = true
            return
        }
        #expect(!sides[side].isIdle, "nothing has caused \(record)")
        sides[side].isIdle = !sides[side].endpoint.mayHaveMore
        sides[side].sent.append(record)
    }

    mutating func arrive(_ side: Int) throws {
        guard !sides[1 - side].sent.isEmpty else { return }
        let record = sides[1 - side].sent.removeFirst()
        // Records travel as bytes.
        try sides[side].endpoint.receive(
            DeliveryRecord(record.kind, record.bytes), using: &generator)
        if sides[side].endpoint.mayHaveAnswer { sides[side].isIdle = false }
        // If the program does not know a stream yet, the stream waits to be accepted.
        for handle in sides[side].endpoint.streams.takeTouched() {
            #expect(sides[side].uses[handle] != nil || sides[side].endpoint.streams.hasArrived)
        }
    }

    // MARK: - The programs

    mutating func open(_ side: Int) {
        sides[side].isIdle = false
        guard sides[side].endpoint.streams.canOpen else { return }
        let label = "\(side).\(sides[side].openedCount)"
        sides[side].openedCount += 1
        let handle = sides[side].endpoint.streams.open(
            label, FramePriority.allCases.randomElement(using: &generator) ?? .bulk)
        sides[side].uses[handle] = Use(label: label)
    }

    mutating func accept(_ side: Int) {
        sides[side].isIdle = false
        guard let (handle, label, _) = sides[side].endpoint.streams.accept() else { return }
        sides[side].uses[handle] = Use(label: label)
    }

    /// Lets a program use one of its streams. With `mayGiveUp`, the program may also reset or stop
    /// the stream.
    mutating func use(_ side: Int, mayGiveUp: Bool) {
        sides[side].isIdle = false
        let handles = sides[side].uses.keys.sorted()
        guard let handle = handles.randomElement(using: &generator),
            var use = sides[side].uses[handle]
        else { return }
        switch Int.random(in: 0..<(mayGiveUp ? 24 : 20), using: &generator) {
        case 0..<8 where !use.isFinished && !use.hasReset: write(side, handle, &use)
        case 8..<17: read(side, handle, &use)
        case 17..<20 where !use.isFinished:
            use.isFinished = true
            sides[side].endpoint.streams.finish(handle)
        case 20, 21:
            use.hasReset = true
            sides[side].endpoint.streams.reset(handle, code: 5)
        case 22, 23:
            sides[side].endpoint.streams.stop(handle, code: 6)
        default: break
        }
        sides[side].uses[handle] = use
    }

    private mutating func write(_ side: Int, _ handle: Streams.Handle, _ use: inout Use) {
        let count = Int.random(in: 0...150, using: &generator)
        let bytes = (0..<count).map { _ in UInt8.random(in: 0...255, using: &generator) }
        do {
            let rest = try sides[side].endpoint.streams.write(bytes[...], to: handle)
            use.written += bytes.dropLast(rest.count)
        } catch {
            use.writeFailure = error
        }
    }

    private mutating func read(_ side: Int, _ handle: Streams.Handle, _ use: inout Use) {
        do {
            let most = Int.random(in: 1...150, using: &generator)
            guard let bytes = try sides[side].endpoint.streams.read(handle, atMost: most) else {
                use.isAtEnd = true
                return
            }
            #expect(bytes.count <= most)
            use.read += bytes
        } catch {
            use.readFailure = error
        }
    }

    /// Checks that each program has read only what its peer has written, in the same order.
    func check() {
        for side in 0...1 {
            for use in sides[side].uses.values {
                guard let peer = sides[1 - side].uses.values.first(where: { $0.label == use.label })
                else {
                    #expect(use.read.isEmpty && !use.isAtEnd)
                    continue
                }
                #expect(peer.written.starts(with: use.read), "\(use.label)")
                if use.isAtEnd {
                    #expect(peer.isFinished && use.read == peer.written, "\(use.label)")
                }
            }
        }
    }

    /// Finishes and reads all streams, and exchanges all records.
    mutating func settle() throws {
        if !isLinked { connect() }
        // Enough rounds: with a window of one byte, a round moves one byte of a stream, and a
        // sender keeps at most 200 bytes of a stream.
        for _ in 0..<1_000 {
            if sides.allSatisfy({
                $0.endpoint.streams.openCount == 0 && !$0.endpoint.streams.hasArrived
            }) {
                break
            }
            for side in 0...1 {
                accept(side)
                for handle in sides[side].uses.keys.sorted() {
                    guard var use = sides[side].uses[handle] else { continue }
                    if !use.isFinished { sides[side].endpoint.streams.finish(handle) }
                    use.isFinished = true
                    for _ in 0..<4 { read(side, handle, &use) }
                    sides[side].uses[handle] = use
                }
            }
            var isMoving = true
            while isMoving {
                isMoving = false
                for side in 0...1 {
                    let before = sides[side].sent.count
                    send(side)
                    if sides[side].sent.count > before || !sides[1 - side].sent.isEmpty {
                        isMoving = true
                    }
                    try arrive(side)
                }
            }
        }
        // Each program reads once more, so that it sees the end.
        for side in 0...1 {
            for handle in sides[side].uses.keys.sorted() {
                guard var use = sides[side].uses[handle] else { continue }
                read(side, handle, &use)
                sides[side].uses[handle] = use
            }
        }
    }
}

struct StreamTests {
    @Test("over cut links, streams of random programs carry what was written, and all of them end")
    func chains() throws {
        for seed in RunSeed.value..<RunSeed.value + 500 {
            var world = StreamWorld(seed: seed)
            let mayGiveUp = world.chance(50)
            let mayReplaceSides = world.chance(20)
            for _ in 0..<Int.random(in: 20...400, using: &world.generator) {
                let side = Int.random(in: 0...1, using: &world.generator)
                switch Int.random(in: 0..<100, using: &world.generator) {
                case 0..<6: world.open(side)
                case 6..<12: world.accept(side)
                case 12..<40: world.use(side, mayGiveUp: mayGiveUp)
                case 40..<66: world.send(side)
                case 66..<92: try world.arrive(side)
                case 92..<96: if !world.isLinked { world.connect() }
                case 96..<98: world.cut()
                case 98 where mayReplaceSides:
                    world.cut()
                    world.sides[side] = StreamWorld.Side(endpoint: world.makeEndpoint(side))
                    // The labels must not repeat.
                    world.sides[side].openedCount =
                        1_000 * Int(seed)
                        + Int(
                            world.generator.next() % 1_000_000)
                default: break
                }
                if !mayReplaceSides { world.check() }
            }
            try world.settle()
            if !mayReplaceSides { world.check() }
            for side in 0...1 {
                let openCount = world.sides[side].endpoint.streams.openCount
                #expect(openCount == 0, "seed \(seed), side \(side)")
                guard !mayReplaceSides, !mayGiveUp else { continue }
                for use in world.sides[side].uses.values {
                    #expect(use.isAtEnd && use.readFailure == nil, "seed \(seed) \(use.label)")
                    #expect(use.writeFailure == nil, "seed \(seed) \(use.label)")
                }
            }
        }
    }

    @Test("if `open` and `stop` are lost with a link, the next link carries both again")
    func stopsAgain() throws {
        var pair = EndpointPair()
        pair.connect()
        try pair.exchange()
        let opened = pair.sides[0].streams.open("stream", .normal)
        pair.sides[0].streams.stop(opened, code: 1)
        pair.sides[0].streams.finish(opened)
        var lost: [DeliveryRecord.Kind] = []
        while let record = pair.sides[0].nextRecord(atMost: 100) { lost.append(record.kind) }
        #expect(lost == [.open, .stop, .fin])
        pair.connect()
        // The peer's `resume` arrives before this side has sent its own.
        let resume = try #require(pair.sides[1].nextRecord(atMost: 100))
        try pair.sides[0].receive(resume, using: &pair.generator)
        pair.commit()
        try pair.exchange()
        let accepted = try #require(pair.sides[1].streams.accept()).handle
        #expect(throws: Streams.Failure.reset(code: 1)) {
            _ = try pair.sides[1].streams.write([1], to: accepted)
        }
        #expect(try pair.sides[1].streams.read(accepted, atMost: 1) == nil)
        try pair.exchange()
        #expect(pair.sides.map(\.streams.openCount) == [0, 0])
    }

    @Test("a reset that follows written bytes does not overtake them, even over a cut link")
    func resetAfterWritten() throws {
        for cutsBeforeRead in [false, true] {
            var pair = EndpointPair()
            pair.connect()
            try pair.exchange()
            let opened = pair.sides[0].streams.open("stream", .normal)
            try pair.exchange()
            let accepted = try #require(pair.sides[1].streams.accept()).handle
            _ = try pair.sides[0].streams.write([1, 2, 3], to: opened)
            pair.sides[0].streams.resetAfterWritten(opened, code: 7)
            #expect(throws: Streams.Failure.reset(code: 7)) {
                _ = try pair.sides[0].streams.write([4], to: opened)
            }
            // What is sent now is lost.
            while pair.sides[0].nextRecord(atMost: 2) != nil {}
            for _ in 0..<2 {
                pair.connect()
                try pair.exchange()
                if !cutsBeforeRead { break }
            }
            #expect(pair.sides[1].streams.hasFailedReading(accepted))
            #expect(try pair.sides[1].streams.read(accepted, atMost: 2) == [1, 2])
            try pair.exchange()
            #expect(pair.sides[0].streams.writeResult(opened) == nil, "a byte is not taken yet")
            #expect(try pair.sides[1].streams.read(accepted, atMost: 2) == [3])
            #expect(throws: Streams.Failure.reset(code: 7)) {
                _ = try pair.sides[1].streams.read(accepted, atMost: 1)
            }
            try pair.exchange()
            guard case .failure(.reset(code: 7))? = pair.sides[0].streams.writeResult(opened) else {
                Issue.record("the write result does not show the reset, which the peer knows")
                return
            }
            pair.sides[1].streams.finish(accepted)
            try pair.exchange()
            #expect(try pair.sides[0].streams.read(opened, atMost: 1) == nil)
            try pair.exchange()
            #expect(pair.sides.map(\.streams.openCount) == [0, 0])
        }
    }

    @Test("after `resetAfterWritten`, a further `reset` sends no second reset on the same link")
    func secondReset() throws {
        var pair = EndpointPair()
        pair.connect()
        try pair.exchange()
        let opened = pair.sides[0].streams.open("stream", .normal)
        _ = try pair.sides[0].streams.write([1, 2, 3], to: opened)
        pair.sides[0].streams.resetAfterWritten(opened, code: 7)
        try pair.exchange()
        pair.sides[0].streams.reset(opened, code: 8)
        try pair.exchange()
        let accepted = try #require(pair.sides[1].streams.accept()).handle
        #expect(throws: Streams.Failure.reset(code: 7)) {
            _ = try pair.sides[1].streams.read(accepted, atMost: 9)
        }
    }

    @Test("when the peer's instance ends, streams that have sent everything do not count as lost")
    func countOfLost() throws {
        var pair = EndpointPair()
        pair.connect()
        try pair.exchange()
        let done = pair.sides[0].streams.open("done", .normal)
        _ = pair.sides[0].streams.open("open", .normal)
        _ = try pair.sides[0].streams.write([1], to: done)
        pair.sides[0].streams.finish(done)
        try pair.exchange()
        let accepted = try #require(pair.sides[1].streams.accept()).handle
        #expect(try pair.sides[1].streams.read(accepted, atMost: 9) == [1])
        #expect(try pair.sides[1].streams.read(accepted, atMost: 9) == nil)
        try pair.exchange()
        // The peer has not finished its direction of `done`, so `done` is still open.
        #expect(pair.sides[0].streams.openCount == 2)
        pair.sides[1] = DeliveryEndpoint(using: &pair.generator)
        pair.commit()
        pair.connect()
        try pair.exchange()
        #expect(pair.sides[0].streams.lostCount == 1)
    }

    @Test("a stream of which no link has told the peer goes to the peer's new instance")
    func untold() throws {
        var limits = DeliveryEndpoint.Limits()
        limits.streams.waiting = 1
        var pair = EndpointPair(limits: limits)
        pair.connect()
        try pair.exchange()
        let told = pair.sides[0].streams.open("told", .normal)
        // The peer allows no more streams until its program accepts this one.
        let untold = pair.sides[0].streams.open("untold", .normal)
        _ = try pair.sides[0].streams.write([1, 2], to: untold)
        for _ in 0..<2 {
            pair.connect()
            try pair.exchange()
        }
        // The new instance takes fewer bytes of a stream at first.
        limits.streams.window = 100
        pair.sides[1] = DeliveryEndpoint(limits: limits, using: &pair.generator)
        pair.commit()
        pair.connect()
        try pair.exchange()
        #expect(throws: Streams.Failure.sessionLost) {
            _ = try pair.sides[0].streams.read(told, atMost: 1)
        }
        #expect(pair.sides[0].streams.lostCount == 1)
        let accepted = try #require(pair.sides[1].streams.accept())
        #expect(accepted.label == "untold")
        try pair.exchange()
        #expect(try pair.sides[1].streams.read(accepted.handle, atMost: 9) == [1, 2])
        for (side, handle) in [(0, untold), (1, accepted.handle)] {
            pair.sides[side].streams.finish(handle)
        }
        try pair.exchange()
        for (side, handle) in [(0, untold), (1, accepted.handle)] {
            #expect(try pair.sides[side].streams.read(handle, atMost: 9) == nil)
        }
        try pair.exchange()
        #expect(pair.sides.map(\.streams.openCount) == [0, 0])
    }
}
