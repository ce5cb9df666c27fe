import BLESecDelivery
import Testing

@Suite("Progress")
struct ProgressTests {
    @Test("a program that takes or confirms a message, or reads from a stream, makes progress")
    func program() throws {
        var pair = EndpointPair()
        pair.connect()
        _ = pair.sides[0].send([1])
        let stream = pair.sides[0].streams.open("", .normal)
        _ = try pair.sides[0].streams.write([1, 2], to: stream)
        pair.commit()
        for _ in 0..<3 { try pair.exchange() }
        let receiver = pair.sides[1]
        let next = receiver.streams.accept()
        let accepted = try #require(next)
        var before = receiver.progressCount
        func expectProgress() {
            #expect(receiver.progressCount > before)
            before = receiver.progressCount
        }
        #expect(receiver.take() == [1])
        expectProgress()
        receiver.confirm(through: 1)
        expectProgress()
        for byte: UInt8 in [1, 2] {
            #expect(try receiver.streams.read(accepted.handle, atMost: 1) == [byte])
            expectProgress()
        }
        #expect(receiver.take() == nil)
        receiver.confirm(through: 1)
        #expect(try receiver.streams.read(accepted.handle, atMost: 1) == [])
        #expect(receiver.progressCount == before)
    }

    /// Begins a link, passes both `resume`, and returns the next record of side 0: a part of its
    /// message.
    private func nextPart(_ pair: inout EndpointPair) throws -> DeliveryRecord {
        pair.connect()
        for side in 0...1 {
            let resume = try #require(pair.sides[side].nextRecord(atMost: 1_000))
            try pair.sides[1 - side].receive(resume, using: &pair.generator)
            pair.commit()
        }
        var part = pair.sides[0].nextRecord(atMost: 1_000)
        // The first call may only have made the store mark the message.
        pair.commit()
        if part == nil { part = pair.sides[0].nextRecord(atMost: 1_000) }
        return try #require(part)
    }

    @Test("what is sent again over another link is no progress, except to a new peer instance")
    func sentAgain() throws {
        var pair = EndpointPair()
        let sender = pair.sides[0]
        _ = sender.send([UInt8](repeating: 1, count: 3_000))
        var before = sender.progressCount
        func expectProgress(_ isExpected: Bool) {
            #expect((sender.progressCount > before) == isExpected)
            before = sender.progressCount
        }
        // No part arrives.
        _ = try nextPart(&pair)
        expectProgress(true)
        _ = try nextPart(&pair)
        expectProgress(false)
        _ = sender.nextRecord(atMost: 1_000)
        expectProgress(true)
        pair.sides[1] = DeliveryEndpoint(using: &pair.generator)
        pair.commit()
        _ = try nextPart(&pair)
        expectProgress(true)
    }

    @Test("a part of a message that the receiver has dropped is progress again on both sides")
    func dropped() throws {
        var pair = EndpointPair()
        let (sender, receiver) = (pair.sides[0], pair.sides[1])
        _ = sender.send([UInt8](repeating: 1, count: 3_000))
        let part = try nextPart(&pair)
        #expect(try receiver.receive(part, using: &pair.generator))
        pair.commit()
        // On the next link, the sender learns that the part has arrived.
        _ = try nextPart(&pair)
        receiver.dropLink()
        let before = sender.progressCount
        let samePart = try nextPart(&pair)
        #expect(sender.progressCount > before)
        #expect(try receiver.receive(samePart, using: &pair.generator))
    }

    @Test("a part that the receiver has dropped before it told the sender is no progress again")
    func droppedUntold() throws {
        var pair = EndpointPair()
        let receiver = pair.sides[1]
        _ = pair.sides[0].send([UInt8](repeating: 1, count: 3_000))
        for isFirstTime in [true, false, false] {
            let part = try nextPart(&pair)
            let sentBefore = pair.sides[0].progressCount
            #expect(try receiver.receive(part, using: &pair.generator) == isFirstTime)
            #expect(pair.sides[0].progressCount == sentBefore)
            pair.commit()
            receiver.dropLink()
        }
    }

    @Test("a resume shows progress if the peer has confirmed more, or received more of a stream")
    func reported() throws {
        var pair = EndpointPair()
        pair.connect()
        let (sender, receiver) = (pair.sides[0], pair.sides[1])
        _ = sender.send([1])
        let stream = sender.streams.open("", .normal)
        pair.commit()
        for _ in 0..<3 { try pair.exchange() }
        func progressOfResume() throws -> Bool {
            pair.connect()
            let resume = try #require(receiver.nextRecord(atMost: 1_000))
            let showsProgress = try sender.receive(resume, using: &pair.generator)
            pair.commit()
            return showsProgress
        }
        #expect(receiver.take() == [1])
        receiver.confirm(through: 1)
        pair.commit()
        #expect(try progressOfResume())
        #expect(try !progressOfResume())
        pair.connect()
        for _ in 0..<3 { try pair.exchange() }
        _ = try sender.streams.write([1, 2], to: stream)
        let record = try #require(sender.nextRecord(atMost: 1_000))
        _ = try receiver.receive(record, using: &pair.generator)
        pair.commit()
        #expect(try progressOfResume())
        #expect(try !progressOfResume())
    }
}
