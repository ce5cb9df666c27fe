import BLESecChannelCore
import BLESecDelivery
import BLESecPrimitives
import Testing

@testable import BLESec

/// The records of delivery (`docs/delivery.md`) on channels: records that the rules allow, and
/// records that they forbid.
@Suite("Records of delivery on channels")
struct DeliveryRecordTests {
    /// An endpoint in memory, and what its program has sent and taken.
    private final class Side: DeliveryPort {
        var endpoint: DeliveryEndpoint
        var generator: SeededGenerator
        var sent: [[UInt8]] = []
        var taken: [[UInt8]] = []
        /// How many of the sent messages the peer has confirmed.
        var confirmed = 0

        /// How many times the session has asked for a record.
        var askedCount = 0

        init(seed: UInt64) {
            generator = SeededGenerator(seed: seed)
            endpoint = DeliveryEndpoint(using: &generator)
            commit()
        }

        func send(_ message: [UInt8]) {
            sent.append(message)
            _ = endpoint.send(message)
        }

        /// Takes and confirms what has arrived.
        func take() {
            while let message = endpoint.take() { taken.append(message) }
            endpoint.confirm(through: endpoint.takenCount)
            commit()
        }

        /// Whether the store is busy, so that changes stay uncommitted.
        var isStoreBusy = false

        func commit() {
            guard !isStoreBusy else { return }
            while endpoint.takeChanges() != nil { endpoint.didCommit() }
            while let event = endpoint.nextEvent() {
                if case .confirmed = event { confirmed += 1 }
            }
        }

        var wantsRecords: Bool { endpoint.wantsRecords }

        func nextRecord(
            atMost limit: Int?, onlyWhole: Bool, _ outlook: inout PortOutlook,
            confirms: (_ owed: UInt64) -> Bool
        ) -> DeliveryRecord? {
            askedCount += 1
            func next() -> DeliveryRecord? {
                commit()
                return endpoint.nextRecord(
                    atMost: limit, onlyWhole: onlyWhole, confirms: confirms)
            }
            let record = next() ?? next()
            outlook.mayHaveMore = endpoint.mayHaveMore
            return record
        }

        func receive(_ record: DeliveryRecord) throws(DeliveryError) -> ReceivedRecord {
            defer { commit() }
            let showsProgress = try endpoint.receive(record, using: &generator)
            commit()
            return ReceivedRecord(
                showsProgress: showsProgress, isMidMessage: endpoint.isMidMessage,
                wantsRecords: endpoint.wantsRecords, mayHaveAnswer: endpoint.mayHaveAnswer)
        }

        func didReceiveAll(_ effect: ReceivedRecord.Effect) {}
    }

    private func configurations() throws -> (ChannelConfiguration, ChannelConfiguration) {
        var (dialer, acceptor) = try Self.plainConfigurations()
        dialer.carriesDelivery = true
        acceptor.carriesDelivery = true
        return (dialer, acceptor)
    }

    private static func plainConfigurations() throws -> (ChannelConfiguration, ChannelConfiguration)
    {
        let pinned = try PinnedPeers()
        return (try pinned.configuration(.dialer), try pinned.configuration(.acceptor))
    }

    private func session(of machine: borrowing ChannelMachine) throws -> NegotiatedSession {
        let session = machine.session
        return try #require(session as? NegotiatedSession)
    }

    private func code(of machine: borrowing ChannelMachine) -> ChannelError.Code? {
        machine.outcome?.error.code
    }

    /// A new channel between two sides.
    private func channel(
        _ dialer: Side, _ acceptor: Side,
        configure: (inout ChannelConfiguration) -> Void = { _ in }
    ) throws -> MachinePair {
        var (dialing, accepting) = try configurations()
        configure(&dialing)
        configure(&accepting)
        let pair = try MachinePair(dialer: dialing, acceptor: accepting)
        pair.run()
        dialer.endpoint.linkBegan()
        acceptor.endpoint.linkBegan()
        try session(of: pair.dialer).use(dialer)
        pair.dialer.portDidResume(now: pair.now)
        try session(of: pair.acceptor).use(acceptor)
        pair.acceptor.portDidResume(now: pair.now)
        return pair
    }

    @Test("messages of random lengths arrive once and in order over channels that are cut anywhere")
    func cuts() throws {
        var generator = SeededGenerator(seed: 12)
        let (dialer, acceptor) = (Side(seed: 1), Side(seed: 2))
        func send() {
            for side in [dialer, acceptor] {
                for _ in 0..<Int.random(in: 0...3, using: &generator) {
                    let longest = [0, 1, 100, 20_000, 60_000].randomElement(using: &generator) ?? 0
                    let length = Int.random(in: 0...longest, using: &generator)
                    side.send((0..<length).map { _ in .random(in: 0...255, using: &generator) })
                }
            }
        }
        func take(_ pair: MachinePair) {
            dialer.take()
            acceptor.take()
            pair.dialer.portMayHaveRecords()
            pair.acceptor.portMayHaveRecords()
        }
        for _ in 0..<30 {
            send()
            let pair = try channel(dialer, acceptor)
            for step in 0..<Int.random(in: 0...25, using: &generator) {
                pair.step(Bool.random(using: &generator) ? .dialer : .acceptor, piece: 777)
                if step.isMultiple(of: 8) { send() }
                if Bool.random(using: &generator) { take(pair) }
            }
            for role in [ChannelRole.dialer, .acceptor] {
                let sdu = pair.take(role)
                let count = Int.random(in: 0...sdu.count, using: &generator)
                pair.deliver(Array(sdu.prefix(count)), to: role.peer)
            }
            #expect(code(of: pair.dialer) == nil && code(of: pair.acceptor) == nil)
        }
        let last = try channel(dialer, acceptor)
        for _ in 0..<2_000 {
            last.run(piece: 777)
            take(last)
        }
        last.passTime(.seconds(1))
        last.run()
        #expect(dialer.sent == acceptor.taken && acceptor.sent == dialer.taken)
        #expect(dialer.confirmed == dialer.sent.count)
        #expect(acceptor.confirmed == acceptor.sent.count)
    }

    @Test(
        "a channel ends if the last piece of a message is late, but not if every piece has come",
        arguments: [true, false])
    func lateChunk(isComplete: Bool) throws {
        let (dialer, acceptor) = (Side(seed: 13), Side(seed: 14))
        let pair = try channel(dialer, acceptor) { $0.timeouts.message = .seconds(1) }
        pair.run()
        dialer.send([UInt8](repeating: 1, count: 100_000))
        pair.dialer.portMayHaveRecords()
        var sdus: [[UInt8]] = []
        while case let sdu = pair.take(.dialer), !sdu.isEmpty { sdus.append(sdu) }
        for sdu in sdus.dropLast(isComplete ? 0 : 1) { pair.deliver(sdu, to: .acceptor) }
        pair.passTime(.milliseconds(900))
        #expect(code(of: pair.acceptor) == nil)
        pair.passTime(.milliseconds(200))
        #expect(code(of: pair.acceptor) == (isComplete ? nil : .timedOut))
    }

    @Test("a port is asked for records only after an event that may cause a record")
    func asksSeldom() throws {
        let (dialer, acceptor) = (Side(seed: 11), Side(seed: 12))
        let pair = try channel(dialer, acceptor)
        // The dialer's first message shows that the acceptor's `resume` has arrived. So the acceptor
        // may have more to send, and its port is asked again.
        dialer.send([0])
        pair.dialer.portMayHaveRecords()
        pair.run()
        var asked = (dialer.askedCount, acceptor.askedCount)
        for _ in 0..<5 { pair.run() }
        #expect(asked == (dialer.askedCount, acceptor.askedCount))
        dialer.send([1])
        pair.dialer.portMayHaveRecords()
        pair.run()
        // The dialer's port has said that nothing follows the message, and the message causes no
        // record of the acceptor.
        #expect((dialer.askedCount, acceptor.askedCount) == (asked.0 + 1, asked.1))
        asked = (dialer.askedCount, acceptor.askedCount)
        acceptor.take()
        pair.acceptor.portMayHaveRecords()
        pair.run()
        #expect(acceptor.askedCount == asked.1 + 1 && dialer.confirmed == 0)
        for _ in 0..<5 { pair.run() }
        #expect(acceptor.askedCount == asked.1 + 1)
        // The confirmation has waited, and leaves when it is due.
        pair.passTime(.seconds(1))
        pair.run()
        #expect(dialer.confirmed == 2)
    }

    @Test("the first record waits until the channel has a port, and the channel does not end")
    func waits() throws {
        let (dialing, accepting) = try configurations()
        let pair = try MachinePair(dialer: dialing, acceptor: accepting)
        pair.run()
        let (dialer, acceptor) = (Side(seed: 3), Side(seed: 4))
        dialer.send([1, 2, 3])
        dialer.endpoint.linkBegan()
        try session(of: pair.dialer).use(dialer)
        pair.dialer.portDidResume(now: pair.now)
        pair.run()
        #expect(!(try session(of: pair.acceptor).wantsBytes))
        acceptor.endpoint.linkBegan()
        try session(of: pair.acceptor).use(acceptor)
        pair.acceptor.portDidResume(now: pair.now)
        pair.run()
        acceptor.take()
        #expect(acceptor.taken == [[1, 2, 3]])
        #expect(try session(of: pair.acceptor).hasCarriedMessage)
        #expect(!(try session(of: pair.dialer).hasCarriedMessage))
        pair.acceptor.portMayHaveRecords()
        pair.run()
        pair.passTime(.seconds(1))
        pair.run()
        #expect(try session(of: pair.dialer).hasCarriedMessage)
    }

    @Test("records wait while the store commits, and are handled when it has committed")
    func busyStore() throws {
        let (dialer, acceptor) = (Side(seed: 7), Side(seed: 8))
        let pair = try channel(dialer, acceptor)
        acceptor.isStoreBusy = true
        dialer.send([1])
        dialer.send([2])
        pair.run()
        // The dialer's `resume` has been handled. The dialer's further records wait until the token
        // in this `resume` is committed.
        #expect(!(try session(of: pair.acceptor).wantsBytes))
        acceptor.isStoreBusy = false
        acceptor.commit()
        pair.acceptor.portDidResume(now: pair.now)
        acceptor.take()
        pair.run()
        acceptor.take()
        #expect(acceptor.taken == [[1], [2]])
    }

    @Test("a side that waits for its peer to end the link still reads the peer's end record")
    func waitsForEnd() throws {
        let (dialer, acceptor) = (Side(seed: 9), Side(seed: 10))
        let pair = try channel(dialer, acceptor)
        pair.run()
        acceptor.endpoint.linkEnded()
        pair.acceptor.portDidResume(now: pair.now)
        dialer.send([1])
        pair.dialer.end(.interrupted)
        pair.run()
        #expect(try session(of: pair.acceptor).peerEndReason == .interrupted)
    }

    @Test("a channel that carries a connection's messages takes no other message")
    func messages() throws {
        let (dialer, acceptor) = (Side(seed: 5), Side(seed: 6))
        let pair = try channel(dialer, acceptor)
        do throws(ChannelError) {
            _ = try pair.dialer.queue([1])
            Issue.record("a message was taken")
        } catch {
            #expect(error.code == .configuration)
        }
        pair.run()
        try session(of: pair.dialer).records.seal(.data, [1])
        pair.run()
        #expect(code(of: pair.acceptor) == .protocolViolation)
    }

    @Test(
        "a peer that does not offer the feature `delivery` is refused, in both roles",
        arguments: [true, false])
    func featureRequired(byDialer: Bool) throws {
        var (dialer, acceptor) = try configurations()
        if byDialer { acceptor.carriesDelivery = false } else { dialer.carriesDelivery = false }
        let pair = try MachinePair(dialer: dialer, acceptor: acceptor)
        pair.run()
        pair.passTime(.seconds(3))
        #expect(code(of: pair.dialer) == .noCommonProtocol)
        let isReady = pair.acceptor.isReady
        #expect(!isReady)
    }

    @Test("without the feature `delivery`, a record of delivery ends the channel")
    func unknownType() throws {
        let (dialing, accepting) = try Self.plainConfigurations()
        let pair = try MachinePair(dialer: dialing, acceptor: accepting)
        pair.run()
        let type = RecordType(rawValue: DeliveryRecord.Kind.credit.rawValue)
        try session(of: pair.dialer).records.seal(type, [0])
        pair.run()
        #expect(code(of: pair.acceptor) == .protocolViolation)
    }

    @Test("direct mode cannot carry records of delivery")
    func direct() throws {
        var (dialer, _) = try configurations()
        dialer.mode = .direct
        var machine = ChannelMachine(
            role: .dialer, configuration: dialer, maximumSDU: 4_096, now: 0)
        do throws(ChannelError) {
            try machine.begin()
            Issue.record("the channel has begun")
        } catch {
            #expect(error.code == .configuration)
        }
    }
}
