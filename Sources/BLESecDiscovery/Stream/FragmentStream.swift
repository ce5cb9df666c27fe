internal import BLESecLinks

/// One side of the byte stream over GATT, without I/O: fragments and bytes go in and come out. The
/// value of each GATT write or notification is one fragment.
///
/// Fragments may arrive in any order and more than once. Each side accepts a window of fragments,
/// counted from the first fragment that has not been read completely, and tells the peer the limit:
/// the first number beyond that window. So each side holds a bounded number of the peer's bytes. A
/// fragment that does not fit into the stream is ignored: it may be late, or come from another
/// device nearby. Once a later fragment has arrived, the first missing fragment must arrive within
/// ``gapTimeout``; otherwise the stream fails.
struct FragmentStream: Sendable {
    /// The most fragments that one side stores until they are read.
    static let window: UInt16 = 32
    /// The greatest distance of the peer's limit from the number of the next fragment to send; a
    /// limit further ahead is ignored.
    private static let furthestLimit: UInt16 = 1_024
    /// How long a fragment may be missing after a later one has arrived.
    static let gapTimeout = Duration.seconds(10)

    /// The number by which both sides identify the stream.
    let id: UInt16
    /// The largest value that this side accepts, in bytes.
    private let acceptedSize: Int
    /// The largest value that this side can send, in bytes.
    private let sendableSize: Int

    // Sending
    /// The largest value that may be sent, in bytes; nil until the peer has sent the size that it
    /// accepts.
    private var valueSize: Int?
    /// The number of the next data fragment.
    private var nextNumber: UInt16 = 0
    /// The first number beyond the peer's window.
    private var peerLimit: UInt16 = 0
    /// Whether ``opening()`` was called.
    private(set) var hasSentOpening = false
    private var hasSentEnd = false

    // Receiving
    /// The stored fragments, each at its number modulo the window.
    private var slots = [ArraySlice<UInt8>?](repeating: nil, count: Int(window))
    /// The number of the first fragment that has not been read completely.
    private var firstNumber: UInt16 = 0
    /// How many fragments are stored from `firstNumber` up to the first gap.
    private var readyCount: UInt16 = 0
    /// How many fragments are stored in all.
    private var storedCount: UInt16 = 0
    /// The limit that was last sent to the peer.
    private var grantedLimit: UInt16 = 0
    /// The number that follows the peer's last data fragment; nil until the peer has ended the
    /// stream.
    private var endNumber: UInt16?
    /// The time at which the stream fails, unless the first missing fragment arrives before.
    private(set) var deadline = MonotonicTime.distantFuture

    /// Makes the dialer's side. `sendableSize` is the largest value that can be written, and
    /// `acceptedSize` the largest value that a notification can carry, in bytes.
    init(dialing id: UInt16, sendableSize: Int, acceptedSize: Int) {
        self.id = id
        self.sendableSize = Self.clamp(sendableSize)
        self.acceptedSize = Self.clamp(acceptedSize)
    }

    /// Makes the listener's side of a stream that a dialer opens; nil unless the fragment is an
    /// opening.
    init?(answering opening: StreamFragment) {
        guard opening.number == 0, opening.acceptedSize != nil else { return nil }
        id = opening.stream
        sendableSize = StreamFragment.largestSize
        acceptedSize = StreamFragment.largestSize
        peerOpened(opening)
    }

    private static func clamp(_ size: Int) -> Int {
        min(max(size, StreamFragment.smallestSize), StreamFragment.largestSize)
    }

    // MARK: - Sending

    /// Whether the peer has opened the stream, so that this side knows the size that the peer
    /// accepts.
    var isOpen: Bool { valueSize != nil }
    /// The number of stream bytes that fit into one fragment.
    var room: Int { (valueSize ?? StreamFragment.smallestSize) - StreamFragment.headerSize }
    var canSend: Bool { isOpen && !hasSentEnd && nextNumber != peerLimit }

    /// This side's first fragment, which opens the stream.
    mutating func opening() -> [UInt8] {
        hasSentOpening = true
        return fragment(.open, number: 0, StreamFragment.openingPayload(acceptedSize: acceptedSize))
    }

    /// Cuts the beginning of `bytes` into fragments, as far as the peer's window allows, and
    /// returns the number of bytes that were taken.
    mutating func send(_ bytes: Span<UInt8>, to fragments: inout [[UInt8]]) -> Int {
        var taken = 0
        while taken < bytes.count, canSend {
            let piece = bytes.extracting(taken..<min(bytes.count, taken + room))
            var payload: [UInt8] = []
            payload.reserveCapacity(piece.count)
            for index in piece.indices { payload.append(piece[index]) }
            fragments.append(fragment(.data, number: nextNumber, payload[...]))
            nextNumber &+= 1
            taken += piece.count
        }
        return taken
    }

    /// A fragment with a new limit for the peer; nil if less than half a window has been read since
    /// the last limit was sent, or the stream is not open, or after ``finish()``.
    mutating func grant() -> [UInt8]? {
        let readSinceGrant = firstNumber &+ Self.window &- grantedLimit
        guard isOpen, !hasSentEnd, readSinceGrant >= Self.window / 2 else { return nil }
        return fragment(.grant, number: nextNumber)
    }

    /// The last fragment, after which nothing is sent.
    mutating func finish() -> [UInt8] {
        hasSentEnd = true
        return fragment(.end, number: nextNumber)
    }

    private mutating func fragment(
        _ kind: StreamFragment.Kind, number: UInt16, _ payload: ArraySlice<UInt8> = []
    ) -> [UInt8] {
        grantedLimit = firstNumber &+ Self.window
        return StreamFragment(
            kind, stream: id, number: number, limit: grantedLimit, payload: payload
        ).bytes
    }

    // MARK: - Receiving

    /// Handles a fragment from the peer.
    ///
    /// - Returns: whether the fragment was accepted. The limit in a data fragment of this stream is
    ///   used even if the fragment is outside of the window.
    @discardableResult
    mutating func take(_ fragment: StreamFragment, at now: MonotonicTime) -> Bool {
        guard fragment.stream == id,
            StreamFragment.headerSize + fragment.payload.count <= acceptedSize
        else { return false }
        switch fragment.kind {
        case .open:
            guard !isOpen, fragment.number == 0 else { return false }
            peerOpened(fragment)
            return true
        case .grant: return raiseLimit(fragment.limit)
        case .data:
            raiseLimit(fragment.limit)
            let distance = fragment.number &- firstNumber
            let slot = Int(fragment.number % Self.window)
            guard distance < Self.window, slots[slot] == nil,
                endNumber.map({ distance < $0 &- firstNumber }) ?? true
            else { return false }
            slots[slot] = fragment.payload
            storedCount += 1
        case .end:
            // The end cannot lie beyond the window, or before a fragment that has arrived.
            guard endNumber == nil, fragment.number &- firstNumber <= Self.window,
                fragment.number &- firstNumber >= storedExtent
            else { return false }
            endNumber = fragment.number
        }
        watchGap(now)
        return true
    }

    /// The distance from `firstNumber` to the number after the last stored fragment.
    private var storedExtent: UInt16 {
        let last = (0..<Self.window).last { slots[Int((firstNumber &+ $0) % Self.window)] != nil }
        return last.map { $0 + 1 } ?? 0
    }

    private mutating func peerOpened(_ opening: StreamFragment) {
        guard let acceptedByPeer = opening.acceptedSize else { return }
        valueSize = min(acceptedByPeer, sendableSize)
        raiseLimit(opening.limit)
    }

    @discardableResult
    private mutating func raiseLimit(_ limit: UInt16) -> Bool {
        // Fragments may arrive out of order, so only a higher limit is new.
        let distance = limit &- nextNumber
        guard isOpen, distance <= Self.furthestLimit, distance > peerLimit &- nextNumber
        else { return false }
        peerLimit = limit
        return true
    }

    /// Updates ``readyCount``, and ``deadline`` for the first missing fragment.
    private mutating func watchGap(_ now: MonotonicTime) {
        let oldReadyCount = readyCount
        while readyCount < storedCount,
            slots[Int((firstNumber &+ readyCount) % Self.window)] != nil
        { readyCount += 1 }
        let isMissing =
            readyCount < storedCount || endNumber.map { $0 != firstNumber &+ readyCount } ?? false
        guard isMissing else { return deadline = .distantFuture }
        if readyCount != oldReadyCount || deadline == .distantFuture {
            deadline = now.advanced(by: Self.gapTimeout)
        }
    }

    var hasBytes: Bool { readyCount > 0 }
    /// Whether the peer has ended the stream; some of its fragments may still be missing.
    var hasPeerEnded: Bool { endNumber != nil }
    /// Whether every fragment up to the peer's end has arrived.
    var hasReceivedAll: Bool { endNumber == firstNumber &+ readyCount }
    /// Whether the peer has ended the stream, and all of it was read.
    var isReadToEnd: Bool { endNumber == firstNumber }

    /// Moves received bytes to `buffer`, in order, as far as there is room.
    mutating func read(into buffer: inout OutputSpan<UInt8>) {
        while readyCount > 0, !buffer.isFull {
            let slot = Int(firstNumber % Self.window)
            guard let payload = slots[slot] else { return }
            let piece = payload.prefix(buffer.freeCapacity)
            for byte in piece { buffer.append(byte) }
            let unread = payload.dropFirst(piece.count)
            if unread.isEmpty {
                slots[slot] = nil
                firstNumber &+= 1
                readyCount -= 1
                storedCount -= 1
            } else {
                slots[slot] = unread
            }
        }
    }
}
