import BLESecDiscovery
import BLESecL2CAP
import BLESecLinks
import BLESecTesting
import Testing

/// A policy with a manual clock.
struct PolicyRun {
    var policy: DialPolicy
    var now = MonotonicTime(nanoseconds: 1_000_000_000_000)
    var generator = SeededGenerator(seed: 5)

    init(
        _ rules: DialPolicy.Rules = .heardOnce, ownTag: UInt32? = nil,
        table: PeerTable = PeerTable()
    ) {
        policy = DialPolicy(
            rules: rules, ownTag: ownTag.map { AdvertisementTag(rawValue: $0) }, table: table)
    }

    static func address(_ number: Int) -> DeviceAddress {
        let bytes = [0xC0, 0, 0, 0, UInt8(number >> 8 & 0xFF), UInt8(number & 0xFF)]
        return DeviceAddress(BluetoothAddress(bytes: bytes) ?? .any, .random)
    }

    static func candidate(_ number: Int, tag: UInt32? = 100) -> Candidate {
        Candidate(address: address(number), tag: tag.map { AdvertisementTag(rawValue: $0) })
    }

    mutating func hear(_ number: Int, tag: UInt32? = 100, signal: Int? = -50) {
        let advertisement: ServiceAdvertisement =
            tag.map {
                .payload(
                    AdvertisementPayload(
                        capabilities: [], psm: nil, tag: AdvertisementTag(rawValue: $0)))
            } ?? .serviceOnly
        policy.heard(
            Sighting(address: Self.address(number), advertisement: advertisement, signal: signal),
            at: now, using: &generator)
    }

    mutating func step() -> [Candidate] { policy.step(at: now, using: &generator).dials }

    /// The time until the policy wants to be called again.
    mutating func untilNextStep() -> Duration? {
        policy.step(at: now, using: &generator).next?.duration(since: now)
    }

    mutating func wait(_ duration: Duration) { now = now.advanced(by: duration) }

    mutating func endLink(_ address: DeviceAddress, _ outcome: LinkOutcome = .stable) {
        policy.linkEnded(with: address, outcome, at: now, using: &generator)
    }

    /// Reports a collision; returns whether the dial may be repeated at once.
    mutating func collide(_ candidate: Candidate) -> Bool { policy.dialCollided(candidate) }

    mutating func failDial(_ candidate: Candidate) {
        policy.dialFailed(candidate, at: now, using: &generator)
    }
}

extension DialPolicy.Rules {
    /// Rules that dial a candidate that was heard once.
    static var heardOnce: DialPolicy.Rules {
        var rules = DialPolicy.Rules()
        rules.timesHeard = 1
        return rules
    }
}

@Suite("Which candidates are dialed, and when")
struct DialPolicyTests {
    let candidate1 = PolicyRun.candidate(1)

    @Test("a backoff waits between zero and its longest wait, whatever its durations are")
    func extremeBackoffs() {
        var generator = SeededGenerator(seed: 6)
        let durations: [Duration] = [
            .seconds(Int64.min), .nanoseconds(-1), .zero, .nanoseconds(1), .seconds(Int64.max),
            .seconds(1e20),
        ]
        for first in durations {
            for most in durations {
                for count in [0, 1, 2, 40, .max] {
                    let wait = Backoff(first: first, most: most)
                        .delay(afterFailures: count, using: &generator)
                    #expect(wait >= .zero && wait <= max(most, .zero))
                }
            }
        }
    }

    @Test("an address is not dialed while its link is released, nor after that until it is heard")
    func release() {
        var run = PolicyRun(.heardOnce)
        run.hear(1)
        _ = run.policy.accepted(from: candidate1.address)
        run.policy.acceptFailed(from: candidate1.address)
        run.policy.releaseBegan(candidate1.address)
        run.hear(1)
        #expect(run.step() == [])
        run.policy.releaseEnded(candidate1.address)
        #expect(run.step() == [], "it was last heard before the link was down")
        run.hear(1)
        #expect(run.step() == [candidate1])
    }

    @Test("a dial that collided with this side's scan is repeated at once, at most twice in a row")
    func collision() {
        var run = PolicyRun(.heardOnce)
        run.hear(1)
        expectTwoRepeats(&run)
        #expect(run.step() == [])
        run.wait(.seconds(2))
        run.hear(1)
        #expect(run.step() == [candidate1])
        #expect(run.collide(candidate1) == true, "a failure restarts the count")
    }

    /// Expects a dial and two repeats, each after a collision, and none after the third collision.
    /// Then reports the dial as failed.
    private func expectTwoRepeats(_ run: inout PolicyRun) {
        #expect(run.step() == [candidate1])
        for _ in 1...2 {
            #expect(run.collide(candidate1) == true)
            #expect(run.step() == [candidate1])
        }
        #expect(run.collide(candidate1) == false)
        run.failDial(candidate1)
    }

    @Test("the side with the higher tag, too, repeats a dial at once after a collision")
    func collisionAfterWait() {
        var run = PolicyRun(ownTag: 101)
        run.hear(1)
        #expect(run.step() == [])
        run.wait(.seconds(10))
        expectTwoRepeats(&run)
        run.wait(.seconds(2))
        run.hear(1)
        #expect(run.step() == [], "after a failure it waits again")
        run.wait(.seconds(10))
        #expect(run.step() == [candidate1])
    }

    @Test("a candidate is dialed once it has been heard twice within 30 seconds")
    func heardTwice() {
        var run = PolicyRun(DialPolicy.Rules())
        run.hear(1)
        #expect(run.step() == [])
        run.wait(.seconds(31))
        run.hear(1)
        #expect(run.step() == [])
        run.wait(.seconds(29))
        run.hear(1)
        #expect(run.step() == [candidate1])
        #expect(run.step() == [], "its dial is under way")
    }

    @Test("a candidate that has proven its identity is dialed when it is heard once")
    func provenHeardOnce() {
        var run = PolicyRun(DialPolicy.Rules())
        run.hear(1)
        run.hear(1)
        #expect(run.step() == [candidate1])
        run.policy.dialSucceeded(candidate1, identity: "alice")
        run.endLink(candidate1.address)
        run.wait(.seconds(40))
        #expect(run.step() == [])
        run.hear(1)
        #expect(run.step() == [candidate1])
    }

    @Test("a candidate with a weak signal is not dialed, and one with an unknown signal is")
    func signals() {
        var rules = DialPolicy.Rules.heardOnce
        rules.unprovenAtOnce = 3
        var run = PolicyRun(rules)
        run.hear(1, signal: -91)
        run.hear(2, signal: -90)
        run.hear(3, signal: nil)
        #expect(
            Set(run.step()) == [PolicyRun.candidate(2), PolicyRun.candidate(3)])
    }

    @Test("the side with the lower tag dials at once, the other side after 5 to 10 seconds")
    func whoDials() throws {
        var lower = PolicyRun(ownTag: 99)
        lower.hear(1)
        #expect(lower.step() == [candidate1])
        var higher = PolicyRun(ownTag: 101)
        higher.hear(1)
        #expect(higher.step() == [])
        let next = higher.untilNextStep()
        let wait = try #require(next)
        #expect((.seconds(5) ... .seconds(10)).contains(wait))
        higher.hear(1)
        #expect(higher.untilNextStep() == wait, "another advertisement does not postpone the dial")
        higher.wait(wait - .milliseconds(1))
        #expect(higher.step() == [])
        higher.wait(.milliseconds(1))
        #expect(higher.step() == [candidate1])
    }

    @Test("the side with the higher tag does not dial if it has accepted a link meanwhile")
    func linkCame() {
        var run = PolicyRun(ownTag: 101)
        run.hear(1)
        #expect(run.step() == [])
        #expect(run.policy.accepted(from: candidate1.address) == [])
        run.wait(.seconds(11))
        run.hear(1)
        #expect(run.step() == [])
    }

    @Test("an advertisement with this side's own tag is ignored, whatever its address")
    func ownTag() {
        var run = PolicyRun(ownTag: 100)
        run.hear(1)
        run.hear(2)
        run.wait(.seconds(20))
        #expect(run.step() == [])
        #expect(run.policy.table.count == 0)
    }

    @Test("accepting a link cancels the dial to that address only")
    func acceptCancels() {
        var run = PolicyRun()
        run.hear(1)
        run.hear(2)
        #expect(run.step().count == 2)
        #expect(run.policy.accepted(from: candidate1.address) == [candidate1])
        run.policy.dialCancelled(candidate1)
        #expect(run.step() == [])
        run.policy.acceptFailed(from: candidate1.address)
        #expect(run.step() == [candidate1])
    }

    @Test("two tags at one address are never dialed at the same time")
    func oneDialPerAddress() {
        var run = PolicyRun()
        run.hear(1, tag: 1)
        run.hear(1, tag: 2)
        let dialed = run.step()
        #expect(dialed.count == 1)
        run.failDial(dialed[0])
        let second = run.step()
        #expect(second.count == 1 && second != dialed)
    }

    @Test("a peer that is linked at one address is not dialed at another")
    func sameIdentity() {
        var run = PolicyRun()
        for number in [1, 2] {
            run.hear(number)
            #expect(run.step() == [PolicyRun.candidate(number)])
            run.policy.dialSucceeded(PolicyRun.candidate(number), identity: "alice")
        }
        run.endLink(PolicyRun.address(2))
        run.hear(2)
        #expect(run.step() == [])
        run.endLink(PolicyRun.address(1))
        #expect(run.step().count == 1)
    }

    @Test("each failure lengthens the wait, up to a minute, and a stable link resets it")
    func backoff() {
        var run = PolicyRun()
        var waits: [Duration] = []
        for _ in 0..<9 {
            run.hear(1)
            #expect(run.step() == [candidate1])
            run.failDial(candidate1)
            run.hear(1)
            let wait = run.untilNextStep() ?? .zero
            waits.append(wait)
            // Hearing the candidate again does not shorten the wait.
            for _ in 0..<10 {
                run.wait(wait / 10 - .microseconds(1))
                run.hear(1)
                #expect(run.step() == [])
            }
            run.wait(.milliseconds(1))
        }
        for (index, wait) in waits.enumerated() {
            let bound = min(Duration.seconds(1 << index), .seconds(60))
            #expect((bound / 2...bound).contains(wait))
        }
        run.hear(1)
        #expect(run.step() == [candidate1])
        run.policy.dialSucceeded(candidate1, identity: "alice")
        run.endLink(candidate1.address)
        run.hear(1)
        #expect(run.step() == [candidate1])
        run.failDial(candidate1)
        run.hear(1)
        #expect((run.untilNextStep() ?? .seconds(99)) <= .seconds(1))
    }

    @Test(
        "a proven peer that hangs up immediately is dialed less and less often, unless links carry messages",
        arguments: [
            // How each link ended, early and without a message or early after a message; and the
            // expected number of dials.
            (LinkOutcome.failed, 10...32), (.short, 300...600),
        ])
    func hangsUp(_ outcome: LinkOutcome, _ expected: ClosedRange<Int>) {
        var run = PolicyRun()
        var dialed = 0
        for _ in 0..<600 {
            run.hear(1)
            for dial in run.step() {
                dialed += 1
                run.policy.dialSucceeded(dial, identity: "mallory")
                run.endLink(dial.address, outcome)
            }
            run.wait(.seconds(1))
        }
        #expect(expected.contains(dialed), "\(dialed) times in ten minutes")
    }

    @Test("ready links and dials under way together never exceed the limit")
    func ceiling() {
        var rules = DialPolicy.Rules.heardOnce
        rules.links = 3
        rules.unprovenAtOnce = 5
        var run = PolicyRun(rules)
        // Of these eleven links, only the one with a proven peer counts towards the limit.
        for number in 50...60 { _ = run.policy.accepted(from: PolicyRun.address(number)) }
        run.policy.acceptSucceeded(from: PolicyRun.address(50), identity: "a")
        for number in 1...9 { run.hear(number) }
        let dials = run.step()
        #expect(dials.count == 2)
        run.policy.dialSucceeded(dials[0], identity: "b")
        #expect(run.policy.readyLinks == 2)
        #expect(run.step() == [])
        run.endLink(PolicyRun.address(50))
        #expect(run.step().count == 1)
    }

    @Test("an identity with a link is not dialed, whichever side opened the link")
    func acceptedIdentity() {
        var run = PolicyRun()
        run.hear(1)
        #expect(run.step() == [candidate1])
        run.policy.dialSucceeded(candidate1, identity: "alice")
        run.endLink(candidate1.address)
        let other = PolicyRun.address(2)
        _ = run.policy.accepted(from: other)
        run.policy.acceptSucceeded(from: other, identity: "alice")
        run.hear(1)
        #expect(run.step() == [])
        run.endLink(other)
        #expect(run.step() == [candidate1])
    }

    @Test(
        "of a thousand unauthenticated peers, at most two are dialed at a time and twelve in a minute"
    )
    func unauthenticatedPeers() {
        var run = PolicyRun()
        var dialed = 0
        for second in 0..<60 {
            for number in 0..<17 { run.hear(second * 17 + number) }
            let dials = run.step()
            #expect(dials.count <= 2)
            dialed += dials.count
            for dial in dials { run.failDial(dial) }
            #expect(run.policy.table.count <= run.policy.table.capacity)
            run.wait(.seconds(1))
        }
        #expect(dialed == 12)
    }

    /// Dials `candidate1`, which proves an identity, and ends the link.
    private func proveCandidate1(_ run: inout PolicyRun) {
        run.hear(1)
        #expect(run.step() == [candidate1])
        run.policy.dialSucceeded(candidate1, identity: "alice")
        run.endLink(candidate1.address)
    }

    @Test("a proven peer is dialed before unauthenticated peers, and outside their budget")
    func provenFirst() {
        var rules = DialPolicy.Rules.heardOnce
        rules.links = 1
        var single = PolicyRun(rules)
        proveCandidate1(&single)
        // The budget is unused again, but there is room for only one dial.
        single.wait(.seconds(60))
        for number in 100..<120 { single.hear(number, signal: -30) }
        single.hear(1, signal: -80)
        #expect(single.step() == [candidate1])
        var run = PolicyRun()
        proveCandidate1(&run)
        run.wait(.seconds(31))
        for number in 100..<140 {
            run.hear(number, signal: -30)
            for dial in run.step() { run.failDial(dial) }
        }
        run.hear(200, signal: -20)
        run.hear(1, signal: -80)
        #expect(run.step() == [candidate1])
    }

    @Test(
        "a new tag at a proven address has a budget that other unproven candidates do not share"
    )
    func newTag() {
        var run = PolicyRun()
        proveCandidate1(&run)
        // The dial above and those of the first 11 seconds use up the other candidates' budget
        // until second 60.
        for second in 0..<60 {
            run.hear(100 + second, signal: -30)
            var expected: [Candidate] = []
            if second < 11 { expected = [PolicyRun.candidate(100 + second)] }
            if second == 45 {
                run.hear(1, tag: 1_000, signal: -80)
                expected = [PolicyRun.candidate(1, tag: 1_000)]
            }
            let dials = run.step()
            #expect(dials == expected, "in second \(second)")
            for dial in dials { run.failDial(dial) }
            run.wait(.seconds(1))
        }
    }

    @Test("new tags at a proven address are dialed at most twelve times in a minute")
    func copiedAddress() {
        var run = PolicyRun()
        proveCandidate1(&run)
        var dialed = 0
        for tag in 0..<590 as Range<UInt32> {
            run.hear(1, tag: 1_000 + tag)
            for dial in run.step() {
                dialed += 1
                run.failDial(dial)
            }
            run.wait(.milliseconds(100))
        }
        #expect(dialed == 12)
    }

    @Test(
        "an unproven candidate is dialed even among many stronger or newer ones"
    )
    func amongMany() {
        var run = PolicyRun()
        // Each of the 12 dials in a minute chooses one of some 20 waiting candidates: the
        // probability that a candidate is not chosen for an hour is about 10^-16.
        for second in 0..<3_600 {
            for number in 100..<110 { run.hear(number, signal: -30) }
            if second % 6 == 0 { run.hear(1_000 + second, signal: -30) }
            if second % 15 == 0 { run.hear(1, signal: -80) }
            let dials = run.step()
            if dials.contains(candidate1) { return }
            for dial in dials { run.failDial(dial) }
            run.wait(.seconds(1))
        }
        Issue.record("the candidate was not dialed in an hour")
    }

    @Test("a candidate that is first heard when the table is full is dialed within an hour")
    func fullTable() {
        var run = PolicyRun(DialPolicy.Rules(), table: PeerTable(capacity: 8))
        let others = 1_000..<1_007
        for number in others { run.hear(number, signal: -30) }
        for second in 0..<3_600 {
            if second % 5 == 0 { for number in others { run.hear(number, signal: -30) } }
            if second % 32 == 0 { run.hear(5_000 + second, signal: -30) }
            if second % 15 == 0 { run.hear(1, signal: -60) }
            let dials = run.step()
            if dials.contains(candidate1) { return }
            for dial in dials { run.failDial(dial) }
            run.wait(.seconds(1))
        }
        Issue.record("the candidate was not dialed in an hour")
    }

    @Test("the side with the higher tag waits again after a link has ended")
    func waitAfterLink() {
        var run = PolicyRun(ownTag: 101)
        run.hear(1)
        #expect(run.step() == [])
        _ = run.policy.accepted(from: candidate1.address)
        run.policy.acceptSucceeded(from: candidate1.address, identity: "alice")
        for _ in 0..<4 {
            run.wait(.seconds(10))
            run.hear(1)
        }
        run.endLink(candidate1.address)
        run.hear(1)
        #expect(run.step() == [])
        #expect((run.untilNextStep() ?? .zero) >= .seconds(5))
    }

    @Test("a proven peer that was not heard for an hour is removed from the table")
    func provenLongAgo() {
        var run = PolicyRun()
        for number in 0..<300 {
            let candidate = PolicyRun.candidate(number)
            run.hear(number)
            _ = run.step()
            run.policy.dialSucceeded(candidate, identity: "alice")
            run.endLink(candidate.address)
            run.wait(.seconds(20))
        }
        // One candidate every 20 seconds: 181 of them were heard in the last hour.
        #expect(run.policy.table.count <= 181)
        run.wait(.seconds(3_600))
        _ = run.step()
        #expect(run.policy.table.count == 0)
    }

    @Test("a flood of forged tags does not push out a candidate that is heard repeatedly")
    func flood() {
        var run = PolicyRun()
        for number in 0..<1_000 {
            run.hear(7)
            for offset in 0..<10 { run.hear(1_000 + number * 10 + offset, tag: UInt32(number)) }
            // Some tags are forged at the candidate's own address, too.
            run.hear(7, tag: UInt32(1_000 + number))
        }
        let table = run.policy.table
        #expect(table.count <= table.capacity)
        #expect(table.entries.count { $0.candidate.address == PolicyRun.address(7) } <= 4)
        #expect(table[PolicyRun.candidate(7)]?.timesHeard == 1_000)
    }

    @Test(
        "an advertisement without a payload counts as a sighting of the candidate that sent a payload from the same address before"
    )
    func withoutPayload() {
        var run = PolicyRun()
        run.hear(1, tag: nil)
        run.hear(1)
        run.hear(1, tag: nil)
        #expect(run.policy.table.count == 1)
        #expect(run.policy.table[candidate1]?.timesHeard == 2)
    }

    @Test(
        "a candidate that was not heard for a minute is forgotten, unless it is proven"
    )
    func forgetting() {
        var run = PolicyRun()
        run.hear(1)
        run.hear(2)
        #expect(run.step().count == 2)
        run.policy.dialSucceeded(candidate1, identity: "alice")
        run.failDial(PolicyRun.candidate(2))
        run.wait(.seconds(61))
        _ = run.step()
        #expect(run.policy.table.entries.map(\.candidate) == [candidate1])
    }
}

@Suite("The cache of PSMs")
struct PSMCacheTests {
    @Test("a cached PSM stays until it is removed, or until newer PSMs fill the cache")
    func bounded() throws {
        var cache = PSMCache(capacity: 4)
        let psm = try PSM(0x80)
        for number in 0..<100 { cache[PolicyRun.candidate(number)] = psm }
        #expect((0..<100).count { cache[PolicyRun.candidate($0)] != nil } == 4)
        #expect(cache[PolicyRun.candidate(99)] == psm)
        cache[PolicyRun.candidate(99)] = nil
        #expect(cache[PolicyRun.candidate(99)] == nil)
        // The PSMs of two candidates are set again and again. Only the first setting for each of
        // the two may drop another PSM.
        for number in 0..<100 { cache[PolicyRun.candidate(number % 2)] = psm }
        #expect((0..<100).count { cache[PolicyRun.candidate($0)] != nil } == 4)
    }
}
