/// The peer's messages: those that wait for the program, the incomplete one, and how far the program
/// has taken and confirmed them.
struct IncomingMessages: Sendable {
    /// The peer's epoch; none before its first `resume`.
    private(set) var epoch: Identifier
    /// Earlier epochs of the peer.
    private(set) var pastEpochs: Set<Identifier>
    /// The program has confirmed all messages of the epoch up to this number.
    private(set) var confirmed: UInt64
    private(set) var held: UInt64
    private var partial: [UInt8] = []
    private var partialLength = 0
    private var waiting: ArraySlice<Message> = []
    /// Messages that the program has taken and not confirmed, oldest first.
    private var taken: ArraySlice<Place> = []
    /// How many messages the program has taken in this instance.
    private(set) var takenCount: UInt64 = 0
    /// What the messages that the peer began on this link cost, and what this side has allowed.
    private var cost: UInt64 = 0
    private var granted: UInt64 = 0
    private var isMidMessage = false
    private let window: Int
    private let longest: Int

    private struct Place { var epoch: Identifier, number: UInt64 }
    private struct Message { var place: Place, bytes: [UInt8] }

    init(_ stored: StoredEndpoint, window: Int, longest: Int) {
        epoch = stored.peerEpoch
        pastEpochs = Set(stored.pastEpochs)
        confirmed = stored.confirmed
        held = stored.confirmed
        self.window = window
        self.longest = longest
    }

    /// The bytes of the messages that wait for the program, with ``OutgoingMessages/overhead`` for
    /// each.
    private var waitingBytes = 0
    /// The bytes that are kept here.
    var heldBytes: Int { waitingBytes + partial.count }
    var positions: Positions {
        Positions(confirmed: confirmed, held: held, offset: partial.count)
    }

    // MARK: - A link

    /// Begins a link, and returns its first credit.
    mutating func linkBegan() -> UInt64 {
        (cost, granted) = (0, 0)
        isMidMessage = false
        granted = room
        return granted
    }

    /// The rest of a message that has begun needs no room: it must end for others to be taken.
    private var room: UInt64 { cost + UInt64(max(0, window - waitingBytes)) }

    /// A credit that is worth a record; nil if there is none.
    mutating func takeCredit() -> UInt64? {
        let isPeerStopped = granted <= cost
        guard room >= granted + UInt64(window / 4) || isPeerStopped && room > granted else {
            return nil
        }
        granted = room
        return granted
    }

    /// The peer sends in another epoch, after `confirmed` messages of it that this side no longer
    /// knows. Whole messages of the last epoch stay for the program.
    mutating func begin(_ epoch: Identifier, after confirmed: UInt64) {
        if self.epoch != .none, self.epoch != epoch { pastEpochs.insert(self.epoch) }
        self.epoch = epoch
        self.confirmed = confirmed
        held = confirmed
        dropPartial()
    }

    private mutating func dropPartial() {
        partial = []
        isMidMessage = false
    }

    mutating func append(_ chunk: Chunk) throws(DeliveryError) {
        guard held < Resume.greatestNumber, chunk.number == held + 1, chunk.offset == partial.count
        else {
            throw .violation("a chunk that does not continue the last one")
        }
        guard chunk.length <= longest else { throw .tooLong(chunk.length) }
        let end = chunk.offset + chunk.bytes.count
        guard end <= chunk.length, chunk.bytes.count > 0 || chunk.length == 0,
            chunk.offset == 0 || chunk.length == partialLength
        else { throw .violation("a chunk that does not fit its message") }
        if !isMidMessage {
            guard cost < granted else { throw .violation("a message without credit") }
            cost += UInt64(chunk.length - chunk.offset + OutgoingMessages.overhead)
        }
        partialLength = chunk.length
        partial += chunk.bytes
        isMidMessage = !chunk.isLast
        guard chunk.isLast else { return }
        held += 1
        waitingBytes += partial.count + OutgoingMessages.overhead
        waiting.append(Message(place: Place(epoch: epoch, number: held), bytes: partial))
        dropPartial()
    }

    // MARK: - The program

    mutating func take() -> [UInt8]? {
        guard !waiting.isEmpty else { return nil }
        let message = waiting.removeFirst()
        waitingBytes -= message.bytes.count + OutgoingMessages.overhead
        taken.append(message.place)
        takenCount += 1
        return message.bytes
    }

    /// Confirms the messages up to the `count`-th that the program has taken. Returns whether the
    /// position in the peer's epoch has moved.
    mutating func confirm(through count: UInt64) -> Bool {
        precondition(count <= takenCount, "a message is confirmed after it was taken")
        let open = takenCount - UInt64(taken.count)
        guard count > open else { return false }
        let places = taken.prefix(Int(count - open))
        taken.removeFirst(places.count)
        guard let number = places.last(where: { $0.epoch == epoch })?.number else { return false }
        confirmed = number
        return true
    }
}
