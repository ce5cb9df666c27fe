import BLESecDelivery
import Testing

@Suite("Credits")
struct CreditTests {
    @Test("with the greatest limits, a credit has at most 62 bits, whatever a peer announces")
    func greatestLimits() throws {
        var limits = DeliveryEndpoint.Limits()
        (limits.window, limits.longestMessage) = (.max, .max)
        var pair = EndpointPair(limits: limits)
        pair.connect()
        let record = try #require(pair.sides[0].nextRecord(atMost: nil))
        guard case .resume(let resume) = record else {
            Issue.record("no resume came first, but \(record)")
            return
        }
        #expect(resume.credit <= Resume.greatestNumber)
        try pair.sides[1].receive(record, using: &pair.generator)
        pair.commit()
        try pair.exchange()
        let length = Int(Resume.greatestNumber)
        #expect(throws: DeliveryError.tooLong(announced: length)) {
            try pair.sides[0].receive(
                .chunk(Chunk(number: 1, offset: 0, length: length, bytes: [1])),
                using: &pair.generator)
        }
    }

    @Test("a confirmation that could wait is sent before a credit, so the peer releases messages")
    func confirmationBesideCredit() throws {
        var limits = DeliveryEndpoint.Limits()
        limits.window = 10_000
        var pair = EndpointPair(limits: limits)
        pair.connect()
        try pair.exchange()
        for _ in 0..<7 { _ = pair.sides[0].send([UInt8](repeating: 1, count: 1_000)) }
        pair.commit()
        // The first exchange only makes the store mark the messages as possibly sent.
        for _ in 0..<2 { try pair.exchange() }
        let receiver = pair.sides[1]
        // The closure lets confirmations wait.
        func record() -> DeliveryRecord? { receiver.nextRecord(atMost: nil) { _ in false } }
        // A credit is sent when the program has taken half of the window: five messages.
        for count in 1...5 {
            #expect(record() == nil)
            _ = try #require(receiver.take())
            receiver.confirm(through: UInt64(count))
            pair.commit()
        }
        let confirmation = try #require(record())
        guard case .confirm(_, 5) = confirmation else {
            Issue.record("no confirmation of all five messages, but \(confirmation)")
            return
        }
        let credit = try #require(record())
        guard case .credit = credit else {
            Issue.record("no credit after the confirmation, but \(credit)")
            return
        }
        #expect(record() == nil)
    }
}
