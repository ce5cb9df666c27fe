import BLESecDelivery
import BLESecPrimitives
import Testing

/// Records that a peer with a key may send, and that break the rules.
struct HostilePeerTests {
    /// An endpoint that has sent its `resume` and two of three messages, and the peer's `resume`.
    private struct Scene {
        var endpoint: DeliveryEndpoint
        var generator = SeededGenerator(seed: 7)
        var own = Resume(
            token: .none, peerToken: .none, epoch: .none, first: 1, peerEpoch: .none,
            positions: Positions(), credit: 0)
        var peer: Resume

        init() throws {
            var limits = DeliveryEndpoint.Limits()
            limits.window = 1_000
            limits.longest = 5_000
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
            try receive(.resume(peer))
            commit()
            // With its next record the peer shows that it has this side's `resume`.
            try receive(.credit(peer.credit))
            commit()
            // The first call asks the store to mark what leaves.
            _ = endpoint.nextRecord(atMost: 100)
            commit()
            while endpoint.nextRecord(atMost: 100) != nil {}
        }

        mutating func receive(_ record: DeliveryRecord) throws(DeliveryError) {
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

    /// Expects that the next link ends at the changed `resume`.
    private func expectRefusal(
        ofNext change: (inout Resume, Scene) -> Void,
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
                bytes: [UInt8](repeating: 1, count: count)[...]))
    }

    @Test("a chunk that does not continue the last one, is too long or does not fit, is refused")
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

    @Test("confirmations of what was not sent, of no message, and of the same message twice")
    func confirmations() throws {
        for number: UInt64 in [0, 3, .max] {
            try expectRefusal { .confirm(epoch: $0.own.epoch, number) }
        }
        var scene = try Scene()
        try scene.receive(.confirm(epoch: scene.own.epoch, 2))
        scene.expectRefusal(.confirm(epoch: scene.own.epoch, 2), at: #_sourceLocation)
        // Nothing is confirmed by a record that names another epoch.
        try scene.receive(.confirm(epoch: scene.peer.epoch, 3))
        scene.commit()
        #expect(scene.endpoint.nextEvent() == .confirmed(id: 1))
        #expect(scene.endpoint.nextEvent() == .confirmed(id: 2))
        #expect(scene.endpoint.nextEvent() == nil)
    }

    @Test("an epoch that is not new, a credit that is less, and a second resume, are refused")
    func others() throws {
        try expectRefusal { _ in .epoch(.none) }
        try expectRefusal { .epoch($0.peer.epoch) }
        try expectRefusal { _ in .credit(149) }
        try expectRefusal { .resume($0.peer) }
        var scene = try Scene()
        try scene.receive(.epoch(Identifier(high: 1, low: 2)))
        scene.commit()
        scene.expectRefusal(.epoch(scene.peer.epoch), at: #_sourceLocation)
    }

    @Test("a resume with positions that cannot be is refused")
    func resumes() throws {
        try expectRefusal { resume, _ in resume.token = .none }
        try expectRefusal { resume, _ in resume.epoch = .none }
        for first: UInt64 in [0, 2, .max] {
            try expectRefusal { resume, _ in resume.first = first }
        }
        for (confirmed, held, offset) in [
            (0, 3, 0), (1, 0, 0), (0, .max, 0), (.max, .max, 0), (0, 2, 1), (0, 0, 20), (0, 0, -1),
        ] as [(UInt64, UInt64, Int)] {
            try expectRefusal { resume, _ in
                resume.positions = Positions(confirmed: confirmed, held: held, offset: offset)
            }
        }
    }

    @Test("records before resume are refused")
    func tooEarly() throws {
        for record: DeliveryRecord in [
            .credit(1_000), .epoch(Identifier(high: 1, low: 1)),
            .confirm(epoch: Identifier(high: 1, low: 1), 1), Self.chunk(1, of: 1, count: 1),
        ] {
            var scene = try Scene()
            scene.endpoint.linkBegan()
            scene.expectRefusal(record, at: #_sourceLocation)
        }
    }

    @Test("a message without credit is refused, and links without end do not give more credit")
    func memory() throws {
        var scene = try Scene()
        var number: UInt64 = 0
        // Without a program that takes messages, a peer that goes on sending is refused.
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

    @Test("random records neither trap nor take more memory than the limits allow")
    func random() throws {
        for seed in ChainSeed.value..<ChainSeed.value + 300 {
            var generator = SeededGenerator(seed: seed)
            var scene = try Scene()
            for _ in 0..<200 {
                let record = Self.record(scene, using: &generator)
                do {
                    try scene.receive(record)
                } catch {
                    scene.endpoint.linkBegan()
                }
                scene.commit()
                _ = scene.endpoint.nextRecord(atMost: 100)
                if Int.random(in: 0..<10, using: &generator) == 0 { _ = scene.endpoint.take() }
                #expect(scene.endpoint.heldBytes <= 1_000 + 5_000 + 64)
                while scene.endpoint.nextEvent() != nil {}
            }
        }
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
        case 4: return .confirm(epoch: name(), number())
        default:
            return Bool.random(using: &generator) ? .epoch(name()) : .credit(number())
        }
    }
}
