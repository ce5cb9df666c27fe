import BLESecChannelCore
import BLESecLinks
import BLESecTesting
import Testing

@testable import BLESec

/// A connection's machine, and the time that is passed to the machine.
private struct TimedMachine {
    var machine: ConnectionMachine
    var now = MonotonicTime(nanoseconds: 1_000_000_000_000)
    var generator = SeededGenerator(seed: 3)

    init(_ rules: ReconnectPolicy = ReconnectPolicy()) {
        machine = ConnectionMachine(rules: rules, now: now)
    }

    var state: ConnectionState { machine.status.state }
    /// How much time is left until the state's deadline.
    var timeLeft: Duration? { machine.status.deadline?.duration(since: now) }

    /// Advances the time, and handles a deadline that has passed.
    mutating func wait(_ duration: Duration) -> ConnectionMachine.Step {
        now = now.advanced(by: duration)
        return machine.timeout(at: now, using: &generator)
    }

    mutating func reach(_ state: ConnectionState) { machine.reached(state, at: now) }

    /// Hands a new channel to the machine.
    @discardableResult
    mutating func offerChannel(
        hash: [UInt8] = [], isEnding: Bool = false, isCurrentOver: Bool = true,
        hasRoom: Bool = true
    ) -> ConnectionMachine.Admission {
        let history = ChannelHistory(beginTime: now, readyTime: now, hash: hash)
        return machine.admit(
            .init(peer: .group, history: history, isEnding: isEnding),
            isCurrentOver: isCurrentOver, hasRoom: hasRoom, at: now)
    }

    /// Reports the failure of `attempt`; nil stands for a failure that names no attempt.
    @discardableResult
    mutating func failAttempt(
        _ code: ChannelError.Code = .noSuchPeer, in attempt: Int? = nil
    ) -> ConnectionMachine.Step {
        machine.failed(ChannelError(code, ""), in: attempt, at: now, using: &generator)
    }

    mutating func beginAttempt(hasRoom: Bool = true) -> Int? {
        machine.begin(hasRoom: hasRoom, at: now, using: &generator)
    }

    mutating func handlePeerEnd(_ reason: EndReason = .done) -> ConnectionMachine.Ending {
        machine.peerEnded(
            reason, isFinal: machine.rules.endsWithPeer, hasCarriedMessage: true, isCurrent: true,
            at: now, using: &generator)
    }

    mutating func loseLink(
        _ code: ChannelError.Code = .truncated, hasCarriedMessage: Bool
    ) -> ConnectionMachine.Step {
        machine.lost(
            ChannelError(code, ""), hasCarriedMessage: hasCarriedMessage, at: now,
            using: &generator)
    }
}

@Suite("The state machine of a connection")
struct ConnectionMachineTests {
    @Test("each state of an attempt has its own time limit, and the connected state has none")
    func states() {
        var connection = TimedMachine()
        let rules = ReconnectPolicy()
        #expect(connection.state == .searching)
        #expect(connection.timeLeft == rules.searching)
        for (state, limit) in [
            (ConnectionState.dialing, rules.dialing), (.opening, rules.opening),
            (.handshaking, rules.handshaking),
        ] {
            connection.reach(state)
            #expect(connection.state == state)
            #expect(connection.timeLeft == limit)
        }
        connection.offerChannel()
        #expect(connection.state == .connected)
        #expect(connection.timeLeft == nil)
        #expect(connection.machine.status.peer == .group)
    }

    @Test("a peer that is not found in 30 s is out of range, and a new search starts 60 s later")
    func outOfRange() {
        var connection = TimedMachine()
        #expect(connection.wait(.milliseconds(29_999)) == .nothing)
        #expect(connection.state == .searching)
        #expect(connection.wait(.milliseconds(1)) == .nothing)
        #expect(connection.state == .outOfRange)
        #expect(connection.timeLeft == .seconds(60))
        connection.reach(.searching)
        #expect(
            connection.state == .outOfRange, "a search does not show that the peer is in range")
        #expect(connection.wait(.seconds(60)) == .attempt)
        #expect(connection.state == .searching)
        _ = connection.wait(.seconds(30))
        connection.reach(.dialing)
        #expect(
            connection.state == .dialing,
            "a peer that is dialed has been found, so it is in range")
    }

    @Test(
        "an attempt that is in one state too long is abandoned; the next starts 0.5 to 1 s later",
        arguments: [ConnectionState.dialing, .opening, .handshaking])
    func tooLong(_ state: ConnectionState) throws {
        var connection = TimedMachine()
        connection.reach(state)
        let left = try #require(connection.timeLeft)
        #expect(connection.wait(left - .milliseconds(1)) == .nothing)
        #expect(connection.wait(.milliseconds(1)) == .abandon)
        #expect(connection.machine.status.failure?.code == .timedOut)
        #expect([.backingOff, .outOfRange].contains(connection.state))
        let pause = try #require(connection.timeLeft)
        #expect((.milliseconds(500) ... .seconds(1)).contains(pause))
        #expect(connection.wait(pause) == .attempt)
        #expect(connection.state == .searching)
    }

    @Test("each wait is 50 to 100 % of a longest wait, which doubles with each failure up to 60 s")
    func backoff() throws {
        var connection = TimedMachine()
        var pauses: [Duration] = []
        for failures in 1...10 {
            connection.reach(.dialing)
            connection.failAttempt()
            #expect(connection.machine.status.failures == failures)
            let pause = try #require(connection.timeLeft)
            let longest = Duration.seconds(min(60, 1 << (failures - 1)))
            #expect((longest / 2...longest).contains(pause))
            pauses.append(pause)
            #expect(connection.wait(pause) == .attempt)
        }
        let fractions = zip(pauses, 0...).map { $0 / Double(min(60, 1 << $1)) }
        #expect(Set(fractions).count > 5, "each wait is a random fraction of the longest wait")
    }

    @Test("a peer that is reached and whose handshakes fail is not out of range")
    func reachedPeer() {
        var connection = TimedMachine()
        for _ in 0..<20 {
            while connection.wait(.milliseconds(100)) != .attempt {
                if connection.state != .searching { continue }
                connection.reach(.dialing)
                connection.reach(.handshaking)
                connection.failAttempt()
                #expect(connection.state == .backingOff)
            }
        }
    }

    @Test("a peer whose handshake fails after a minute is not out of range until 30 s later")
    func longHandshake() {
        for isCancelled in [false, true] {
            var connection = TimedMachine()
            connection.reach(.dialing)
            connection.reach(.handshaking)
            _ = connection.wait(.seconds(60))
            #expect(connection.state == .handshaking)
            if isCancelled {
                connection.machine.dialCancelled(at: connection.now)
                #expect(connection.state == .searching)
                #expect(connection.timeLeft == .seconds(30))
            } else {
                connection.failAttempt(.untrusted)
                #expect(connection.state == .backingOff)
            }
        }
    }

    @Test("dials to strangers that are not reached do not postpone the time when a search ends")
    func strangers() {
        var connection = TimedMachine()
        _ = connection.wait(.seconds(20))
        connection.reach(.dialing)
        _ = connection.wait(.seconds(4))
        connection.reach(.searching)
        #expect(connection.state == .searching)
        #expect(connection.timeLeft == .seconds(6))
        _ = connection.wait(.seconds(6))
        #expect(connection.state == .outOfRange)
        connection.reach(.dialing)
        _ = connection.wait(.seconds(4))
        connection.reach(.searching)
        #expect(connection.timeLeft == .zero)
        _ = connection.wait(.zero)
        #expect(connection.state == .outOfRange)
    }

    @Test("while every dial fails, the state is backing-off at first, and out-of-range within 90 s")
    func unreachable() {
        var connection = TimedMachine()
        connection.failAttempt()
        #expect(connection.state == .backingOff)
        var states: [ConnectionState] = []
        while connection.now < MonotonicTime(nanoseconds: 1_090_000_000_000) {
            if connection.wait(.milliseconds(100)) == .attempt {
                connection.reach(.dialing)
                connection.failAttempt()
                states.append(connection.state)
            }
        }
        #expect(states.first == .backingOff)
        #expect(states.last == .outOfRange)
    }

    @Test(
        "after a link of 10 s, or of 1 s with a message, the next attempt begins without a wait")
    func goodLink() throws {
        for lastsTenSeconds in [false, true] {
            var connection = TimedMachine()
            for _ in 1...5 { connection.failAttempt() }
            connection.offerChannel()
            _ = connection.wait(lastsTenSeconds ? .seconds(10) : .seconds(1))
            #expect(connection.loseLink(hasCarriedMessage: !lastsTenSeconds) == .attempt)
            #expect(connection.state == .searching)
            #expect(connection.machine.status.failures == 0)
            #expect(connection.machine.status.failure?.code == .truncated)
            connection.failAttempt()
            let pause = try #require(connection.timeLeft)
            #expect(pause <= .seconds(1))
            #expect(
                connection.state == .backingOff,
                "the peer was just connected, so it is in range")
        }
    }

    @Test("each link that ends within 10 s without a message counts as one more failure")
    func badLink() throws {
        var connection = TimedMachine()
        for failures in 1...8 {
            connection.offerChannel()
            _ = connection.wait(.milliseconds(9_999))
            #expect(connection.loseLink(hasCarriedMessage: false) == .nothing)
            #expect(connection.state == .backingOff)
            #expect(connection.machine.status.failures == failures)
            let pause = try #require(connection.timeLeft)
            #expect(pause >= .seconds(min(60, 1 << (failures - 1))) / 2)
            #expect(connection.wait(pause) == .attempt)
        }
    }

    @Test("each link that carries a message but ends within 1 s counts as a first failure")
    func briefLink() throws {
        var connection = TimedMachine()
        for _ in 1...5 { connection.failAttempt() }
        for _ in 1...8 {
            connection.offerChannel()
            _ = connection.wait(.milliseconds(999))
            #expect(connection.loseLink(hasCarriedMessage: true) == .nothing)
            #expect(connection.state == .backingOff)
            #expect(connection.machine.status.failures == 1)
            let pause = try #require(connection.timeLeft)
            #expect((.milliseconds(500) ... .seconds(1)).contains(pause))
            #expect(connection.wait(pause) == .attempt)
        }
    }

    @Test(
        "after connecting, reports of an attempt change nothing; after closing, no event changes anything"
    )
    func lateEvents() {
        var connection = TimedMachine()
        connection.offerChannel()
        connection.reach(.dialing)
        connection.failAttempt()
        #expect(connection.state == .connected)
        #expect(connection.wait(.seconds(1_000_000)) == .nothing)
        connection.machine.close(nil, at: connection.now)
        connection.machine.close(ChannelError(.internal, ""), at: connection.now)
        connection.reach(.dialing)
        connection.offerChannel()
        connection.failAttempt()
        #expect(connection.loseLink(hasCarriedMessage: true) == .nothing)
        #expect(connection.wait(.seconds(1_000_000)) == .nothing)
        #expect(connection.state == .closed)
        #expect(connection.machine.status.failure == nil)
        #expect(connection.timeLeft == nil)
    }

    @Test("reports of an earlier attempt change nothing")
    func earlierAttempt() {
        var connection = TimedMachine()
        let (first, second) = (connection.beginAttempt(), connection.beginAttempt())
        #expect(first != nil && second != nil && first != second)
        connection.machine.reached(.dialing, in: first, at: connection.now)
        connection.failAttempt(in: first)
        #expect(connection.state == .searching)
        connection.machine.reached(.dialing, in: second, at: connection.now)
        #expect(connection.state == .dialing)
        connection.offerChannel()
        connection.failAttempt(in: second)
        #expect(connection.state == .connected)
    }

    @Test("after another failure, the reports of the attempt under way still count")
    func otherFailure() {
        var connection = TimedMachine()
        let attempt = connection.beginAttempt()
        // If a channel that the program has offered fails, the report names no attempt.
        connection.failAttempt(in: nil)
        connection.machine.reached(.handshaking, in: attempt, at: connection.now)
        #expect(connection.state == .handshaking)
    }

    @Test("a state that an attempt reports after its failure changes nothing")
    func lateState() {
        var connection = TimedMachine()
        let attempt = connection.beginAttempt()
        connection.failAttempt(in: attempt)
        #expect(connection.state == .backingOff)
        connection.machine.reached(.dialing, in: attempt, at: connection.now)
        #expect(connection.state == .backingOff)
        #expect(connection.machine.status.failures == 1)
    }

    @Test("without room for a new link, no attempt begins, and a new channel is refused")
    func noRoom() {
        var connection = TimedMachine()
        #expect(connection.beginAttempt(hasRoom: false) == nil)
        #expect(connection.state == .backingOff)
        #expect(connection.machine.status.failure?.code == .limitExceeded)
        guard case .refuse(let error) = connection.offerChannel(hasRoom: false) else {
            Issue.record("the channel was not refused")
            return
        }
        #expect(error.code == .limitExceeded)
    }

    @Test("a configuration error closes the connection, and a refusal does not")
    func configuration() {
        var connection = TimedMachine()
        #expect(connection.failAttempt(.refused) == .nothing)
        #expect(connection.failAttempt(.configuration) == .close(ChannelError(.configuration, "")))
    }

    @Test("a link that ends with the error sessionLost closes the connection")
    func sessionLost() {
        var connection = TimedMachine()
        connection.offerChannel()
        _ = connection.wait(.seconds(60))
        let step = connection.loseLink(.sessionLost, hasCarriedMessage: true)
        #expect(step == .close(ChannelError(.sessionLost, "")))
    }

    @Test(
        "of two channels with overlapping handshakes the one with the lower hash is used, unless it is over"
    )
    func duplicates() {
        var connection = TimedMachine()
        connection.offerChannel(hash: [5])
        guard case .endAsDuplicate = connection.offerChannel(hash: [9], isCurrentOver: false) else {
            Issue.record("the channel with the higher hash was not ended as a duplicate")
            return
        }
        guard case .use = connection.offerChannel(hash: [1], isCurrentOver: false),
            case .use = connection.offerChannel(hash: [9], isCurrentOver: true)
        else {
            Issue.record("a channel was not used")
            return
        }
    }

    @Test("of a new channel that is already ending, only the messages are kept")
    func endingChannel() {
        var connection = TimedMachine()
        guard case .keepMessages = connection.offerChannel(isEnding: true) else {
            Issue.record("the channel was not kept for its messages alone")
            return
        }
        #expect(connection.state == .searching)
    }

    @Test(
        "after the peer's end a new attempt begins; with endsWithPeer, the connection closes once both sides have ended"
    )
    func peersEnd() {
        var connection = TimedMachine()
        connection.offerChannel()
        _ = connection.wait(.seconds(1))
        guard case .dropChannel(then: .attempt) = connection.handlePeerEnd() else {
            Issue.record("no new attempt followed the peer's end")
            return
        }
        var rules = ReconnectPolicy()
        rules.endsWithPeer = true
        connection = TimedMachine(rules)
        connection.offerChannel()
        guard case .keepChannel = connection.handlePeerEnd() else {
            Issue.record("the channel did not stay in use")
            return
        }
        #expect(!connection.machine.haveBothEnded)
        connection.machine.finish()
        #expect(connection.machine.haveBothEnded)
        guard case .closeConnection = connection.handlePeerEnd() else {
            Issue.record("the connection was not closed")
            return
        }
    }
}
