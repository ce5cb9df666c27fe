internal import BLESecLinks

/// One end of the byte stream over GATT, without any I/O: fragments and bytes go in and come out.
///
/// Fragments may arrive in any order and more than once. Each end takes as many as its window has
/// places, from the first that has not been read yet, and tells the other how far that goes; so what
/// one end holds for the other is bounded, whatever comes. Whatever does not fit into the stream is
/// passed over: it may be late, or anybody's who is near. If it was a fragment that was wanted, it
/// is missed, and what is missed for long ends the stream.
struct FragmentStream: Sendable {
    /// Fragments that wait here to be read, or for one in front of them.
    static let window: UInt16 = 32
    /// The furthest that a peer's limit lies ahead.
    private static let furthestLimit: UInt16 = 1_024
    /// How long a fragment may be missed while others behind it are there.
    static let gapTimeout = Duration.seconds(10)

    /// By which both ends know the stream.
    let id: UInt16
    /// The largest value that this end takes.
    private let takenSize: Int
    /// The largest value that this end can send.
    private let sentSize: Int

    // Sending

    /// The largest value that may be sent; nil until the peer has said what it takes.
    private(set) var size: Int?
    private var next: UInt16 = 0
    private var limit: UInt16 = 0
    private var hasSaidEnd = false

    // Receiving

    private var slots = [ArraySlice<UInt8>?](repeating: nil, count: Int(window))
    /// The first fragment that has not been read to its end.
    private var first: UInt16 = 0
    /// How many there are from `first` on with none missing, and how many in all.
    private var ready: UInt16 = 0
    private var held: UInt16 = 0
    /// How far the peer was told that it may go.
    private var granted: UInt16 = 0
    private var end: UInt16?
    /// When the stream has failed unless what is missing has come.
    private(set) var deadline = MonotonicTime.distantFuture

    /// The dialer's end.
    ///
    /// - Parameters:
    ///   - sending: the largest value that can be written.
    ///   - taking: the largest value that can be notified.
    init(dialing id: UInt16, sending: Int, taking: Int) {
        self.id = id
        sentSize = Self.clamp(sending)
        takenSize = Self.clamp(taking)
    }

    /// The listener's end of a stream that a dialer opens; nil for another fragment.
    init?(answering opening: StreamFragment) {
        guard opening.number == 0, opening.opening != nil else { return nil }
        id = opening.stream
        sentSize = StreamFragment.largest
        takenSize = StreamFragment.largest
        peerOpened(opening)
    }

    private static func clamp(_ size: Int) -> Int {
        min(max(size, StreamFragment.smallest), StreamFragment.largest)
    }

    // MARK: - Sending

    /// Whether both ends know what the other takes.
    var isOpen: Bool { size != nil }

    /// How many bytes of the stream go into one fragment.
    var room: Int { (size ?? StreamFragment.smallest) - StreamFragment.headerSize }

    /// Whether a fragment could be sent now.
    var canSend: Bool { isOpen && !hasSaidEnd && next != limit }

    /// The first fragment of this end.
    mutating func opening() -> [UInt8] {
        fragment(.open, number: 0, StreamFragment.opening(taking: takenSize))
    }

    /// Cuts the front of `bytes` into fragments, as far as the peer's window allows.
    ///
    /// - Returns: how many bytes were taken.
    mutating func send(_ bytes: Span<UInt8>, to fragments: inout [[UInt8]]) -> Int {
        var taken = 0
        while taken < bytes.count, canSend {
            let piece = bytes.extracting(taken..<min(bytes.count, taken + room))
            var payload: [UInt8] = []
            payload.reserveCapacity(piece.count)
            for index in piece.indices { payload.append(piece[index]) }
            fragments.append(fragment(.data, number: next, payload[...]))
            next &+= 1
            taken += piece.count
        }
        return taken
    }

    /// A limit for the peer, when enough has been read since the last one.
    mutating func grant() -> [UInt8]? {
        guard isOpen, !hasSaidEnd, first &+ Self.window &- granted >= Self.window / 2 else {
            return nil
        }
        return fragment(.grant, number: next)
    }

    /// The last fragment: nothing is sent behind it.
    mutating func finish() -> [UInt8] {
        hasSaidEnd = true
        return fragment(.end, number: next)
    }

    private mutating func fragment(
        _ kind: StreamFragment.Kind, number: UInt16, _ payload: ArraySlice<UInt8> = []
    ) -> [UInt8] {
        granted = first &+ Self.window
        return StreamFragment(kind, stream: id, number: number, limit: granted, payload: payload)
            .bytes
    }

    // MARK: - Receiving

    /// Takes a fragment that came from the peer.
    ///
    /// - Returns: whether it was wanted. One that was not is forgotten, but for its limit.
    @discardableResult
    mutating func take(_ fragment: StreamFragment, at now: MonotonicTime) -> Bool {
        guard fragment.stream == id,
            StreamFragment.headerSize + fragment.payload.count <= takenSize
        else { return false }
        switch fragment.kind {
        case .open:
            guard !isOpen, fragment.number == 0 else { return false }
            peerOpened(fragment)
            return true
        case .grant: return raiseLimit(fragment.limit)
        case .data:
            raiseLimit(fragment.limit)
            guard place(fragment) else { return false }
            watchGap(now)
            return true
        case .end:
            // Beyond what was granted, or in front of what is here, nobody can have stopped.
            guard end == nil, fragment.number &- first <= Self.window,
                fragment.number &- first >= highest
            else { return false }
            end = fragment.number
            watchGap(now)
            return true
        }
    }

    /// The fragments up to the last one that is here, counted from `first`.
    private var highest: UInt16 {
        let last = (0..<Self.window).last { slots[Int((first &+ $0) % Self.window)] != nil }
        return last.map { $0 + 1 } ?? 0
    }

    private mutating func peerOpened(_ opening: StreamFragment) {
        guard let taken = opening.opening else { return }
        size = min(taken, sentSize)
        raiseLimit(opening.limit)
    }

    @discardableResult
    private mutating func raiseLimit(_ limit: UInt16) -> Bool {
        // Fragments overtake each other: only a limit that lies further ahead is news.
        guard isOpen, limit &- next <= Self.furthestLimit,
            limit &- next > self.limit &- next
        else { return false }
        self.limit = limit
        return true
    }

    private mutating func place(_ fragment: StreamFragment) -> Bool {
        let distance = fragment.number &- first
        let slot = Int(fragment.number % Self.window)
        guard distance < Self.window, slots[slot] == nil,
            end.map({ distance < $0 &- first }) ?? true
        else { return false }
        slots[slot] = fragment.payload
        held += 1
        return true
    }

    private mutating func watchGap(_ now: MonotonicTime) {
        let before = ready
        while ready < held, slots[Int((first &+ ready) % Self.window)] != nil { ready += 1 }
        let isMissing = ready < held || end.map { $0 != first &+ ready } ?? false
        guard isMissing else { return deadline = .distantFuture }
        if ready != before || deadline == .distantFuture {
            deadline = now.advanced(by: Self.gapTimeout)
        }
    }

    /// Whether there is something to read.
    var hasBytes: Bool { ready > 0 }

    /// Whether the peer has ended the stream, though not all of it may have come.
    var hasEnd: Bool { end != nil }

    /// Whether all has come that will.
    var hasAll: Bool { end == first &+ ready }

    /// Whether the peer has ended the stream, and all of it was read.
    var isOver: Bool { end == first }

    /// Moves what came to `buffer`, in order, as far as there is room.
    mutating func read(into buffer: inout OutputSpan<UInt8>) {
        while ready > 0, !buffer.isFull {
            let slot = Int(first % Self.window)
            guard let payload = slots[slot] else { return }
            let piece = payload.prefix(buffer.freeCapacity)
            for byte in piece { buffer.append(byte) }
            let rest = payload.dropFirst(piece.count)
            if rest.isEmpty {
                slots[slot] = nil
                first &+= 1
                ready -= 1
                held -= 1
            } else {
                slots[slot] = rest
            }
        }
    }
}
