internal import BLESecDelivery
internal import BLESecPrimitives

extension FuzzTarget {
    /// Delivery over many links: two endpoints whose links are cut anywhere and whose stores commit
    /// late; or one endpoint, and a peer with keys that sends it any records.
    static let delivery = FuzzTarget(name: "delivery") { input in
        var script = Script(input)
        if script.flag() {
            var scene = HostilePeerScene(&script)
            for _ in 0..<400 where !script.isOver { scene.step(&script) }
        } else {
            var scene = DeliveryScene()
            for _ in 0..<400 where !script.isOver { scene.step(&script) }
            scene.settle()
        }
    } seeds: {
        let talk: [UInt8] = (0..<12).flatMap { index -> [UInt8] in
            [0, index, 1, 40, 3, 4, 2, 200, 3, 4, 2, 255, 3, 4, 5, 6, 7]
        }
        let resume: [UInt8] = [2, 0, 3, 1, 4, 2, 1, 0, 0, 0, 200]
        let chunk: [UInt8] = [2, 1, 1, 0, 20, 20]
        return [
            [0, 8] + talk, [0, 8] + talk + [8] + talk, [0, 8] + talk + [9, 8] + talk,
            [1, 1, 3, 0, 60] + resume + [1] + chunk + [4, 5, 2, 2, 4, 1, 1],
            [1, 0, 200, 1, 1] + resume + [2, 3, 3] + [2, 4, 9],
        ]
    }
}

/// Two endpoints, their programs, and the records under way between them.
private struct DeliveryScene {
    private struct Side {
        var endpoint: DeliveryEndpoint
        /// The lengths of the messages that the program has sent, how many it has taken of the
        /// peer's, and how many of its own are confirmed.
        var sent: [Int] = []
        var taken = 0
        var confirmed = 0
        var isCommitting = false
        /// The records that have left and not arrived, as bytes.
        var underWay: [(DeliveryRecord.Kind, [UInt8])] = []
    }

    private var generator = SeededGenerator(seed: 1)
    private var sides: [Side] = []
    private var isLinkUp = false

    init() {
        for _ in 0..<2 { sides.append(Side(endpoint: DeliveryEndpoint(using: &generator))) }
    }

    mutating func step(_ script: inout Script) {
        switch script.number(below: 13) {
        case 0: send(0, Int(script.byte()) * 10)
        case 1: send(1, Int(script.byte()) * 10)
        case 2: pass(script.number(below: 2), atMost: Int(script.byte()) * 4 + 1)
        case 3: deliver(from: 0)
        case 4: deliver(from: 1)
        case 5: take(script.number(below: 2))
        case 6: beginCommit(script.number(below: 2))
        case 7: endCommit(script.number(below: 2))
        case 8: cut(startsAnew: true)
        case 9: cut(startsAnew: false)
        case 10: sides[script.number(below: 2)].endpoint.finish()
        default:
            for end in 0...1 {
                beginCommit(end)
                endCommit(end)
                pass(end, atMost: 500)
                deliver(from: end)
                take(end)
            }
        }
    }

    private mutating func send(_ end: Int, _ length: Int) {
        guard !sides[end].endpoint.hasFinished else { return }
        sides[end].sent.append(length)
        let mark = UInt8(truncatingIfNeeded: sides[end].sent.count)
        _ = sides[end].endpoint.send([UInt8](repeating: mark, count: length))
    }

    /// Moves an endpoint's next record to the link.
    private mutating func pass(_ end: Int, atMost limit: Int) {
        guard let record = sides[end].endpoint.nextRecord(atMost: limit) else { return }
        sides[end].underWay.append((record.kind, record.bytes))
    }

    private mutating func deliver(from end: Int) {
        guard !sides[end].underWay.isEmpty, sides[1 - end].endpoint.wantsRecords else { return }
        let (kind, bytes) = sides[end].underWay.removeFirst()
        must {
            let record = try DeliveryRecord(kind, bytes)
            try sides[1 - end].endpoint.receive(record, using: &generator)
        }
    }

    private mutating func take(_ end: Int) {
        while let message = sides[end].endpoint.take() {
            precondition(sides[end].taken < sides[1 - end].sent.count, "a message more than sent")
            let length = sides[1 - end].sent[sides[end].taken]
            sides[end].taken += 1
            let mark = UInt8(truncatingIfNeeded: sides[end].taken)
            precondition(message == [UInt8](repeating: mark, count: length), "lost or out of order")
        }
        sides[end].endpoint.confirm(through: sides[end].endpoint.takenCount)
    }

    private mutating func beginCommit(_ end: Int) {
        if !sides[end].isCommitting, sides[end].endpoint.takeChanges() != nil {
            sides[end].isCommitting = true
        }
    }

    private mutating func endCommit(_ end: Int) {
        guard sides[end].isCommitting else { return }
        sides[end].isCommitting = false
        sides[end].endpoint.didCommit()
        while let event = sides[end].endpoint.nextEvent() {
            if event == .finished {
                precondition(sides[1 - end].endpoint.hasPeerFinished, "finished and not taken")
                continue
            }
            guard case .confirmed(let id) = event else {
                fatalError("\(event), and no state is lost")
            }
            sides[end].confirmed += 1
            precondition(id == UInt64(sides[end].confirmed), "confirmed out of order")
            precondition(sides[end].confirmed <= sides[1 - end].taken, "confirmed and not taken")
        }
    }

    /// Loses what is under way; both sides begin to use a new link, or none.
    private mutating func cut(startsAnew: Bool) {
        isLinkUp = startsAnew
        for end in 0...1 {
            sides[end].underWay = []
            if startsAnew {
                sides[end].endpoint.linkBegan()
            } else {
                sides[end].endpoint.linkEnded()
            }
        }
    }

    /// Without further cuts, everything arrives and is confirmed.
    mutating func settle() {
        cut(startsAnew: true)
        for end in 0...1 { sides[end].endpoint.finish() }
        var rounds = 0
        while !sides.allSatisfy(\.endpoint.hasToldAll) {
            rounds += 1
            precondition(rounds < 100_000, "no progress")
            for end in 0...1 {
                beginCommit(end)
                endCommit(end)
                pass(end, atMost: 700)
                deliver(from: end)
                take(end)
            }
        }
    }
}

/// An endpoint with messages to send, and a peer that sends it any records, in which it uses the
/// endpoint's own identifiers too.
private struct HostilePeerScene {
    private static let limits: DeliveryEndpoint.Limits = {
        var limits = DeliveryEndpoint.Limits()
        limits.window = 4_000
        limits.longest = 10_000
        return limits
    }()

    private var generator = SeededGenerator(seed: 2)
    private var endpoint: DeliveryEndpoint
    private var identifiers: [Identifier]

    init(_ script: inout Script) {
        endpoint = DeliveryEndpoint(limits: Self.limits, using: &generator)
        identifiers = [.none]
        for _ in 0..<4 { identifiers.append(Identifier(using: &generator)) }
        for _ in 0..<script.number(below: 4) {
            _ = endpoint.send([UInt8](repeating: 7, count: Int(script.byte()) * 10))
        }
        beginLink()
    }

    private mutating func beginLink() {
        endpoint.linkBegan()
        commit()
        if case .resume(let resume)? = endpoint.nextRecord(atMost: 500) {
            for identifier in [resume.token, resume.epoch] where !identifiers.contains(identifier) {
                identifiers.append(identifier)
            }
        }
    }

    private mutating func commit() {
        while endpoint.takeChanges() != nil { endpoint.didCommit() }
        while endpoint.nextEvent() != nil {}
    }

    mutating func step(_ script: inout Script) {
        switch script.number(below: 7) {
        case 0: beginLink()
        case 5: endpoint.finish()
        case 1: commit()
        case 2: receive(record(&script))
        case 3:
            let kind = script.choice(DeliveryRecord.Kind.allCases)
            guard let record = try? DeliveryRecord(kind, script.piece()) else { return }
            receive(record)
        case 4:
            while endpoint.take() != nil {}
            endpoint.confirm(through: endpoint.takenCount)
        default:
            while let record = endpoint.nextRecord(atMost: 500) {
                let again = must { try DeliveryRecord(record.kind, record.bytes) }
                precondition(again == record, "a record is read as another one")
            }
        }
    }

    private mutating func receive(_ record: DeliveryRecord) {
        commit()
        guard endpoint.wantsRecords else { return }
        do {
            try endpoint.receive(record, using: &generator)
        } catch {
            // What breaks a rule ends the link.
            endpoint.linkEnded()
        }
        let most = Self.limits.window + 2 * Self.limits.longest
        precondition(endpoint.heldBytes <= most, "held \(endpoint.heldBytes) bytes")
    }

    private func record(_ script: inout Script) -> DeliveryRecord {
        switch script.choice(DeliveryRecord.Kind.allCases) {
        case .resume:
            return .resume(
                Resume(
                    token: script.choice(identifiers), peerToken: script.choice(identifiers),
                    epoch: script.choice(identifiers), first: UInt64(script.byte()),
                    peerEpoch: script.choice(identifiers),
                    positions: Positions(
                        confirmed: UInt64(script.byte()), held: UInt64(script.byte()),
                        offset: Int(script.byte())),
                    credit: UInt64(script.byte()) * 100))
        case .chunk:
            let number = UInt64(script.byte())
            let offset = Int(script.byte())
            let length = Int(script.byte())
            return .chunk(
                Chunk(
                    number: number, offset: offset, length: length,
                    bytes: [UInt8](repeating: 1, count: Int(script.byte()))[...]))
        case .confirm: return .confirm(epoch: script.choice(identifiers), UInt64(script.byte()))
        case .epoch: return .epoch(script.choice(identifiers))
        case .credit: return .credit(UInt64(script.byte()))
        case .finish: return .finish(UInt64(script.byte()))
        }
    }
}
