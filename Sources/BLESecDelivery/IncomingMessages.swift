/// The peer's messages: those that wait for the program, the incomplete one, and how far the
/// program has taken and confirmed them.
struct IncomingMessages: Sendable {
    /// The peer's epoch (`docs/delivery.md`, "Terms") that this side has taken over;
    /// ``Identifier/none`` before the first.
    private(set) var epoch: Identifier
    /// Earlier epochs of the peer, oldest first; at most ``StoredEndpoint/mostIdentifiers``.
    private(set) var pastEpochs: [Identifier]
    /// The program has confirmed all messages of the epoch up to this number.
    private(set) var confirmed: UInt64
    /// All messages of the epoch up to this number have arrived.
    private(set) var held: UInt64
    /// The bytes of the incomplete message that have arrived.
    private var partial: [UInt8] = []
    /// The length of that message when it is complete.
    private var partialLength = 0
    /// How many bytes of that message have ever arrived: more than there are in ``partial`` if this
    /// side has dropped them before it told the peer of them.
    private var furthest = 0
    /// How many bytes of that message this side's last `resume` has told the peer of.
    private var toldOffset = 0
    /// The messages that wait for the program, and perhaps the peer's end.
    private var waiting = Queue<Message>()
    /// Messages that the program has taken and not confirmed, oldest first.
    private var taken = Queue<Place>()
    /// How many messages the program has taken in this instance.
    private(set) var takenCount: UInt64 = 0
    /// The cost of all messages that the peer has begun on this link; `docs/delivery.md`,
    /// "Records", defines it.
    private var cost: UInt64 = 0
    /// The last credit that the peer was given on this link.
    private var granted: UInt64 = 0
    /// Whether the peer has begun a message on this link that has not arrived whole.
    private(set) var isMidMessage = false
    /// Whether the peer has sent an end on this link.
    private var hasEndOnLink = false
    /// How many bytes of messages may wait for the program, with ``OutgoingMessages/overhead`` for
    /// each.
    private let window: Int
    /// The longest message that the peer may send, in bytes.
    private let longestMessage: Int

    /// The epoch of a message, and its number in that epoch.
    private struct Place { var epoch: Identifier, number: UInt64 }
    /// A message, or the peer's end, which has no bytes.
    private struct Message {
        var place: Place
        var bytes: [UInt8]?
        var cost: Int { (bytes?.count ?? 0) + OutgoingMessages.overhead }
    }
    /// Whether the program has taken everything up to the peer's end.
    private(set) var hasReachedEnd: Bool
    /// Whether the peer's end has arrived in the peer's present epoch.
    private(set) var hasEnd = false
    /// Whether an end of the peer has arrived in any epoch: no message may follow it.
    private(set) var hasReceivedEnd: Bool
    /// The peer's end, once the program has taken everything before it; nil again after this side
    /// has confirmed it.
    private var reachedEnd: Place?
    /// The epoch in which this side has confirmed the peer's end.
    private var endEpoch: Identifier?

    init(_ stored: StoredEndpoint, window: Int, longestMessage: Int) {
        epoch = stored.peerEpoch
        pastEpochs = stored.pastEpochs
        confirmed = stored.confirmed
        held = stored.confirmed
        hasReachedEnd = stored.hasConfirmedPeerEnd
        hasReceivedEnd = hasReachedEnd
        endEpoch = hasReachedEnd ? stored.peerEndEpoch : nil
        // Even an empty message costs the overhead.
        self.window = min(max(window, OutgoingMessages.overhead), Self.mostBytes)
        self.longestMessage = min(longestMessage, Self.mostBytes)
    }

    /// The greatest value of ``longestMessage`` and of ``window``. A credit is a sum of such
    /// numbers, and must not exceed 62 bits.
    private static let mostBytes = 1 << 40

    /// The bytes of the messages that wait for the program, with ``OutgoingMessages/overhead`` for
    /// each.
    private var waitingBytes = 0
    /// ``waitingBytes``, and the bytes of the incomplete message that have arrived.
    var heldBytes: Int { waitingBytes + partial.count }
    var positions: Positions {
        Positions(confirmed: confirmed, held: held, offset: partial.count)
    }

    // MARK: - A link

    /// Begins a link, and returns its first credit.
    mutating func linkBegan() -> UInt64 {
        (cost, granted) = (0, 0)
        (isMidMessage, hasEndOnLink) = (false, false)
        toldOffset = partial.count
        granted = newCredit
        return granted
    }

    /// The credit that fits the window now. Only whole messages that wait are subtracted from the
    /// window: the cost of the incomplete message is already in ``cost``, and no other message can
    /// arrive before the rest of it.
    @inline(__always) private var newCredit: UInt64 { cost + UInt64(max(0, window - waitingBytes)) }

    /// Whether the peer should get a new credit: the last credit is used up, or the new one is
    /// greater by at least half of the window.
    @inline(__always) var owesCredit: Bool {
        let isPeerStopped = granted <= cost
        return newCredit > granted && (isPeerStopped || newCredit >= granted + UInt64(window / 2))
    }

    mutating func takeCredit() -> UInt64? {
        guard owesCredit else { return nil }
        granted = newCredit
        return granted
    }

    /// Begins another epoch of the peer, or continues the present one where messages are missing that
    /// the peer no longer has. The peer's next message has the number `confirmed` + 1. Whole messages
    /// that arrived before stay for the program.
    mutating func begin(_ epoch: Identifier, confirmed: UInt64) {
        if self.epoch != .none, self.epoch != epoch { pastEpochs.append(self.epoch) }
        if pastEpochs.count > StoredEndpoint.mostIdentifiers { pastEpochs.removeFirst() }
        self.epoch = epoch
        self.confirmed = confirmed
        held = confirmed
        hasEnd = false
        dropPartial()
        furthest = 0
    }

    mutating func dropPartial() {
        partial = []
        isMidMessage = false
        if toldOffset > 0 { furthest = 0 }
    }

    /// Handles a chunk. Returns whether it shows progress: it has bytes that have not arrived before,
    /// or completes its message. Bytes that arrive again after this side has told the peer of them,
    /// and dropped them, count too, because then they count for the peer.
    mutating func append(_ chunk: Chunk) throws(DeliveryError) -> Bool {
        guard held < Resume.greatestNumber, chunk.number == held + 1, chunk.offset == partial.count
        else {
            throw .violation("a chunk that does not continue the last one")
        }
        try refuseAfterEnd("a message")
        guard chunk.length <= longestMessage else {
            throw .tooLong(announced: chunk.length)
        }
        let end = chunk.offset + chunk.count
        guard end <= chunk.length, chunk.count > 0 || chunk.length == 0,
            chunk.offset == 0 || chunk.length == partialLength
        else { throw .violation("a chunk that does not fit its message") }
        if !isMidMessage { try beginMessage(remainingBytes: chunk.length - chunk.offset) }
        partialLength = chunk.length
        isMidMessage = !chunk.isLast
        if chunk.isLast {
            (furthest, toldOffset) = (0, 0)
            if partial.isEmpty {
                keep(chunk.byteArray)
            } else {
                partial += chunk.bytes
                keep(exchange(&partial, with: []))
            }
            return true
        }
        if partial.isEmpty { partial = chunk.byteArray } else { partial += chunk.bytes }
        guard end > furthest else { return false }
        furthest = end
        return true
    }

    /// Handles the peer's end. Returns whether this is the first end of the peer: any other end
    /// changes nothing for the program.
    mutating func finish(at number: UInt64) throws(DeliveryError) -> Bool {
        guard !hasEndOnLink else { throw .violation("a second end on a link") }
        guard held < Resume.greatestNumber, number == held + 1, partial.isEmpty, !isMidMessage
        else { throw .violation("an end that does not follow the last message") }
        try beginMessage(remainingBytes: 0)
        let isFirst = !hasReceivedEnd
        (hasEnd, hasEndOnLink, hasReceivedEnd) = (true, true, true)
        keep(nil)
        reachEnd()
        return isFirst
    }

    /// Throws if the peer's end has arrived before. `what` names what has arrived now.
    func refuseAfterEnd(_ what: String) throws(DeliveryError) {
        guard hasReceivedEnd else { return }
        // A peer that ended in another epoch has lost its state since then.
        guard hasEnd || hasConfirmedEnd else { throw .sessionLost }
        throw .violation("\(what) after the end")
    }

    /// Checks that the peer has credit for a message or an end, and adds its cost to ``cost``.
    private mutating func beginMessage(remainingBytes: Int) throws(DeliveryError) {
        guard cost < granted else { throw .violation("a message without credit") }
        cost += UInt64(remainingBytes + OutgoingMessages.overhead)
    }

    /// Queues a whole message for the program; nil is the peer's end.
    private mutating func keep(_ bytes: consuming [UInt8]?) {
        held += 1
        let message = Message(place: Place(epoch: epoch, number: held), bytes: bytes)
        waitingBytes += message.cost
        waiting.append(message)
    }

    // MARK: - The program

    mutating func take() -> [UInt8]? {
        guard let message = takeFirst() else { return nil }
        taken.append(message.place)
        return message.bytes
    }

    /// Takes the next message and confirms it. All messages before it must have been confirmed.
    /// `hasMoved` says whether ``confirmed`` has changed.
    mutating func takeConfirmed() -> (bytes: [UInt8]?, hasMoved: Bool) {
        precondition(taken.isEmpty, "messages are confirmed in order")
        guard let message = takeFirst() else { return (nil, false) }
        return (message.bytes, confirm(message.place))
    }

    private mutating func takeFirst() -> Message? {
        guard hasMessage, let message = waiting.popFirst() else { return nil }
        waitingBytes -= message.cost
        takenCount += 1
        reachEnd()
        return message
    }

    var hasUnconfirmed: Bool { !taken.isEmpty }
    /// How many messages the program has confirmed in this instance.
    var confirmedCount: UInt64 { takenCount - UInt64(taken.count) }
    var hasMessage: Bool { !hasReachedEnd && waiting.first?.bytes != nil }

    /// Removes the peer's end from the queue, if the program has taken everything before the end.
    private mutating func reachEnd() {
        while let next = waiting.first, next.bytes == nil {
            _ = waiting.popFirst()
            waitingBytes -= next.cost
            reachedEnd = next.place
            hasReachedEnd = true
        }
    }

    /// Confirms the peer's end, if the program has confirmed everything before it. Returns whether
    /// ``confirmed`` has changed.
    mutating func confirmEnd() -> Bool {
        guard taken.isEmpty, let end = reachedEnd.take(), end.epoch == epoch else { return false }
        confirmed = max(confirmed, end.number)
        endEpoch = epoch
        return true
    }
    /// Whether this side has confirmed the peer's end in the epoch in which the peer sends now. A
    /// peer whose state was lost begins a new epoch, and its end has to be confirmed again.
    var hasConfirmedEnd: Bool { endEpoch == epoch }

    /// Confirms the messages up to the `count`-th that the program has taken. Returns whether
    /// ``confirmed`` has changed.
    mutating func confirm(through count: UInt64) -> Bool {
        precondition(count <= takenCount, "a message is confirmed after it was taken")
        let confirmedCount = confirmedCount
        guard count > confirmedCount else { return false }
        var hasMoved = false
        for _ in confirmedCount..<count {
            if let place = taken.popFirst(), confirm(place) { hasMoved = true }
        }
        return hasMoved
    }

    /// Confirms the message at `place`, and returns whether ``confirmed`` has changed. A message of
    /// an earlier epoch leaves ``confirmed`` unchanged. So does a message that the program took
    /// before ``begin(_:confirmed:)`` set ``confirmed`` to a higher number.
    private mutating func confirm(_ place: Place) -> Bool {
        guard place.epoch == epoch, place.number > confirmed else { return false }
        confirmed = place.number
        return true
    }
}
