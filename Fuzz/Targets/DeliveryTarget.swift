internal import BLESecDelivery
internal import BLESecPrimitives

extension FuzzTarget {
    /// Delivery over many links. Either two endpoints whose links are cut anywhere and whose stores
    /// commit late, or one endpoint and an authenticated peer that sends it arbitrary records. The
    /// programs send messages and use streams.
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
        // Events of two endpoints whose programs send messages.
        let talk: [UInt8] = (0..<12).flatMap { index -> [UInt8] in
            [0, index, 1, 40, 3, 4, 2, 200, 3, 4, 2, 255, 3, 4, 5, 6, 7]
        }
        // The hostile peer sends a `resume` record, or a `chunk` record.
        let resume: [UInt8] = [2, 0, 3, 1, 4, 1, 0, 0, 0, 0, 200, 100, 5, 5, 0, 5, 0]
        let chunk: [UInt8] = [2, 1, 1, 0, 20, 20]
        // Opens a stream, writes, reads, and ends it.
        func streams(_ side: UInt8) -> [UInt8] {
            [11, side, 0, 0, 11, side, 1, 0, 100, 12, 12, 12, 11, 1 - side, 7]
                + [11, 1 - side, 2, 0, 50, 11, 1 - side, 1, 0, 90, 12, 12]
                + [11, side, 2, 0, 200, 11, side, 3, 0, 12, 12]
        }
        // The peer opens a stream, fills it and ends it, and answers the endpoint's own stream.
        let open: [UInt8] = [7, 0, 0, 7, 1, 0, 100, 6]
        let records: [UInt8] =
            [
                2, 6, 1, 1, 2, 2, 7, 1, 0, 40, 7, 7, 7, 2, 1, 200, 2, 8, 1, 20, 1, 6, 2, 11, 0, 50,
                150,
            ]
            + [7, 3, 0, 6, 2, 12, 0, 2, 9, 1, 3, 2, 10, 0, 3, 2, 13, 9]
        // Both directions of the endpoint's own stream end, so the stream is over.
        let over: [UInt8] = [7, 3, 0, 6, 2, 12, 0, 2, 8, 0, 0, 7, 2, 0, 9, 1, 6]
        return [
            [0, 8] + talk, [0, 8] + talk + [8] + talk, [0, 8] + talk + [9, 8] + talk,
            [1, 1, 3, 0, 60] + resume + [1] + chunk + [4, 5, 2, 2, 4, 1, 1],
            [1, 0, 200, 1, 1] + resume + [2, 3, 3] + [2, 4, 9],
            [0, 8] + streams(0) + talk, [0, 8] + streams(1) + [8] + talk,
            [0, 8] + streams(0) + streams(1) + [9, 8] + talk,
            [1, 0] + open + resume + [1, 6] + records + [0] + resume + [1, 6] + records,
            [1, 0] + open + resume + [1, 6] + over + [0] + resume + [1, 6],
        ]
    }
}

/// Two endpoints, their programs, and the records under way between them.
private struct DeliveryScene {
    private struct Side {
        var endpoint: DeliveryEndpoint
        /// The lengths of the messages that the program has sent.
        var sent: [Int] = []
        /// How many of the peer's messages the program has taken.
        var taken = 0
        /// How many of the program's messages are confirmed.
        var confirmed = 0
        var isCommitting = false
        var streams = StreamProgram()
        /// The records that were sent and have not arrived, as bytes.
        var underWay: [(DeliveryRecord.Kind, [UInt8])] = []

        mutating func useStreams(_ script: inout Script) { streams.step(&endpoint, &script) }
        mutating func settleStreams() { streams.settle(&endpoint) }
    }

    private var generator = SeededGenerator(seed: 1)
    private var sides: [Side] = []

    init() {
        for _ in 0..<2 {
            sides.append(
                Side(endpoint: DeliveryEndpoint(limits: StreamProgram.limits, using: &generator)))
        }
    }

    mutating func step(_ script: inout Script) {
        switch script.number(below: 14) {
        case 0: send(0, Int(script.byte()) * 10)
        case 1: send(1, Int(script.byte()) * 10)
        case 2: pass(script.number(below: 2), atMost: Int(script.byte()) * 4 + 1)
        case 3: deliver(from: 0)
        case 4: deliver(from: 1)
        case 5: take(script.number(below: 2))
        case 6: beginCommit(script.number(below: 2))
        case 7: endCommit(script.number(below: 2))
        case 8: cut(beginsNewLink: true)
        case 9: cut(beginsNewLink: false)
        case 10: sides[script.number(below: 2)].endpoint.finish()
        case 11:
            let side = script.number(below: 2)
            sides[side].useStreams(&script)
            for side in 0...1 { checkStreams(side) }
        default:
            for side in 0...1 {
                beginCommit(side)
                endCommit(side)
                pass(side, atMost: 500)
                deliver(from: side)
                take(side)
            }
        }
    }

    private mutating func send(_ side: Int, _ length: Int) {
        guard !sides[side].endpoint.hasFinished else { return }
        sides[side].sent.append(length)
        let mark = UInt8(truncatingIfNeeded: sides[side].sent.count)
        _ = sides[side].endpoint.send([UInt8](repeating: mark, count: length))
    }

    /// Moves an endpoint's next record to the link.
    private mutating func pass(_ side: Int, atMost limit: Int) {
        guard let record = sides[side].endpoint.nextRecord(atMost: limit) else { return }
        sides[side].underWay.append((record.kind, record.bytes))
    }

    private mutating func deliver(from side: Int) {
        guard !sides[side].underWay.isEmpty, sides[1 - side].endpoint.wantsRecords else { return }
        let (kind, bytes) = sides[side].underWay.removeFirst()
        must {
            let record = try DeliveryRecord(kind, bytes)
            try sides[1 - side].endpoint.receive(record, using: &generator)
        }
    }

    private mutating func take(_ side: Int) {
        while let message = sides[side].endpoint.take() {
            precondition(
                sides[side].taken < sides[1 - side].sent.count, "more messages than were sent")
            let length = sides[1 - side].sent[sides[side].taken]
            sides[side].taken += 1
            let mark = UInt8(truncatingIfNeeded: sides[side].taken)
            precondition(message == [UInt8](repeating: mark, count: length), "lost or out of order")
        }
        sides[side].endpoint.confirm(through: sides[side].endpoint.takenCount)
    }

    /// Checks that a program has read only what the other program has written, and has reached the
    /// end of a stream only after all of the stream's bytes.
    private func checkStreams(_ side: Int) {
        for use in sides[side].streams.uses.values {
            precondition(!use.isWrong, "a byte was read that differs from the written one")
            let peerUses = sides[1 - side].streams.uses.values
            guard let peer = peerUses.first(where: { use.isPeer(of: $0) }) else { continue }
            precondition(
                use.readCount <= peer.writtenCount, "more bytes were read than were written")
            precondition(
                !use.isAtEnd || peer.isFinished && use.readCount == peer.writtenCount,
                "the end of a stream was read before all of its bytes")
        }
    }

    private mutating func beginCommit(_ side: Int) {
        if !sides[side].isCommitting, sides[side].endpoint.takeChanges() != nil {
            sides[side].isCommitting = true
        }
    }

    private mutating func endCommit(_ side: Int) {
        guard sides[side].isCommitting else { return }
        sides[side].isCommitting = false
        sides[side].endpoint.didCommit()
        while let event = sides[side].endpoint.nextEvent() {
            if event == .finished {
                precondition(sides[1 - side].endpoint.hasReachedPeerEnd, "finished, but not taken")
                continue
            }
            guard case .confirmed(let id) = event else {
                fatalError("\(event), although no state is lost")
            }
            sides[side].confirmed += 1
            precondition(id == UInt64(sides[side].confirmed), "confirmed out of order")
            precondition(sides[side].confirmed <= sides[1 - side].taken, "confirmed, but not taken")
        }
    }

    /// Cuts the link: the records under way are lost. If `beginsNewLink`, both sides begin to use a
    /// new link; otherwise they have none.
    private mutating func cut(beginsNewLink: Bool) {
        for side in 0...1 {
            sides[side].underWay = []
            if beginsNewLink {
                sides[side].endpoint.linkBegan(side == 0 ? .lower : .higher)
            } else {
                sides[side].endpoint.linkEnded()
            }
        }
    }

    /// Begins a last link, and checks that everything arrives and is confirmed over it.
    mutating func settle() {
        cut(beginsNewLink: true)
        for side in 0...1 { sides[side].endpoint.finish() }
        var rounds = 0
        while !sides.allSatisfy(\.endpoint.hasToldPeerOfCompletion) {
            rounds += 1
            precondition(rounds < 100_000, "no progress")
            for side in 0...1 {
                sides[side].settleStreams()
                checkStreams(side)
                beginCommit(side)
                endCommit(side)
                pass(side, atMost: 700)
                deliver(from: side)
                take(side)
            }
        }
    }
}

/// A program that opens and uses streams. The value of each byte that it writes is the lower eight
/// bits of the byte's offset in the stream.
private struct StreamProgram {
    /// A stream as the program uses it: what the program has written, and what it has read.
    struct Use {
        var label: String
        var isOwn: Bool
        var writtenCount = 0
        var readCount = 0
        var isFinished = false
        var isAtEnd = false
        /// Whether a byte that was read does not have the value of its offset.
        var isWrong = false

        /// Whether `other` is the other side's use of the same stream.
        func isPeer(of other: Use) -> Bool { label == other.label && isOwn != other.isOwn }
    }

    /// Small bounds, so that a short script reaches them.
    static let limits: DeliveryEndpoint.Limits = {
        var limits = DeliveryEndpoint.Limits()
        limits.window = 4_000
        limits.longestMessage = 10_000
        limits.streams.streams = 3
        limits.streams.waiting = 2
        limits.streams.window = 300
        return limits
    }()

    /// The streams that the program has not dropped.
    var uses: [Streams.Handle: Use] = [:]
    private var openedCount = 0

    mutating func step(_ endpoint: inout DeliveryEndpoint, _ script: inout Script) {
        let kind = script.number(below: 8)
        if kind == 0 { return open(&endpoint, script.choice(FramePriority.allCases)) }
        if kind == 7 { return accept(&endpoint) }
        let handles = uses.keys.sorted()
        guard !handles.isEmpty else { return }
        let handle = script.choice(handles)
        switch kind {
        case 1: write(&endpoint, handle, Int(script.byte()) * 2)
        case 2: read(&endpoint, handle, Int(script.byte()) + 1)
        case 3: finish(&endpoint, handle)
        case 4: endpoint.streams.reset(handle, code: 4)
        case 5: endpoint.streams.stop(handle, code: 5)
        default: drop(&endpoint, handle)
        }
        check(endpoint)
    }

    private mutating func open(_ endpoint: inout DeliveryEndpoint, _ priority: FramePriority) {
        guard endpoint.streams.canOpen, !endpoint.hasFinished else { return }
        openedCount += 1
        let label = "\(openedCount)"
        uses[endpoint.streams.open(label, priority)] = Use(label: label, isOwn: true)
    }

    private mutating func accept(_ endpoint: inout DeliveryEndpoint) {
        guard let (handle, label, _) = endpoint.streams.accept() else { return }
        precondition(
            uses.updateValue(Use(label: label, isOwn: false), forKey: handle) == nil,
            "a stream was accepted twice")
    }

    private mutating func write(
        _ endpoint: inout DeliveryEndpoint, _ handle: Streams.Handle, _ count: Int
    ) {
        guard var use = uses[handle], !endpoint.streams.hasFinished(handle) else { return }
        let bytes = (0..<count).map { UInt8(truncatingIfNeeded: use.writtenCount + $0) }
        guard let rest = try? endpoint.streams.write(bytes[...], to: handle) else { return }
        use.writtenCount += count - rest.count
        uses[handle] = use
    }

    private mutating func read(
        _ endpoint: inout DeliveryEndpoint, _ handle: Streams.Handle, _ most: Int
    ) {
        guard var use = uses[handle] else { return }
        do {
            if let bytes = try endpoint.streams.read(handle, atMost: most) {
                precondition(bytes.count <= most, "more bytes than requested")
                for (index, byte) in bytes.enumerated()
                where byte != UInt8(truncatingIfNeeded: use.readCount + index) {
                    use.isWrong = true
                }
                use.readCount += bytes.count
            } else {
                use.isAtEnd = true
            }
        } catch {
            precondition(endpoint.streams.canRead(handle), "a read fails, but canRead is false")
        }
        uses[handle] = use
    }

    private mutating func finish(_ endpoint: inout DeliveryEndpoint, _ handle: Streams.Handle) {
        guard !endpoint.streams.hasFinished(handle) else { return }
        endpoint.streams.finish(handle)
        uses[handle]?.isFinished = true
    }

    private mutating func drop(_ endpoint: inout DeliveryEndpoint, _ handle: Streams.Handle) {
        endpoint.streams.release(handle)
        uses[handle] = nil
    }

    /// Drops the streams that ended because the peer has lost its state.
    mutating func dropLost(_ endpoint: inout DeliveryEndpoint) {
        _ = endpoint.streams.takeTouched()
        for handle in uses.keys {
            do {
                _ = try endpoint.streams.write([], to: handle)
            } catch {
                if error == .sessionLost { drop(&endpoint, handle) }
            }
        }
        check(endpoint)
    }

    /// Ends every stream, and reads it to its end.
    mutating func settle(_ endpoint: inout DeliveryEndpoint) {
        accept(&endpoint)
        for handle in uses.keys.sorted() {
            finish(&endpoint, handle)
            read(&endpoint, handle, 100)
        }
    }

    /// Checks the bounds on what an endpoint keeps, if its program drops lost streams. Each side
    /// may have opened `streams` streams, and each direction of a stream keeps at most one window.
    private func check(_ endpoint: DeliveryEndpoint) {
        let (streams, window) = (Self.limits.streams.streams, Self.limits.streams.window)
        precondition(endpoint.streams.openCount <= 2 * streams, "too many streams")
        let kept = endpoint.streams.keptBytes
        precondition(kept <= 2 * 2 * streams * window, "kept \(kept) bytes of streams")
    }
}

/// An endpoint with messages to send, and a peer that sends it arbitrary records. These records may
/// contain the endpoint's own identifiers.
private struct HostilePeerScene {
    private var generator = SeededGenerator(seed: 2)
    private static let limits = StreamProgram.limits
    private var endpoint: DeliveryEndpoint
    private var identifiers: [Identifier]
    private var streams = StreamProgram()

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
        endpoint.linkBegan(.lower)
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
        switch script.number(below: 8) {
        case 0: beginLink()
        case 7: streams.step(&endpoint, &script)
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
                precondition(again == record, "a record differs after writing and reading")
            }
        }
    }

    private mutating func receive(_ record: DeliveryRecord) {
        commit()
        guard endpoint.wantsRecords else { return }
        do {
            try endpoint.receive(record, using: &generator)
        } catch {
            // A record that breaks a rule ends the link.
            endpoint.linkEnded()
        }
        let most = Self.limits.window + 2 * Self.limits.longestMessage
        precondition(endpoint.heldBytes <= most, "held \(endpoint.heldBytes) bytes")
        streams.dropLost(&endpoint)
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
                    credit: UInt64(script.byte()) * 100, streams: summary(&script)))
        case .chunk:
            let number = UInt64(script.byte())
            let offset = Int(script.byte())
            let length = Int(script.byte())
            return .chunk(
                Chunk(
                    number: number, offset: offset, length: length,
                    bytes: [UInt8](repeating: 1, count: Int(script.byte()))))
        case .confirm:
            return .confirm(epoch: script.choice(identifiers), through: UInt64(script.byte()))
        case .epoch: return .epoch(script.choice(identifiers))
        case .credit: return .credit(UInt64(script.byte()))
        case .finish: return .finish(number: UInt64(script.byte()))
        case .open:
            return .stream(
                .open(
                    id: id(&script), script.choice(FramePriority.allCases),
                    label: "\(script.byte())"))
        case .bytes:
            return .stream(
                .bytes(
                    id: id(&script), offset: number(&script),
                    [UInt8](repeating: 1, count: Int(script.byte()))[...]))
        case .fin: return .stream(.fin(id: id(&script), size: number(&script)))
        case .reset: return .stream(.reset(id: id(&script), code: 7))
        case .stop: return .stream(.stop(id: id(&script), code: 8))
        case .limit:
            return .stream(
                .limit(id: id(&script), received: number(&script), limit: number(&script)))
        case .done: return .stream(.done(id: id(&script)))
        case .streams: return .stream(.streams(limit: number(&script)))
        }
    }

    private func summary(_ script: inout Script) -> StreamSummary {
        var summary = StreamSummary(
            window: number(&script), firstLimit: number(&script),
            peerToken: script.choice(identifiers), opened: UInt64(script.number(below: 16)),
            limit: number(&script))
        for _ in 0..<script.number(below: 8) {
            let id = id(&script)
            let progress: StreamSummary.Progress =
                switch script.number(below: 3) {
                case 0: .receiving(count: number(&script), limit: number(&script))
                case 1: .complete
                default: .done
                }
            summary.entries.append(StreamSummary.Entry(id: id, progress))
        }
        return summary
    }

    /// A stream number below 32, so that records of a short script often name the same stream.
    private func id(_ script: inout Script) -> UInt64 { UInt64(script.number(below: 32)) }

    /// Mostly an even number below 500; otherwise one of the six greatest offsets.
    private func number(_ script: inout Script) -> UInt64 {
        let byte = script.byte()
        return byte < 250 ? UInt64(byte) * 2 : StreamRecord.greatestOffset - UInt64(255 - byte)
    }
}
