/// What two endpoints send each other about streams; `docs/delivery.md`, "Streams". `id` is the
/// stream's number on the link. *Sender* and *receiver* are those of one direction of the stream.
package enum StreamRecord: Sendable, Equatable {
    /// The side that sends this record opens its next stream.
    case open(id: UInt64, FramePriority, label: String)
    /// Bytes of the direction, from this offset on.
    case bytes(id: UInt64, offset: UInt64, ArraySlice<UInt8>)
    /// The sender has finished the direction, which has this many bytes.
    case fin(id: UInt64, size: UInt64)
    /// The sender has given up the direction.
    case reset(id: UInt64, code: UInt32)
    /// The receiver wants no more bytes of the direction.
    case stop(id: UInt64, code: UInt32)
    /// The receiver has this many bytes of the direction, and takes bytes up to the offset `limit`.
    case limit(id: UInt64, received: UInt64, limit: UInt64)
    /// The receiver's program has taken everything, or knows of the reset.
    case done(id: UInt64)
    /// How many streams the side that gets this record may open in all.
    case streams(limit: UInt64)

    /// The greatest length of a direction, in bytes.
    package static let greatestOffset = Resume.greatestNumber
    /// The longest label, in bytes of UTF-8.
    package static let longestLabel = 255
}

/// The class of a frame. Frames of a more urgent class leave first, but a class that waits still
/// gets a share of the frames.
package enum FramePriority: UInt8, Sendable, CaseIterable, Comparable {
    case urgent, normal, bulk

    package static func < (left: FramePriority, right: FramePriority) -> Bool {
        left.rawValue < right.rawValue
    }
}

/// What a `resume` says of the streams that both instances share.
package struct StreamSummary: Sendable, Equatable {
    /// A stream that is not over for the sender of the summary.
    package struct Entry: Sendable, Equatable {
        package var id: UInt64
        package var progress: Progress

        package init(id: UInt64, _ progress: Progress) {
            self.id = id
            self.progress = progress
        }
    }

    /// How much the sender of the summary has of the direction in which its peer sends.
    package enum Progress: Sendable, Equatable {
        /// This many bytes have arrived, and bytes up to the offset `limit` may be sent.
        case receiving(count: UInt64, limit: UInt64)
        /// Everything up to the end has arrived, and the program has not taken it yet.
        case complete
        /// The program has taken everything, or knows of the reset.
        case done
    }

    /// How many bytes of a new stream the sender of the summary takes at first; at least 1.
    package var window: UInt64
    /// How many streams a new instance of the peer may open at first.
    package var firstLimit: UInt64
    /// The token of the peer's instance to which the next fields belong; none if there was no peer
    /// yet.
    package var peerToken = Identifier.none
    /// How many streams of that instance have arrived.
    package var opened: UInt64 = 0
    /// How many streams that instance may open in all.
    package var limit: UInt64
    package var entries: [Entry] = []

    package init(
        window: UInt64, firstLimit: UInt64, peerToken: Identifier = .none, opened: UInt64 = 0,
        limit: UInt64, entries: [Entry] = []
    ) {
        self.window = window
        self.firstLimit = firstLimit
        self.peerToken = peerToken
        self.opened = opened
        self.limit = limit
        self.entries = entries
    }

    /// The most entries: ``StreamLimits/mostStreams`` for the streams of each side.
    package static let mostEntries = 2 * StreamLimits.mostStreams
}

/// The bounds of an endpoint's streams.
package struct StreamLimits: Sendable {
    /// How many streams of each side may be open.
    package var streams = 64
    /// How many streams of the peer may wait for the program.
    package var waiting = 16
    /// How many bytes this side keeps of one direction of a stream.
    package var window = 64 << 10

    /// The most streams of each side that any configuration allows; a `resume` lists them all.
    package static let mostStreams = 256

    package init() {}
}
