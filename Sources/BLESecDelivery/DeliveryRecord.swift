/// What two endpoints send each other over a channel; `docs/delivery.md`, "Records".
package enum DeliveryRecord: Sendable, Equatable {
    /// What each side sends first on every link.
    indirect case resume(Resume)
    /// A part of a message.
    case chunk(Chunk)
    /// The sender's program sends no more messages. The number is one more than the number of the
    /// last message.
    case finish(number: UInt64)
    /// The receiver's program has confirmed all messages of the epoch up to this number.
    case confirm(epoch: Identifier, through: UInt64)
    /// The sender begins this epoch; the sender's next message has the number 1.
    case epoch(Identifier)
    /// The receiver of this record may begin a message while all messages that it has begun on this
    /// link cost less than this number; `docs/delivery.md`, "Records", defines the cost.
    case credit(UInt64)
    /// A record about streams.
    case stream(StreamRecord)
}

/// One side's state, as it is at the beginning of a link.
package struct Resume: Sendable, Equatable {
    /// Identifies this side's instance: one life of the endpoint's state (`docs/delivery.md`).
    package var token: Identifier
    /// The token of the last peer instance that is known to have received a `resume` of this side.
    package var peerToken: Identifier
    /// The epoch in which this side sends.
    package var epoch: Identifier
    /// The number of the first message that this side keeps; if it keeps none, the number of its
    /// next message.
    package var first: UInt64
    /// The epoch of the peer to which ``positions`` belong.
    package var peerEpoch: Identifier
    package var positions: Positions
    /// The first `credit` of the link.
    package var credit: UInt64
    package var streams: StreamSummary

    /// The greatest number in a record: a number has at most 62 bits.
    package static let greatestNumber: UInt64 = (1 << 62) - 1

    package init(
        token: Identifier, peerToken: Identifier, epoch: Identifier, first: UInt64,
        peerEpoch: Identifier, positions: Positions, credit: UInt64,
        streams: StreamSummary = StreamSummary(window: 1, firstLimit: 0, limit: 0)
    ) {
        self.token = token
        self.peerToken = peerToken
        self.epoch = epoch
        self.first = first
        self.peerEpoch = peerEpoch
        self.positions = positions
        self.credit = credit
        self.streams = streams
    }
}

/// How much of an epoch its receiver has.
package struct Positions: Sendable, Equatable {
    /// The program has confirmed all messages up to this number.
    package var confirmed: UInt64 = 0
    /// All messages up to this number have arrived.
    package var held: UInt64 = 0
    /// How many bytes of message `held` + 1 have arrived.
    package var offset = 0

    package init(confirmed: UInt64 = 0, held: UInt64 = 0, offset: Int = 0) {
        self.confirmed = confirmed
        self.held = held
        self.offset = offset
    }
}

/// A part of a message. The part with the last byte ends the message.
package struct Chunk: Sendable, Equatable {
    package var number: UInt64
    /// Where the part begins in the message.
    package var offset: Int
    /// The length of the whole message.
    package var length: Int
    /// The array that has the part's bytes in `range`. A received part has an array of its own; a
    /// part to be sent shares the array of the whole message.
    private let array: [UInt8]
    private let range: Range<Int>

    /// A part that was received.
    package init(number: UInt64, offset: Int, length: Int, bytes: [UInt8]) {
        self.number = number
        self.offset = offset
        self.length = length
        array = bytes
        range = 0..<bytes.count
    }

    /// A part of this message, to be sent.
    init(number: UInt64, _ range: Range<Int>, of message: [UInt8]) {
        self.number = number
        offset = range.lowerBound
        length = message.count
        array = message
        self.range = range
    }

    package var count: Int { range.count }
    package var isLast: Bool { offset + count == length }
    package var bytes: ArraySlice<UInt8> { array[range] }
    /// The bytes as an array. If the part was received, they are not copied.
    var byteArray: [UInt8] { count == array.count ? array : Array(bytes) }

    package static func == (one: Chunk, other: Chunk) -> Bool {
        (one.number, one.offset, one.length) == (other.number, other.offset, other.length)
            && one.bytes == other.bytes
    }
}
