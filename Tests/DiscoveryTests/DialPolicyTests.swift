import BLESecDiscovery
import BLESecL2CAP
import BLESecLinks
import BLESecTesting
import Testing

/// A policy with a clock that the test moves.
struct Street {
    var policy: DialPolicy
    var now = MonotonicTime(nanoseconds: 1_000_000_000_000)
    var generator = SeededGenerator(seed: 5)

    init(
        _ rules: DialPolicy.Rules = .atOnce, ownTag: UInt32? = nil, table: PeerTable = PeerTable()
    ) {
        policy = DialPolicy(
            rules: rules, ownTag: ownTag.map { Tag(rawValue: $0) }, table: table)
    }

    static func address(_ number: Int) -> DeviceAddress {
        let bytes = [0xC0, 0, 0, 0, UInt8(number >> 8 & 0xFF), UInt8(number & 0xFF)]
        return DeviceAddress(BluetoothAddress(bytes: bytes) ?? .any, .random)
    }

    static func candidate(_ number: Int, tag: UInt32? = 100) -> Candidate {
        Candidate(address: address(number), tag: tag.map { Tag(rawValue: $0) })
    }

    mutating func hear(_ number: Int, tag: UInt32? = 100, signal: Int? = -50) {
        let advertisement: ServiceAdvertisement =
            tag.map {
                .payload(Payload(capabilities: [], psm: nil, tag: Tag(rawValue: $0)))
            } ?? .serviceOnly
        policy.heard(
            Sighting(
                address: Self.address(number), advertisement: advertisement, signal: signal),
            at: now, using: &generator)
    }

    mutating func step() -> [Candidate] { policy.step(at: now, using: &generator).dials }

    mutating func next() -> Duration? {
        policy.step(at: now, using: &generator).next?.duration(since: now)
    }

    mutating func wait(_ duration: Duration) { now = now.advanced(by: duration) }

    mutating func end(_ address: DeviceAddress, _ course: LinkCourse = .good) {
        policy.linkEnded(with: address, course, at: now, using: &generator)
    }

    mutating func fail(_ candidate: Candidate) {
        policy.dialFailed(candidate, at: now, using: &generator)
    }
}

extension DialPolicy.Rules {
    /// Whoever was heard once is dialed.
    static var atOnce: DialPolicy.Rules {
        var rules = DialPolicy.Rules()
        rules.timesHeard = 1
        return rules
    }
}

@Suite("whom to dial, and when")
struct DialPolicyTests {
    let one = Street.candidate(1)

    @Test("a candidate is dialed once it was heard twice within 30 seconds")
    func heardTwice() {
        var street = Street(DialPolicy.Rules())
        street.hear(1)
        #expect(street.step() == [])
        street.wait(.seconds(31))
        street.hear(1)
        #expect(street.step() == [])
        street.wait(.seconds(29))
        street.hear(1)
        #expect(street.step() == [one])
        #expect(street.step() == [], "it is under way")
    }

    @Test("one that has proven itself is dialed when it is heard once")
    func provenIsKnown() {
        var street = Street(DialPolicy.Rules())
        street.hear(1)
        street.hear(1)
        #expect(street.step() == [one])
        street.policy.dialSucceeded(one, identity: "alice")
        street.end(one.address)
        street.wait(.seconds(40))
        #expect(street.step() == [])
        street.hear(1)
        #expect(street.step() == [one])
    }

    @Test("a weak signal is not dialed, one that is not known is")
    func signals() {
        var street = Street()
        street.hear(1, signal: -91)
        street.hear(2, signal: -90)
        street.hear(3, signal: nil)
        #expect(Set(street.step()) == [Street.candidate(2), Street.candidate(3)])
    }

    @Test("the lower tag dials at once, the higher one after 5 to 10 seconds")
    func whoDials() throws {
        var lower = Street(ownTag: 99)
        lower.hear(1)
        #expect(lower.step() == [one])
        var higher = Street(ownTag: 101)
        higher.hear(1)
        #expect(higher.step() == [])
        let next = higher.next()
        let wait = try #require(next)
        #expect((.seconds(5) ... .seconds(10)).contains(wait))
        higher.hear(1)
        #expect(higher.next() == wait, "being heard again does not put it off")
        higher.wait(wait - .milliseconds(1))
        #expect(higher.step() == [])
        higher.wait(.milliseconds(1))
        #expect(higher.step() == [one])
    }

    @Test("the higher tag does not dial when a link came meanwhile")
    func linkCame() {
        var street = Street(ownTag: 101)
        street.hear(1)
        #expect(street.step() == [])
        #expect(street.policy.accepted(from: one.address) == [])
        street.wait(.seconds(11))
        street.hear(1)
        #expect(street.step() == [])
    }

    @Test("one's own tag is not dialed, wherever it comes from")
    func self_() {
        var street = Street(ownTag: 100)
        street.hear(1)
        street.hear(2)
        street.wait(.seconds(20))
        #expect(street.step() == [])
        #expect(street.policy.table.count == 0)
    }

    @Test("accepting a link calls off the dial to that address, and to no other")
    func acceptCancels() {
        var street = Street()
        street.hear(1)
        street.hear(2)
        #expect(street.step().count == 2)
        #expect(street.policy.accepted(from: one.address) == [one])
        street.policy.dialCancelled(one)
        #expect(street.step() == [])
        street.policy.acceptFailed(from: one.address)
        #expect(street.step() == [one])
    }

    @Test("two tags of one address are never dialed at the same time")
    func oneDialAnAddress() {
        var street = Street()
        street.hear(1, tag: 1)
        street.hear(1, tag: 2)
        let dialed = street.step()
        #expect(dialed.count == 1)
        street.fail(dialed[0])
        let second = street.step()
        #expect(second.count == 1 && second != dialed)
    }

    @Test("who is linked under one address is not dialed under another")
    func sameIdentity() {
        var street = Street()
        for number in [1, 2] {
            street.hear(number)
            #expect(street.step() == [Street.candidate(number)])
            street.policy.dialSucceeded(Street.candidate(number), identity: "alice")
        }
        street.end(Street.address(2))
        street.hear(2)
        #expect(street.step() == [])
        street.end(Street.address(1))
        #expect(street.step().count == 1)
    }

    @Test("each failure makes the wait longer, up to a minute, and a good link forgets them")
    func backoff() {
        var street = Street()
        var waits: [Duration] = []
        for _ in 0..<9 {
            street.hear(1)
            #expect(street.step() == [one])
            street.fail(one)
            street.hear(1)
            let wait = street.next() ?? .zero
            waits.append(wait)
            // Nothing hurries it, and it is heard all the time.
            for _ in 0..<10 {
                street.wait(wait / 10 - .microseconds(1))
                street.hear(1)
                #expect(street.step() == [])
            }
            street.wait(.milliseconds(1))
        }
        for (index, wait) in waits.enumerated() {
            let bound = min(Duration.seconds(1 << index), .seconds(60))
            #expect((bound / 2...bound).contains(wait))
        }
        street.hear(1)
        #expect(street.step() == [one])
        street.policy.dialSucceeded(one, identity: "alice")
        street.end(one.address)
        street.hear(1)
        #expect(street.step() == [one])
        street.fail(one)
        street.hear(1)
        #expect((street.next() ?? .zero) <= .seconds(1))
    }

    @Test(
        "who proves itself and hangs up at once is dialed ever less often, but not if it brought something",
        arguments: [(LinkCourse.fruitless, 10...32), (.brief, 300...600)])
    func hangsUp(_ course: LinkCourse, _ expected: ClosedRange<Int>) {
        var street = Street()
        var dialed = 0
        for _ in 0..<600 {
            street.hear(1)
            for dial in street.step() {
                dialed += 1
                street.policy.dialSucceeded(dial, identity: "mallory")
                street.end(dial.address, course)
            }
            street.wait(.seconds(1))
        }
        #expect(expected.contains(dialed), "\(dialed) times in ten minutes")
    }

    @Test("there are no more links than the ceiling, those under way included")
    func ceiling() {
        var rules = DialPolicy.Rules.atOnce
        rules.links = 3
        rules.strangersAtOnce = 5
        var street = Street(rules)
        for number in 50...60 { _ = street.policy.accepted(from: Street.address(number)) }
        street.policy.acceptSucceeded(from: Street.address(50), identity: "a")
        for number in 1...9 { street.hear(number) }
        let dials = street.step()
        #expect(dials.count == 2)
        street.policy.dialSucceeded(dials[0], identity: "b")
        #expect(street.policy.readyLinks == 2)
        #expect(street.step() == [])
        street.end(Street.address(50))
        #expect(street.step().count == 1)
    }

    @Test("an identity that is linked is not dialed, whoever opened the link")
    func acceptedIdentity() {
        var street = Street()
        street.hear(1)
        #expect(street.step() == [one])
        street.policy.dialSucceeded(one, identity: "alice")
        street.end(one.address)
        let other = Street.address(2)
        _ = street.policy.accepted(from: other)
        street.policy.acceptSucceeded(from: other, identity: "alice")
        #expect(street.step() == [])
        street.end(other)
        #expect(street.step() == [], "it has to be heard again")
        street.hear(1)
        #expect(street.step() == [one])
    }

    @Test("a thousand strangers are dialed two at a time and twelve in a minute")
    func strangers() {
        var street = Street()
        var dialed = 0
        for second in 0..<60 {
            for number in 0..<17 { street.hear(second * 17 + number) }
            let dials = street.step()
            #expect(dials.count <= 2)
            dialed += dials.count
            for dial in dials { street.fail(dial) }
            #expect(street.policy.table.count <= street.policy.table.capacity)
            street.wait(.seconds(1))
        }
        #expect(dialed == 12)
    }

    @Test("who has proven itself is dialed before strangers, and outside their budget")
    func provenFirst() {
        var street = Street()
        street.hear(1)
        #expect(street.step() == [one])
        street.policy.dialSucceeded(one, identity: "alice")
        street.end(one.address)
        street.wait(.seconds(31))
        for number in 100..<140 {
            street.hear(number, signal: -30)
            for dial in street.step() { street.fail(dial) }
        }
        street.hear(200, signal: -20)
        street.hear(1, signal: -80)
        #expect(street.step() == [one])
    }

    @Test("with a new tag, one that has proven itself has a budget that strangers do not share")
    func newTag() {
        var street = Street()
        street.hear(1)
        #expect(street.step() == [one])
        street.policy.dialSucceeded(one, identity: "alice")
        street.end(one.address)
        var number = 100
        for second in 0..<3_600 {
            number += 1
            street.hear(number, signal: -30)
            if second % 15 == 0 { street.hear(1, tag: UInt32(1_000 + second / 900), signal: -80) }
            for dial in street.step() {
                if dial.address == one.address { return #expect(second < 15) }
                street.fail(dial)
            }
            street.wait(.seconds(1))
        }
        Issue.record("it was never dialed")
    }

    @Test("copies of an address that was proven are dialed twelve times in a minute at most")
    func copiedAddress() {
        var street = Street()
        street.hear(1)
        #expect(street.step() == [one])
        street.policy.dialSucceeded(one, identity: "alice")
        street.end(one.address)
        var dialed = 0
        for tag in 0..<590 as Range<UInt32> {
            street.hear(1, tag: 1_000 + tag)
            for dial in street.step() {
                dialed += 1
                street.fail(dial)
            }
            street.wait(.milliseconds(100))
        }
        #expect(dialed == 12)
    }

    @Test("a stranger has its chance in a crowd with a stronger signal, and the crowd's new ones")
    func crowd() {
        var street = Street()
        // Of some 20 that wait, 12 are dialed in a minute: not to be among them for an hour is a
        // matter of one in 10^16.
        for second in 0..<3_600 {
            for number in 100..<110 { street.hear(number, signal: -30) }
            if second % 6 == 0 { street.hear(1_000 + second, signal: -30) }
            if second % 15 == 0 { street.hear(1, signal: -80) }
            let dials = street.step()
            if dials.contains(one) { return }
            for dial in dials { street.fail(dial) }
            street.wait(.seconds(1))
        }
        Issue.record("it was not dialed in an hour")
    }

    @Test("who comes late to a full table is dialed as well")
    func lateToTheCrowd() {
        var street = Street(DialPolicy.Rules(), table: PeerTable(capacity: 8))
        let crowd = 1_000..<1_007
        for number in crowd { street.hear(number, signal: -30) }
        for second in 0..<3_600 {
            if second % 5 == 0 { for number in crowd { street.hear(number, signal: -30) } }
            if second % 32 == 0 { street.hear(5_000 + second, signal: -30) }
            if second % 15 == 0 { street.hear(1, signal: -60) }
            let dials = street.step()
            if dials.contains(one) { return }
            for dial in dials { street.fail(dial) }
            street.wait(.seconds(1))
        }
        Issue.record("it was not dialed in an hour")
    }

    @Test("the higher tag waits anew after a link")
    func turnAfterLink() {
        var street = Street(ownTag: 101)
        street.hear(1)
        #expect(street.step() == [])
        _ = street.policy.accepted(from: one.address)
        street.policy.acceptSucceeded(from: one.address, identity: "alice")
        for _ in 0..<4 {
            street.wait(.seconds(10))
            street.hear(1)
        }
        street.end(one.address)
        street.hear(1)
        #expect(street.step() == [])
        #expect((street.next() ?? .zero) >= .seconds(5))
    }

    @Test("who has proven itself and was not heard for an hour is a stranger again")
    func provenLongAgo() {
        var street = Street()
        for number in 0..<300 {
            let candidate = Street.candidate(number)
            street.hear(number)
            _ = street.step()
            street.policy.dialSucceeded(candidate, identity: "alice")
            street.end(candidate.address)
            street.wait(.seconds(20))
        }
        #expect(street.policy.table.count <= 181)
        street.wait(.seconds(3_600))
        _ = street.step()
        #expect(street.policy.table.count == 0)
    }

    @Test("a flood of forged tags does not push out who is heard again and again")
    func flood() {
        var street = Street()
        for number in 0..<1_000 {
            street.hear(7)
            for offset in 0..<10 {
                street.hear(1_000 + number * 10 + offset, tag: UInt32(number))
            }
            // Forged in its own name, too.
            street.hear(7, tag: UInt32(1_000 + number))
        }
        let table = street.policy.table
        #expect(table.count <= table.capacity)
        #expect(table.entries.count { $0.candidate.address == Street.address(7) } <= 4)
        #expect(table[Street.candidate(7)]?.timesHeard == 1_000)
    }

    @Test("an advertisement without its payload counts for the payload of its address")
    func parts() {
        var street = Street()
        street.hear(1, tag: nil)
        street.hear(1)
        street.hear(1, tag: nil)
        #expect(street.policy.table.count == 1)
        #expect(street.policy.table[one]?.timesHeard == 2)
    }

    @Test("who was not heard for a minute is forgotten, but for who has proven itself")
    func forgetting() {
        var street = Street()
        street.hear(1)
        street.hear(2)
        #expect(street.step().count == 2)
        street.policy.dialSucceeded(one, identity: "alice")
        street.fail(Street.candidate(2))
        street.wait(.seconds(61))
        _ = street.step()
        #expect(street.policy.table.entries.map(\.candidate) == [one])
    }
}

@Suite("PSMs that were read")
struct PSMCacheTests {
    @Test("are kept until they are forgotten, and no more than there is room for")
    func bounded() throws {
        var cache = PSMCache(capacity: 4)
        let psm = try PSM(0x80)
        for number in 0..<100 { cache[Street.candidate(number)] = psm }
        #expect((0..<100).count { cache[Street.candidate($0)] != nil } == 4)
        #expect(cache[Street.candidate(99)] == psm)
        cache[Street.candidate(99)] = nil
        #expect(cache[Street.candidate(99)] == nil)
        for number in 0..<100 { cache[Street.candidate(number % 2)] = psm }
        #expect((0..<100).count { cache[Street.candidate($0)] != nil } == 4)
    }
}
