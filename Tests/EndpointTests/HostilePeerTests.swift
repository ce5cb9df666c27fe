import BLESecDelivery
import BLESecPrimitives
import Testing

/// Records that break the rules of delivery, from an authenticated peer.
struct HostilePeerTests {
    /// An endpoint, its own `resume` and the peer's. The endpoint has sent its `resume` and two of
    /// three messages.
    private struct Scene {
        var endpoint: DeliveryEndpoint
        var generator = SeededGenerator(seed: 7)
        var own = Resume(
            token: .none, peerToken: .none, epoch: .none, first: 1, peerEpoch: .none,
            positions: Positions(), credit: 0)
        var peer: Resume
        /// The number of the peer's incomplete message or, if there is none, of its next message.
        /// Meaningful only if the peer's `resume` on this link was `peer`.
        var nextNumber: UInt64 = 1

        init() throws {
            var limits = DeliveryEndpoint.Limits()
            limits.window = 1_000
            limits.longestMessage = 5_000
            endpoint = DeliveryEndpoint(limits: limits, using: &generator)
            peer = Resume(
                token: Identifier(using: &generator), peerToken: .none,
                epoch: Identifier(using: &generator), first: 1, peerEpoch: .none,
                positions: Positions(), credit: 150)
            for byte: UInt8 in 1...3 {
                _ = endpoint.send([UInt8](repeating: byte, count: 20))
            }
            try connect()
        }

        mutating func commit() {
            while endpoint.takeChanges() != nil { endpoint.didCommit() }
        }

        /// Begins a link, and exchanges `resume`.
        mutating func connect() throws {
            endpoint.linkBegan()
            commit()
            guard case .resume(let resume) = endpoint.nextRecord(atMost: 100) else {
                throw DeliveryError.violation("no resume came first")
            }
            own = resume
            let isEpochKnown = own.peerEpoch == peer.epoch
            nextNumber = isEpochKnown ? own.positions.held + 1 : peer.first
            try receive(.resume(peer))
            commit()
            // With its next record the peer shows that it has this side's `resume`.
            try receive(.credit(peer.credit))
            commit()
            // The first call only makes the store mark the messages that are about to leave.
            _ = endpoint.nextRecord(atMost: 100)
            commit()
            while endpoint.nextRecord(atMost: 100) != nil {}
        }

        /// Begins another link. If the endpoint refuses the peer's epoch there, gives the peer a
        /// new state, and begins one more link.
        mutating func reconnect() throws {
            try connect()
            guard endpoint.isWaitingForLinkEnd else { return }
            peer.token = Identifier(using: &generator)
            peer.epoch = Identifier(using: &generator)
            try connect()
        }

        /// Passes a record of the peer to the endpoint, and returns whether it made progress.
        @discardableResult
        mutating func receive(_ record: DeliveryRecord) throws(DeliveryError) -> Bool {
            try endpoint.receive(record, using: &generator)
        }

        mutating func expectRefusal(_ record: DeliveryRecord, at location: SourceLocation) {
            #expect(throws: DeliveryError.self, "\(record)", sourceLocation: location) {
                try receive(record)
            }
        }
    }

    private func expectRefusal(
        of record: (Scene) -> DeliveryRecord, at location: SourceLocation = #_sourceLocation
    ) throws {
        var scene = try Scene()
        scene.expectRefusal(record(scene), at: location)
    }

    /// Expects that on the next link the peer's `resume` is refused if it has this change.
    private func expectResumeRefusal(
        after change: (inout Resume, Scene) -> Void,
        at location: SourceLocation = #_sourceLocation
    ) throws {
        var scene = try Scene()
        scene.peer.peerEpoch = scene.own.epoch
        change(&scene.peer, scene)
        scene.endpoint.linkBegan()
        _ = scene.endpoint.nextRecord(atMost: 100)
        scene.expectRefusal(.resume(scene.peer), at: location)
    }

    private static func chunk(
        _ number: UInt64, at offset: Int = 0, of length: Int, count: Int
    ) -> DeliveryRecord {
        .chunk(
            Chunk(
                number: number, offset: offset, length: length,
                bytes: [UInt8](repeating: 1, count: count)))
    }

    @Test("a chunk that does not continue the last chunk, is too long or does not fit is refused")
    func chunks() throws {
        for (number, offset, length, count) in [
            (2, 0, 10, 10), (0, 0, 10, 10), (.max, 0, 10, 10), (1, 1, 10, 9), (1, 0, 10, 11),
            (1, 0, 10, 0), (1, 0, 0, 1), (1, 0, 5_001, 10), (1, -1, 10, 1), (1, 0, -1, 0),
            (1, 0, .max, 10),
        ] as [(UInt64, Int, Int, Int)] {
            try expectRefusal { _ in Self.chunk(number, at: offset, of: length, count: count) }
        }
        var scene = try Scene()
        try scene.receive(Self.chunk(1, of: 10, count: 4))
        scene.expectRefusal(Self.chunk(1, at: 4, of: 11, count: 4), at: #_sourceLocation)
        #expect(scene.endpoint.take() == nil)
    }

    @Test("a confirmation of number 0, of a message not sent or of one confirmed before is refused")
    func confirmations() throws {
        for number: UInt64 in [0, 3, .max] {
            try expectRefusal { .confirm(epoch: $0.own.epoch, through: number) }
        }
        var scene = try Scene()
        try scene.receive(.confirm(epoch: scene.own.epoch, through: 2))
        scene.expectRefusal(.confirm(epoch: scene.own.epoch, through: 2), at: #_sourceLocation)
        // Nothing is confirmed by a record that names another epoch.
        try scene.receive(.confirm(epoch: scene.peer.epoch, through: 3))
        scene.commit()
        #expect(scene.endpoint.nextEvent() == .confirmed(id: 1))
        #expect(scene.endpoint.nextEvent() == .confirmed(id: 2))
        #expect(scene.endpoint.nextEvent() == nil)
    }

    @Test("an epoch that is not new, a lower credit and a second resume are refused")
    func others() throws {
        try expectRefusal { _ in .epoch(.none) }
        try expectRefusal { .epoch($0.peer.epoch) }
        try expectRefusal { _ in .credit(149) }
        try expectRefusal { .resume($0.peer) }
        var scene = try Scene()
        try scene.receive(.epoch(Identifier(high: 1, low: 2)))
        scene.commit()
        scene.expectRefusal(.epoch(scene.peer.epoch), at: #_sourceLocation)
        // A second epoch on one link is refused even if it is new.
        scene.expectRefusal(
            .epoch(Identifier(high: 3, low: 4)), at: #_sourceLocation)
    }

    @Test("a resume with impossible positions is refused")
    func resumes() throws {
        try expectResumeRefusal { resume, _ in resume.token = .none }
        try expectResumeRefusal { resume, _ in resume.epoch = .none }
        for first: UInt64 in [0, 2, .max] {
            try expectResumeRefusal { resume, _ in resume.first = first }
        }
        for (confirmed, held, offset) in [
            (0, 3, 0), (1, 0, 0), (0, .max, 0), (.max, .max, 0), (0, 2, 1), (0, 0, 20), (0, 0, -1),
        ] as [(UInt64, UInt64, Int)] {
            try expectResumeRefusal { resume, _ in
                resume.positions = Positions(confirmed: confirmed, held: held, offset: offset)
            }
        }
    }

    @Test("records before resume are refused")
    func tooEarly() throws {
        for record: DeliveryRecord in [
            .credit(1_000), .epoch(Identifier(high: 1, low: 1)),
            .confirm(epoch: Identifier(high: 1, low: 1), through: 1),
            Self.chunk(1, of: 1, count: 1),
        ] {
            var scene = try Scene()
            scene.endpoint.linkBegan()
            scene.expectRefusal(record, at: #_sourceLocation)
        }
    }

    @Test("a message without credit is refused, and new links do not give more credit")
    func memory() throws {
        var scene = try Scene()
        var number: UInt64 = 0
        // The program takes no messages, so a peer that goes on sending is refused.
        #expect(throws: DeliveryError.violation("a message without credit")) {
            while number < 100 {
                number += 1
                try scene.receive(Self.chunk(number, of: 400, count: 400))
            }
        }
        #expect(number == 4)
        let bound = 1_000 + 400 + 64
        #expect(scene.endpoint.heldBytes <= bound)
        for _ in 0..<50 {
            scene.endpoint.linkBegan()
            let record = scene.endpoint.nextRecord(atMost: 100)
            scene.peer.credit = 0
            guard case .resume(let resume) = record else {
                Issue.record("no resume: \(String(describing: record))")
                return
            }
            #expect(resume.credit == 0 && resume.positions.held == number - 1)
            try scene.receive(.resume(scene.peer))
            scene.commit()
            scene.expectRefusal(Self.chunk(number, of: 400, count: 400), at: #_sourceLocation)
            #expect(scene.endpoint.heldBytes <= bound)
        }
    }

    @Test("no message may follow an end, and an end may come again on another link")
    func afterTheEnd() throws {
        for takesMessage in [false, true] {
            var scene = try Scene()
            try scene.receive(Self.chunk(1, of: 10, count: 10))
            #expect(try scene.receive(.finish(number: 2)))
            // The end is confirmed when the program has confirmed the message before it.
            if takesMessage { #expect(scene.endpoint.take() != nil) }
            if takesMessage { scene.endpoint.confirm(through: 1, noting: nil) }
            scene.commit()
            scene.expectRefusal(Self.chunk(3, of: 10, count: 10), at: #_sourceLocation)
            // A peer that does not know whether its end has arrived sends it again. That is no
            // progress.
            try scene.connect()
            #expect(try !scene.receive(.finish(number: 3)))
            scene.expectRefusal(Self.chunk(4, of: 10, count: 10), at: #_sourceLocation)
            try scene.connect()
            try scene.receive(.epoch(Identifier(high: 5, low: 5)))
            scene.expectRefusal(Self.chunk(1, of: 10, count: 10), at: #_sourceLocation)
            #expect(try !scene.receive(.finish(number: 1)))
        }
    }

    @Test("a second end on a link is refused, also in a new epoch, and is no progress")
    func secondEnd() throws {
        for beginsEpoch in [false, true] {
            var scene = try Scene()
            try scene.receive(.finish(number: 1))
            scene.commit()
            if beginsEpoch { try scene.receive(.epoch(Identifier(high: 5, low: 5))) }
            scene.commit()
            let before = scene.endpoint.progressCount
            scene.expectRefusal(
                .finish(number: beginsEpoch ? 1 : 2), at: #_sourceLocation)
            #expect(scene.endpoint.progressCount == before)
            #expect(scene.endpoint.takeChanges() == nil)
        }
    }

    @Test("random records neither trap nor take more memory than the limits allow")
    func random() throws {
        let (window, longestCost) = (1_000, 5_000 + 64)
        // A credit allows the peer to fill the window. Two messages may come in addition: one that
        // was incomplete when the credit was given, and one that begins with the last byte of the
        // credit.
        let bound = window + 2 * longestCost
        var mostHeld = 0
        for seed in RunSeed.value..<RunSeed.value + 300 {
            var generator = SeededGenerator(seed: seed)
            var scene = try Scene()
            // The last chunk that the endpoint has taken.
            var last: Chunk?
            for _ in 0..<200 {
                let isFitting = Int.random(in: 0..<3, using: &generator) > 0
                let record =
                    isFitting
                    ? Self.fittingChunk(after: last, scene, using: &generator)
                    : Self.record(scene, using: &generator)
                var needsLink = scene.endpoint.isWaitingForLinkEnd
                do {
                    if try scene.receive(record), case .chunk(let chunk) = record {
                        last = chunk
                        if chunk.isLast { scene.nextNumber = chunk.number + 1 }
                    }
                } catch {
                    needsLink = true
                }
                if needsLink {
                    // About half of the links begin with a good `resume`.
                    let isGood = Bool.random(using: &generator)
                    if !isGood || (try? scene.reconnect()) == nil { scene.endpoint.linkBegan() }
                }
                scene.commit()
                _ = scene.endpoint.nextRecord(atMost: 100)
                if Int.random(in: 0..<10, using: &generator) == 0 { _ = scene.endpoint.take() }
                #expect(scene.endpoint.heldBytes <= bound)
                mostHeld = max(mostHeld, scene.endpoint.heldBytes)
                while scene.endpoint.nextEvent() != nil {}
            }
        }
        // So much is held only if a message of several chunks was completed.
        #expect(mostHeld > window + longestCost)
    }

    /// A chunk that continues the incomplete message, or begins a message if none is incomplete.
    /// About half of these chunks complete their message.
    private static func fittingChunk(
        after last: Chunk?, _ scene: Scene, using generator: inout SeededGenerator
    ) -> DeliveryRecord {
        let completesMessage = Bool.random(using: &generator)
        let offset = scene.endpoint.incompleteBytes
        if offset > 0, let last {
            let rest = last.length - offset
            let count = completesMessage ? rest : Int.random(in: 1...rest, using: &generator)
            return chunk(last.number, at: offset, of: last.length, count: count)
        }
        let length = [0, 1, 20, 400, 5_000].randomElement(using: &generator) ?? 0
        let isWhole = completesMessage || length == 0
        let count = isWhole ? length : Int.random(in: 1...length, using: &generator)
        return chunk(scene.nextNumber, of: length, count: count)
    }

    private static func record(
        _ scene: Scene, using generator: inout SeededGenerator
    ) -> DeliveryRecord {
        let numbers: [UInt64] = [0, 1, 2, 3, 4, 5, 1 << 62, 1 << 63, .max]
        func number() -> UInt64 { numbers.randomElement(using: &generator) ?? 0 }
        let lengths = [0, 1, 20, 400, 5_000, 5_001, -1, .max, .min]
        func length() -> Int { lengths.randomElement(using: &generator) ?? 0 }
        let names = [
            scene.own.token, scene.own.epoch, scene.peer.token, scene.peer.epoch, .none,
            Identifier(high: 5, low: 6), Identifier(using: &generator),
        ]
        func name() -> Identifier { names.randomElement(using: &generator) ?? .none }
        switch Int.random(in: 0..<6, using: &generator) {
        case 0, 1:
            return .resume(
                Resume(
                    token: name(), peerToken: name(), epoch: name(), first: number(),
                    peerEpoch: name(),
                    positions: Positions(confirmed: number(), held: number(), offset: length()),
                    credit: number()))
        case 2, 3:
            let count = [0, 1, 20, 400, 700].randomElement(using: &generator) ?? 0
            return chunk(number(), at: length(), of: length(), count: count)
        case 4: return .confirm(epoch: name(), through: number())
        default:
            return Bool.random(using: &generator) ? .epoch(name()) : .credit(number())
        }
    }
}

/// Records that break the rules of streams, from an authenticated peer.
struct HostileStreamTests {
    /// An endpoint with two open streams, and the peer's `resume`. The endpoint has sent four bytes
    /// on its own stream, of which two are acknowledged. The other stream is the peer's.
    private struct Scene {
        var endpoint: DeliveryEndpoint
        var generator = SeededGenerator(seed: 9)
        /// The endpoint's own stream.
        var ownStream: Streams.Handle
        var peer: Resume

        init() throws {
            var limits = DeliveryEndpoint.Limits()
            limits.streams.streams = 2
            limits.streams.waiting = 2
            limits.streams.window = 100
            endpoint = DeliveryEndpoint(hasStore: false, limits: limits, using: &generator)
            peer = Resume(
                token: Identifier(using: &generator), peerToken: .none,
                epoch: Identifier(using: &generator), first: 1, peerEpoch: .none,
                positions: Positions(), credit: 0,
                streams: StreamSummary(window: 50, firstLimit: 2, limit: 2))
            ownStream = endpoint.streams.open("own", .normal)
            try connect()
            _ = try endpoint.streams.write([1, 2, 3, 4], to: ownStream)
            drain()
            try receive(.limit(id: 0, received: 2, limit: 60))
            try receive(.open(id: 1, .normal, label: "peer"))
        }

        /// Sends everything that can be sent.
        mutating func drain() { while endpoint.nextRecord(atMost: 100) != nil {} }

        /// Begins a link, and exchanges `resume`.
        mutating func connect() throws(DeliveryError) {
            endpoint.linkBegan(.lower)
            guard case .resume(let resume) = endpoint.nextRecord(atMost: 100) else {
                throw .violation("no resume came first")
            }
            peer.streams.peerToken = resume.token
            try endpoint.receive(.resume(peer), using: &generator)
            drain()
        }

        /// Passes a record of the peer to the endpoint, and returns whether it made progress.
        @discardableResult
        mutating func receive(_ record: StreamRecord) throws(DeliveryError) -> Bool {
            try endpoint.receive(.stream(record), using: &generator)
        }
    }

    @Test(
        "a record that has no open stream, exceeds a limit, does not fit or is repeated is refused",
        arguments: [
            [.bytes(id: 1, offset: 1, [1])], [.bytes(id: 1, offset: 0, [])],
            [.bytes(id: 1, offset: 0, ArraySlice(repeating: 0, count: 101))],
            [.bytes(id: 3, offset: 0, [1])], [.bytes(id: 2, offset: 0, [1])],
            [.fin(id: 1, size: 1)], [.fin(id: 1, size: 0), .fin(id: 1, size: 0)],
            [.fin(id: 1, size: 0), .bytes(id: 1, offset: 0, [1])],
            [.reset(id: 1, code: 1), .reset(id: 1, code: 1)],
            [.reset(id: 1, code: 1), .bytes(id: 1, offset: 0, [1])],
            [.stop(id: 0, code: 1), .stop(id: 0, code: 1)], [.done(id: 0)], [.done(id: 1)],
            [.limit(id: 0, received: 2, limit: 60)], [.limit(id: 0, received: 1, limit: 70)],
            [.limit(id: 0, received: 5, limit: 70)], [.limit(id: 0, received: 3, limit: 59)],
            [.limit(id: 1, received: 1, limit: 70)], [.limit(id: 9, received: 0, limit: 70)],
            [.limit(id: UInt64.max >> 2, received: 0, limit: UInt64.max >> 2)],
            [.open(id: 1, .normal, label: "")], [.open(id: 5, .normal, label: "")],
            [.open(id: 2, .normal, label: "")],
            [.open(id: 3, .normal, label: ""), .open(id: 5, .normal, label: "")],
            [.streams(limit: 2)], [.streams(limit: 1)],
        ] as [[StreamRecord]])
    func refused(_ records: [StreamRecord]) throws {
        var scene = try Scene()
        for record in records.dropLast() { try scene.receive(record) }
        #expect(throws: DeliveryError.self) { try scene.receive(records[records.count - 1]) }
    }

    // `streams.opened` is the number of the endpoint's own streams that have arrived at the peer.
    // One has, so 1 is the only possible value.
    @Test(
        "a resume with an impossible state of streams is refused",
        arguments: [
            { $0.streams.opened = 0 }, { $0.streams.opened = 2 }, { $0.streams.limit = 1 },
            { $0.streams.window = 51 }, { $0.streams.window = 0 }, { $0.streams.firstLimit = 1 },
            { $0.streams.entries = [] },
            { $0.streams.entries.append($0.streams.entries[0]) },
            { $0.streams.entries.append(.init(id: 2, .done)) },
            { $0.streams.entries[0].progress = .complete },
            { $0.streams.entries[0].progress = .done },
            { $0.streams.entries[0].progress = .receiving(count: 1, limit: 60) },
            { $0.streams.entries[0].progress = .receiving(count: 5, limit: 60) },
            { $0.streams.entries[0].progress = .receiving(count: 2, limit: 59) },
            { $0.streams.entries[0].progress = .receiving(count: 4, limit: 3) },
        ] as [@Sendable (inout Resume) -> Void])
    func refusedResume(_ change: @Sendable (inout Resume) -> Void) throws {
        var scene = try Scene()
        scene.peer.streams.opened = 1
        scene.peer.streams.entries = [
            .init(id: 0, .receiving(count: 2, limit: 60)),
            .init(id: 1, .receiving(count: 0, limit: 50)),
        ]
        // Without the change, an endpoint in the same state accepts the `resume`.
        var unchangedScene = try Scene()
        unchangedScene.peer = scene.peer
        try unchangedScene.connect()
        change(&scene.peer)
        #expect(throws: DeliveryError.self) { try scene.connect() }
    }

    @Test("a stream that is over cannot be used again")
    func notAgain() throws {
        var scene = try Scene()
        scene.endpoint.streams.finish(scene.ownStream)
        scene.drain()
        try scene.receive(.done(id: 0))
        try scene.receive(.fin(id: 0, size: 0))
        scene.drain()
        #expect(scene.endpoint.streams.openCount == 1)
        // A reset may have crossed this side's `done`.
        try scene.receive(.reset(id: 0, code: 1))
        #expect(throws: DeliveryError.self) { try scene.receive(.bytes(id: 0, offset: 0, [1])) }
        // `scene.peer` still has `streams.opened` 0. So the peer's next `resume` says that none of
        // the endpoint's own streams has arrived, although the peer has used `ownStream` above.
        scene.peer.streams.entries = [.init(id: 1, .receiving(count: 0, limit: 50))]
        #expect(throws: DeliveryError.self) { try scene.connect() }
    }

    @Test("a reset that comes again on another link is no progress")
    func resetAgain() throws {
        var scene = try Scene()
        #expect(try scene.receive(.reset(id: 1, code: 1)))
        scene.peer.streams.opened = 1
        scene.peer.streams.entries = [
            .init(id: 0, .receiving(count: 2, limit: 60)),
            .init(id: 1, .receiving(count: 0, limit: 50)),
        ]
        try scene.connect()
        #expect(try !scene.receive(.reset(id: 1, code: 1)))
    }

    @Test("a limit that acknowledges no new bytes, and bytes of a stopped stream, are no progress")
    func noProgress() throws {
        var scene = try Scene()
        // The peer has acknowledged two bytes already.
        #expect(try !scene.receive(.limit(id: 0, received: 2, limit: 61)))
        #expect(try scene.receive(.limit(id: 0, received: 3, limit: 62)))
        let next = scene.endpoint.streams.accept()
        let accepted = try #require(next)
        scene.endpoint.streams.stop(accepted.handle, code: 1)
        scene.drain()
        let bytes = ArraySlice<UInt8>(repeating: 1, count: 50)
        #expect(try !scene.receive(.bytes(id: 1, offset: 0, bytes)))
        #expect(try !scene.receive(.bytes(id: 1, offset: 50, bytes)))
        scene.drain()
        // A stopped direction gets no further limit.
        #expect(throws: DeliveryError.self) {
            try scene.receive(.bytes(id: 1, offset: 100, bytes))
        }
    }
}
