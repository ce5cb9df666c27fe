import Testing

@testable import BLESecL2CAP

@Suite struct PHYAnswerTests {
    /// Command Complete for LE Read PHY of link 0x0E01: sends with LE 2M, receives with LE 1M.
    private let complete: [UInt8] = [0x04, 0x0E, 8, 1, 0x30, 0x20, 0, 0x01, 0x0E, 2, 1]

    @Test("an answer tells the PHYs of the link that was asked for")
    func answer() {
        #expect(PHYAnswer.command(0x0E01) == [0x01, 0x30, 0x20, 2, 0x01, 0x0E])
        let phys = LinkPHYs(sending: .le2M, receiving: .le1M)
        #expect(PHYAnswer(complete[...], to: 0x0E01) == .phys(phys))
        #expect(phys.description == "sends with LE 2M and receives with LE 1M")
        #expect(
            LinkPHYs(sending: .leCoded, receiving: .leCoded).description == "uses LE Coded")
        // The answer to another process.
        #expect(PHYAnswer(complete[...], to: 0x0E02) == .other)
        #expect(PHYAnswer(complete[...], to: 0x0F01) == .other)
    }

    @Test("an adapter that does not know the command, or the link, refuses")
    func refusals() {
        #expect(PHYAnswer([0x04, 0x0F, 4, 0x01, 1, 0x30, 0x20], to: 1) == .refused)
        #expect(PHYAnswer([0x04, 0x0F, 4, 0x01, 1, 0x31, 0x20], to: 1) == .other)
        #expect(PHYAnswer([0x04, 0x0F, 4, 0x00, 1, 0x30, 0x20], to: 1) == .other)
        #expect(PHYAnswer([0x04, 0x0E, 4, 1, 0x30, 0x20, 0x01], to: 1) == .refused)
        #expect(PHYAnswer([0x04, 0x0E, 4, 1, 0x31, 0x20, 0x01], to: 1) == .other)
        var unknownLink = complete
        unknownLink[6] = 0x02
        #expect(PHYAnswer(unknownLink[...], to: 0x0E01) == .refused)
        for value in [0, 4, 255] as [UInt8] {
            var invalid = complete
            invalid[9] = value
            #expect(PHYAnswer(invalid[...], to: 0x0E01) == .refused)
        }
    }

    @Test("a cut or changed packet does not crash the process, and only a whole answer tells PHYs")
    func hostile() {
        // The first nine bytes show that this link is meant: with them, a cut answer is a refusal.
        for length in 0..<complete.count {
            let answer = PHYAnswer(complete.prefix(length), to: 0x0E01)
            #expect(answer == (length < 9 ? .other : .refused))
        }
        for index in [0, 1, 4, 5] {
            for value in UInt8.min...UInt8.max where value != complete[index] {
                var changed = complete
                changed[index] = value
                let answer = PHYAnswer(changed[...], to: 0x0E01)
                #expect(answer == .other)
            }
        }
        // A slice that does not begin at 0.
        #expect(
            PHYAnswer(([9, 9] + complete)[2...], to: 0x0E01) == PHYAnswer(complete[...], to: 0x0E01)
        )
    }
}
