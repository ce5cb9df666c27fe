import BLESecChannelCore
import BLESecLinks
import BLESecTesting
import Testing

@testable import BLESec

/// A machine with a manual clock.
private struct Watch {
    var machine: ConnectionMachine
    var now = MonotonicTime(nanoseconds: 1_000_000_000_000)
    var generator = SeededGenerator(seed: 3)

    init(_ rules: ReconnectPolicy = ReconnectPolicy()) {
        machine = ConnectionMachine(rules: rules, now: now)
    }

    var state: ConnectionState { machine.status.state }
    /// How much time is left until the state's deadline.
    var left: Duration? { machine.status.deadline?.duration(since: now) }

    mutating func wait(_ duration: Duration) -> ConnectionMachine.Step {
        now = now.advanced(by: duration)
        return machine.timeout(at: now, using: &generator)
    }

    mutating func reach(_ state: ConnectionState) { machine.reached(state, at: now) }
    @discardableResult
    mutating func connect(
        _ peer: PeerIdentity = .group, hash: [UInt8] = [], isEnding: Bool = false,
        isCurrentOver: Bool = true, hasRoom: Bool = true
    ) -> ConnectionMachine.Admission {
        let history = ChannelHistory(began: now, ready: now, hash: hash)
        return machine.admit(
            .init(peer: peer, history: history, isEnding: isEnding),
            isCurrentOver: isCurrentOver, hasRoom: hasRoom, at: now)
    }
    @discardableResult
    mutating func fail(
        _ code: ChannelError.Code = .noSuchPeer, in attempt: Int? = nil
    ) -> ConnectionMachine.Step {
        machine.failed(ChannelError(code, ""), in: attempt, at: now, using: &generator)
    }
    mutating func begin(hasRoom: Bool = true) -> Int? {
        machine.begin(hasRoom: hasRoom, at: now, using: &generator)
    }
    mutating func endPeer(_ reason: EndReason = .done) -> ConnectionMachine.Ending {
        machine.peerEnded(reason, hasCarried: true, isCurrent: true, at: now, using: &generator)
    }
    mutating func lose(hasCarried: Bool) -> ConnectionMachine.Step {
        machine.lost(
            ChannelError(.truncated, ""), hasCarried: hasCarried, at: now, using: &generator)
    }
}

@Suite("The state machine of a connection")
struct ConnectionMachineTests {
    @Test("an attempt goes through its states, each with its deadline")
    func states() {
        var watch = Watch()
        let rules = ReconnectPolicy()
        #expect(watch.state == .searching)
        #expect(watch.left == rules.searching)
        for (state, limit) in [
            (ConnectionState.dialing, rules.dialing), (.opening, rules.opening),
            (.handshaking, rules.handshaking),
        ] {
            watch.reach(state)
            #expect(watch.state == state)
            #expect(watch.left == limit)
        }
        watch.connect()
        #expect(watch.state == .connected)
        #expect(watch.left == nil)
        #expect(watch.machine.status.peer == .group)
    }

    @Test("a peer that is not found in 30 s is out of range, and a new search starts 60 s later")
    func outOfRange() {
        var watch = Watch()
        #expect(watch.wait(.milliseconds(29_999)) == .nothing)
        #expect(watch.state == .searching)
        #expect(watch.wait(.milliseconds(1)) == .nothing)
        #expect(watch.state == .outOfRange)
        #expect(watch.left == .seconds(60))
        watch.reach(.searching)
        #expect(watch.state == .outOfRange, "a search that goes on has not found the peer")
        #expect(watch.wait(.seconds(60)) == .attempt)
        #expect(watch.state == .searching)
        _ = watch.wait(.seconds(30))
        watch.reach(.dialing)
        #expect(watch.state == .dialing, "a peer that is dialed has been found, so it is in range")
    }

    @Test(
        "a step that takes too long is abandoned, and the next attempt starts 0.5 to 1 s later",
        arguments: [ConnectionState.dialing, .opening, .handshaking])
    func tooLong(_ state: ConnectionState) throws {
        var watch = Watch()
        watch.reach(state)
        let left = try #require(watch.left)
        #expect(watch.wait(left - .milliseconds(1)) == .nothing)
        #expect(watch.wait(.milliseconds(1)) == .abandon)
        #expect(watch.machine.status.failure?.code == .timedOut)
        #expect([.backingOff, .outOfRange].contains(watch.state))
        let pause = try #require(watch.left)
        #expect((.milliseconds(500) ... .seconds(1)).contains(pause))
        #expect(watch.wait(pause) == .attempt)
        #expect(watch.state == .searching)
    }

    @Test("the longest wait doubles with each failure up to 60 s; each wait is half of it or more")
    func backoff() throws {
        var watch = Watch()
        var pauses: [Duration] = []
        for failures in 1...10 {
            watch.reach(.dialing)
            watch.fail()
            #expect(watch.machine.status.failures == failures)
            let pause = try #require(watch.left)
            let bound = Duration.seconds(min(60, 1 << (failures - 1)))
            #expect((bound / 2...bound).contains(pause))
            pauses.append(pause)
            #expect(watch.wait(pause) == .attempt)
        }
        let parts = zip(pauses, 0...).map { $0 / Double(min(60, 1 << $1)) }
        #expect(Set(parts).count > 5, "each wait has a random part of its own")
    }

    @Test("a peer that is unreachable for long is out of range, and is still dialed")
    func unreached() {
        var watch = Watch()
        watch.fail()
        #expect(watch.state == .backingOff)
        var states: [ConnectionState] = []
        while watch.now < MonotonicTime(nanoseconds: 1_090_000_000_000) {
            if watch.wait(.milliseconds(100)) == .attempt {
                watch.reach(.dialing)
                watch.fail()
                states.append(watch.state)
            }
        }
        #expect(states.first == .backingOff)
        #expect(states.last == .outOfRange)
    }

    @Test(
        "after a link of 10 s, or of 1 s with a message, the next attempt begins without a wait")
    func goodLink() throws {
        for lasted in [false, true] {
            var watch = Watch()
            for _ in 1...5 { watch.fail() }
            watch.connect()
            _ = watch.wait(lasted ? .seconds(10) : .seconds(1))
            #expect(watch.lose(hasCarried: !lasted) == .attempt)
            #expect(watch.state == .searching)
            #expect(watch.machine.status.failures == 0)
            #expect(watch.machine.status.failure?.code == .truncated)
            watch.fail()
            let pause = try #require(watch.left)
            #expect(pause <= .seconds(1))
            #expect(watch.state == .backingOff, "the peer was connected just now")
        }
    }

    @Test("a link without a message that ends within 10 s counts as a further failure each time")
    func badLink() throws {
        var watch = Watch()
        for failures in 1...8 {
            watch.connect()
            _ = watch.wait(.milliseconds(9_999))
            #expect(watch.lose(hasCarried: false) == .nothing)
            #expect(watch.state == .backingOff)
            #expect(watch.machine.status.failures == failures)
            let pause = try #require(watch.left)
            #expect(pause >= .seconds(min(60, 1 << (failures - 1))) / 2)
            #expect(watch.wait(pause) == .attempt)
        }
    }

    @Test("a link with a message that ends within 1 s counts as a first failure each time")
    func briefLink() throws {
        var watch = Watch()
        for _ in 1...5 { watch.fail() }
        for _ in 1...8 {
            watch.connect()
            _ = watch.wait(.milliseconds(999))
            #expect(watch.lose(hasCarried: true) == .nothing)
            #expect(watch.state == .backingOff)
            #expect(watch.machine.status.failures == 1)
            let pause = try #require(watch.left)
            #expect((.milliseconds(500) ... .seconds(1)).contains(pause))
            #expect(watch.wait(pause) == .attempt)
        }
    }

    @Test(
        "late progress events after connecting, and any event after closing, change nothing")
    func late() {
        var watch = Watch()
        watch.connect()
        watch.reach(.dialing)
        watch.fail()
        #expect(watch.state == .connected)
        #expect(watch.wait(.seconds(1_000_000)) == .nothing)
        watch.machine.close(nil, at: watch.now)
        watch.machine.close(ChannelError(.internal, ""), at: watch.now)
        watch.reach(.dialing)
        watch.connect()
        watch.fail()
        #expect(watch.lose(hasCarried: true) == .nothing)
        #expect(watch.wait(.seconds(1_000_000)) == .nothing)
        #expect(watch.state == .closed)
        #expect(watch.machine.status.failure == nil)
        #expect(watch.left == nil)
    }

    @Test("what an earlier attempt reports changes nothing")
    func earlierAttempt() {
        var watch = Watch()
        let (first, second) = (watch.begin(), watch.begin())
        #expect(first != nil && second != nil && first != second)
        watch.machine.reached(.dialing, in: first, at: watch.now)
        watch.fail(in: first)
        #expect(watch.state == .searching)
        watch.machine.reached(.dialing, in: second, at: watch.now)
        #expect(watch.state == .dialing)
        watch.connect()
        watch.fail(in: second)
        #expect(watch.state == .connected)
    }

    @Test("no attempt begins while too many ended links have unread messages")
    func noRoom() {
        var watch = Watch()
        #expect(watch.begin(hasRoom: false) == nil)
        #expect(watch.state == .backingOff)
        #expect(watch.machine.status.failure?.code == .limitExceeded)
        guard case .refuse(let error) = watch.connect(hasRoom: false) else {
            Issue.record("the channel was not refused")
            return
        }
        #expect(error.code == .limitExceeded)
    }

    @Test("a configuration error closes the connection, and a refusal does not")
    func configuration() {
        var watch = Watch()
        #expect(watch.fail(.refused) == .nothing)
        #expect(watch.fail(.configuration) == .close(ChannelError(.configuration, "")))
    }

    @Test("of two channels whose handshakes overlapped, the channel with the lower hash stays")
    func duplicates() {
        var watch = Watch()
        watch.connect(hash: [5])
        guard case .endAsDuplicate = watch.connect(hash: [9], isCurrentOver: false) else {
            Issue.record("the channel with the higher hash stays")
            return
        }
        guard case .use = watch.connect(hash: [1], isCurrentOver: false),
            case .use = watch.connect(hash: [9], isCurrentOver: true)
        else {
            Issue.record("a channel was not used")
            return
        }
    }

    @Test("a channel that is ending brings only its messages, and leaves the state as it is")
    func ending() {
        var watch = Watch()
        guard case .keepMessages = watch.connect(isEnding: true) else {
            Issue.record("the channel is used")
            return
        }
        #expect(watch.state == .searching)
    }

    @Test("the peer's end is final only if the rules say so; then both ends close the connection")
    func peersEnd() {
        var watch = Watch()
        watch.connect()
        _ = watch.wait(.seconds(1))
        guard case .leaves(.attempt) = watch.endPeer() else {
            Issue.record("the connection does not look for the peer again")
            return
        }
        var rules = ReconnectPolicy()
        rules.endsWithPeer = true
        watch = Watch(rules)
        watch.connect()
        guard case .stays = watch.endPeer() else {
            Issue.record("the channel does not stay")
            return
        }
        #expect(!watch.machine.haveBothEnded)
        watch.machine.finish()
        #expect(watch.machine.haveBothEnded)
        guard case .closes = watch.endPeer() else {
            Issue.record("the connection stays open")
            return
        }
    }
}
