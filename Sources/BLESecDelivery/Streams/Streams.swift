/// The streams that this side's instance and the peer's instance share: ordered bytes in both
/// directions, which outlive links (`docs/delivery.md`, "Terms" and "Streams"). The streams end
/// when either instance ends.
package final class Streams {
    /// Identifies a stream on this side, also before the stream has a number on the link.
    package typealias Handle = UInt64

    /// Why a direction of a stream does not reach its regular end.
    package enum Failure: Error, Equatable {
        /// The peer or this side has reset or stopped a direction.
        case reset(code: UInt32)
        /// The peer or this side has begun a new instance.
        case sessionLost
    }

    /// Whether this side's key has the lower or the higher fingerprint. The lower side opens the
    /// streams with even numbers. If a side has no fingerprint, the tokens are compared.
    package enum Order: Sendable { case lower, higher }

    private struct Stream {
        var number: Number
        let label: String
        let priority: FramePriority
        var sending: SendingHalf
        var receiving: ReceivingHalf
        /// Whether the stream's `open` was sent or received, so that the peer may know of the stream.
        var isOpened = false
        var isLost = false
        /// Whether the program has the stream, or will get it.
        var belongsToProgram = true
        /// Whether the stream is in `controls`.
        var isInControls = false
        /// Whether the stream is in the queue of its priority in `ready`.
        var isReady = false
        /// Whether the stream is in `touched`.
        var isTouched = false

        /// Whether the stream is lost, or each side has told the other that it is done receiving.
        var isOver: Bool { isLost || sending.isDone && receiving.hasToldDone }

        /// Returns the queues to which the caller now has to add the stream, and marks the stream as
        /// being in them: `hasControl` stands for `controls`, and `data` for the queue of this
        /// priority in `ready`. Also returns whether the stream is over.
        mutating func joinQueues() -> (hasControl: Bool, data: FramePriority?, isOver: Bool) {
            guard !isOver else { return (false, nil, true) }
            guard isOpened else { return (false, nil, false) }
            let hasControl = !isInControls && (receiving.owesRecord || sending.owesEnd)
            if hasControl { isInControls = true }
            let hasData = !isReady && sending.hasBytes
            if hasData { isReady = true }
            return (hasControl, hasData ? priority : nil, false)
        }
    }

    /// Which side opened a stream, and how many streams that side had opened before.
    private struct Number: Hashable, Comparable {
        var isOwn: Bool
        var index: UInt64

        static func < (left: Number, right: Number) -> Bool {
            (left.index, left.isOwn ? 0 : 1) < (right.index, right.isOwn ? 0 : 1)
        }
    }

    private let limits: StreamLimits
    // To save time, exclusive access to the most used properties is checked in debug builds only.
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    private var streams: [Handle: Stream] = [:]
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    private var handles: [Number: Handle] = [:]
    private var lastHandle: Handle = 0
    /// The order of the two sides' keys or tokens; nil before the first `resume` of the peer.
    private var order: Order?
    /// The token of the peer's instance, with which these streams are shared.
    private var peerToken = Identifier.none
    /// Whether the peer's instance has received a `resume` of this side's instance.
    private var hasPeerReceivedResume = false
    private var isLinked = false

    /// How many streams this side's program has opened.
    private var ownCount: UInt64 = 0
    /// How many of this side's streams the peer has, or was told of on this link.
    private var openedCount: UInt64 = 0
    /// How many of this side's streams the peer was told of on any link.
    private var toldCount: UInt64 = 0
    /// How many of this side's streams the peer is known to have.
    private var knownCount: UInt64 = 0
    /// How many streams the peer allows this side to open in all.
    private var peerLimit: UInt64 = 0
    /// How many streams the peer allows this side to open at first.
    private var peerFirstLimit: UInt64 = 0
    /// How many bytes of a new stream the peer takes at first.
    private var peerWindow: UInt64 = 0
    /// How many streams the peer has opened.
    private var peerCount: UInt64 = 0
    /// How many of the peer's streams the program has accepted.
    private var acceptedCount: UInt64 = 0
    /// How many of the peer's streams are over.
    private var peerOverCount: UInt64 = 0
    /// How many streams the peer was told that it may open in all.
    private var toldLimit: UInt64 = 0
    /// How many streams of this side are not over.
    private var ownOpen = 0

    /// Streams that have a record to send that is not data.
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    private var controls = Queue<Handle>()
    /// Streams that have data to send, in a queue for each priority.
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    private var ready: [Queue<Handle>] = [Queue(), Queue(), Queue()]
    /// Streams of the peer that the program has not accepted.
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    private var arrived = Queue<Handle>()
    /// Streams that have changed for the program, for example because bytes have arrived.
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    private var touched: [Handle] = []

    package init(_ limits: StreamLimits) {
        self.limits = limits
        toldLimit = openLimit
    }

    // MARK: - The program

    /// Whether the program can open another stream.
    package var canOpen: Bool { ownOpen < limits.streams }
    /// How many streams are not over.
    package var openCount: Int { handles.count }
    /// How many bytes of streams are kept here, in both directions.
    package var keptBytes: Int {
        streams.values.reduce(0) { $0 + $1.sending.keptCount + $1.receiving.keptCount }
    }
    /// Whether a stream of the peer waits for the program.
    package var hasArrived: Bool { !arrived.isEmpty }
    /// Whether a stream of the peer with a wanted label waits for the program.
    package func hasArrived(where isWanted: (_ label: String) -> Bool) -> Bool {
        arrived.elements.contains { streams[$0].map { isWanted($0.label) } ?? false }
    }

    package func open(_ label: String, _ priority: FramePriority) -> Handle {
        precondition(canOpen && label.utf8.count <= StreamRecord.longestLabel)
        let number = Number(isOwn: true, index: ownCount)
        ownCount += 1
        ownOpen += 1
        return add(number, label, priority)
    }

    /// Accepts the next stream that the peer has opened and whose label is wanted.
    package func accept(
        where isWanted: (_ label: String) -> Bool = { _ in true }
    ) -> (handle: Handle, label: String, priority: FramePriority)? {
        var accepted: (handle: Handle, label: String, priority: FramePriority)?
        var others = Queue<Handle>()
        while let handle = arrived.popFirst() {
            guard let stream = streams[handle] else { continue }
            guard accepted == nil, isWanted(stream.label) else {
                others.append(handle)
                continue
            }
            acceptedCount += 1
            change(handle) { $0.receiving.isAccepted = true }
            accepted = (handle, stream.label, stream.priority)
        }
        arrived = others
        return accepted
    }

    /// Queues bytes, and returns those for which there is no room.
    package func write(
        _ bytes: ArraySlice<UInt8>, to handle: Handle
    ) throws(Failure) -> ArraySlice<UInt8> {
        guard let stream = streams[handle] else { throw .sessionLost }
        if stream.isLost { throw .sessionLost }
        if let code = stream.sending.resetCode ?? stream.sending.endCode {
            throw .reset(code: code)
        }
        return change(handle) { $0.sending.write(bytes) } ?? []
    }

    /// Whether the program has finished its direction; false for an unknown stream.
    package func hasFinished(_ handle: Handle) -> Bool {
        streams[handle]?.sending.isFinished ?? false
    }

    /// The code of the peer's `reset`; without a `reset`, the code of the peer's first `stop`; nil
    /// without both. A `reset` or `stop` does not count if it comes after the direction's receiver
    /// was done with the direction.
    package func resetCode(_ handle: Handle) -> UInt32? {
        streams[handle].flatMap { $0.receiving.resetCode ?? $0.sending.stopCode }
    }

    /// Whether a program that waits for room may go on: there is room, or the stream takes no more.
    package func hasRoom(_ handle: Handle) -> Bool {
        guard let stream = streams[handle], !stream.isLost, stream.sending.isOpen else {
            return true
        }
        return stream.sending.room > 0
    }

    /// The program writes nothing more to the stream.
    package func finish(_ handle: Handle) { change(handle) { $0.sending.finish() } }

    /// Gives up this side's direction: bytes that have not arrived may never arrive.
    package func reset(_ handle: Handle, code: UInt32) {
        change(handle) { $0.sending.reset(code) }
    }

    /// Gives up this side's direction, after everything that was written is sent.
    package func resetAfterWritten(_ handle: Handle, code: UInt32) {
        change(handle) { $0.sending.resetAfterWritten(code) }
    }

    /// The next bytes, at most `most`; an empty array if none have arrived, and nil at the end.
    package func read(
        _ handle: Handle, atMost most: Int
    ) throws(Failure) -> [UInt8]? {
        guard let stream = streams[handle] else { throw .sessionLost }
        if stream.receiving.hasBytes {
            readCount += 1
            return change(handle) { $0.receiving.take(most) }
        }
        if let code = stream.receiving.resetCode ?? stream.receiving.stopCode {
            throw .reset(code: code)
        }
        if stream.receiving.isAtEnd { return nil }
        if stream.isLost { throw .sessionLost }
        return []
    }

    /// Whether the stream is lost, or the peer has reset its direction. A read then throws once the
    /// bytes that have arrived are read, unless they are everything up to the regular end.
    package func hasFailedReading(_ handle: Handle) -> Bool {
        guard let stream = streams[handle] else { return true }
        return stream.isLost || stream.receiving.resetCode != nil
    }

    /// Whether ``writeResult(_:)`` is decided, or reading the peer's direction has failed.
    package func hasEnd(_ handle: Handle) -> Bool {
        writeResult(handle) != nil || hasFailedReading(handle)
    }

    /// Whether ``read(_:atMost:)`` would return bytes or nil, or throw.
    package func canRead(_ handle: Handle) -> Bool {
        guard let stream = streams[handle] else { return true }
        return stream.receiving.hasBytes || stream.receiving.isDone || stream.isLost
            || stream.receiving.stopCode != nil
    }

    /// The program wants no more bytes of the stream.
    package func stop(_ handle: Handle, code: UInt32) {
        change(handle) { $0.receiving.stop(code) }
    }

    /// Success once the peer's program has taken everything that was written; a failure if this
    /// side's direction was reset, or if the stream was lost before that; nil while undecided.
    package func writeResult(_ handle: Handle) -> Result<Void, Failure>? {
        guard let stream = streams[handle] else { return .failure(.sessionLost) }
        if let code = stream.sending.resetCode { return .failure(.reset(code: code)) }
        if stream.sending.isDone {
            return stream.sending.endCode.map { .failure(.reset(code: $0)) } ?? .success(())
        }
        return stream.isLost ? .failure(.sessionLost) : nil
    }

    /// The program has dropped the stream: resets this side's direction unless the program has
    /// finished it, and stops the peer's direction.
    package func release(_ handle: Handle) {
        change(handle) { stream in
            stream.belongsToProgram = false
            if stream.sending.isOpen { stream.sending.reset(0) }
            stream.receiving.stop(0)
        }
    }

    /// How often ``read(_:atMost:)`` has returned bytes.
    private(set) var readCount: UInt64 = 0
    /// How often ``nextData(_:atMost:)`` has returned bytes that were never sent before on any link.
    private(set) var sentCount: UInt64 = 0

    /// Whether something has changed for the program since the last ``takeTouched()``.
    package var hasNews: Bool { hasForgotten || !touched.isEmpty }
    /// Whether a stream that is over was forgotten since the last ``takeTouched()``, so that other
    /// streams may be opened.
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    package private(set) var hasForgotten = false
    /// How many streams were lost before the peer's program had taken everything that was written.
    /// Streams whose sending direction was reset do not count.
    package private(set) var lostCount = 0

    /// The streams that have changed for the program since the last call, each once.
    package func takeTouched() -> [Handle] {
        hasForgotten = false
        guard !touched.isEmpty else { return [] }
        defer { touched = [] }
        for handle in touched { streams[handle]?.isTouched = false }
        return touched
    }

    // MARK: - Records to send

    /// Whether all streams are over.
    var isOver: Bool { handles.isEmpty }
    /// Whether `open` of a stream of this side is still to be sent, or to be sent again, on this link.
    var hasUnopened: Bool { openedCount < ownCount }
    private var canSendOpen: Bool { openedCount < min(ownCount, peerLimit) }

    /// How many streams the peer may open in all.
    private var openLimit: UInt64 {
        min(peerOverCount + UInt64(limits.streams), acceptedCount + UInt64(limits.waiting))
    }
    /// Whether the peer should get a new limit: the peer can open no more streams, or the limit has
    /// grown by at least half of the number of streams that may wait.
    private var owesLimit: Bool {
        openLimit > toldLimit
            && (toldLimit <= peerCount || openLimit >= toldLimit + UInt64(limits.waiting + 1) / 2)
    }

    /// What `resume` tells the peer about streams.
    func summary() -> StreamSummary {
        toldLimit = openLimit
        var summary = StreamSummary(
            window: UInt64(limits.window),
            firstLimit: UInt64(min(limits.streams, limits.waiting)), peerToken: peerToken,
            opened: peerCount, limit: toldLimit)
        // Sorted, so that the order of what this side sends does not depend on the dictionary.
        for (number, handle) in handles.sorted(by: { $0.key < $1.key }) where order != nil {
            guard streams[handle]?.isOpened == true else { continue }
            // Through `change`, since the summary may tell the peer that this side is done with the
            // stream, which may then be over.
            if let progress = change(handle, { $0.receiving.summary() }) {
                summary.entries.append(StreamSummary.Entry(id: id(number), progress))
            }
        }
        summary.entries.sort { $0.id < $1.id }
        return summary
    }

    /// The next record that is not data.
    func nextControl() -> StreamRecord? {
        guard isLinked else { return nil }
        if owesLimit {
            toldLimit = openLimit
            return .streams(limit: toldLimit)
        }
        if canSendOpen {
            let number = Number(isOwn: true, index: openedCount)
            openedCount += 1
            toldCount = max(toldCount, openedCount)
            guard let handle = handles[number], let stream = streams[handle] else {
                preconditionFailure("a stream that the peer does not know cannot be over")
            }
            let window = peerWindow
            change(handle) { stream in
                stream.isOpened = true
                stream.receiving.adaptStep(toPeerWindow: window)
                _ = stream.sending.resume(.receiving(count: 0, limit: window))
            }
            return .open(id: id(number), stream.priority, label: stream.label)
        }
        while let handle = controls.first {
            // A stream that the peer does not know yet is queued again after its `open`.
            guard let stream = streams[handle], !stream.isLost, stream.isOpened else {
                _ = controls.popFirst()
                streams[handle]?.isInControls = false
                continue
            }
            let id = id(stream.number)
            let record = change(handle) { stream in
                stream.receiving.takeRecord(id: id) ?? stream.sending.takeEnd(id: id)
            }
            if let record = record ?? nil { return record }
            _ = controls.popFirst()
            streams[handle]?.isInControls = false
        }
        return nil
    }

    /// The priorities at which a stream has data that can be sent now.
    func readyPriorities() -> FrameSchedule.Set {
        var priorities = FrameSchedule.Set()
        guard !handles.isEmpty else { return priorities }
        for priority in FramePriority.allCases where isReady(priority) {
            priorities.insert(priority)
        }
        return priorities
    }

    /// Whether a stream of this priority has data that can be sent now.
    private func isReady(_ priority: FramePriority) -> Bool {
        guard isLinked else { return false }
        while let handle = ready[Int(priority.rawValue)].first {
            if let stream = streams[handle], stream.isOpened, stream.sending.hasBytes {
                return true
            }
            _ = ready[Int(priority.rawValue)].popFirst()
            streams[handle]?.isReady = false
        }
        return false
    }

    /// How many bytes can be sent now by the stream whose turn it is at this priority.
    func nextLength(_ priority: FramePriority) -> Int {
        guard isReady(priority), let handle = ready[Int(priority.rawValue)].first else { return 0 }
        return streams[handle]?.sending.sendableCount ?? 0
    }

    /// The next data of this priority; streams of the same priority take turns.
    func nextData(_ priority: FramePriority, atMost most: Int) -> StreamRecord? {
        guard isReady(priority), let handle = ready[Int(priority.rawValue)].popFirst(),
            let number = streams[handle]?.number
        else { return nil }
        streams[handle]?.isReady = false
        let id = id(number)
        let record = change(handle) { stream -> StreamRecord? in
            let sentBefore = stream.sending.sentMost
            let record = stream.sending.takeBytes(id: id, atMost: most)
            if stream.sending.sentMost > sentBefore { sentCount += 1 }
            return record
        }
        return record ?? nil
    }

    // MARK: - Links

    func linkEnded() { isLinked = false }

    /// Handles `summary`, which is in the peer's `resume`. `peer` is the token of the peer's
    /// instance, and `token` that of this side's instance. Returns whether the peer has received
    /// more of a stream than this side knew.
    func receiveResume(
        _ summary: StreamSummary, from peer: Identifier, token: Identifier, _ order: Order
    ) throws(DeliveryError) -> Bool {
        guard (1...StreamRecord.greatestOffset).contains(summary.window) else {
            throw .violation("a window of streams that is empty or too large")
        }
        // Fields that belong to another instance of this side have no meaning.
        let isShared = summary.peerToken == token
        let isNewInstance = peer != peerToken
        let endsSharing = hasPeerReceivedResume && !isShared
        if peerToken != .none, isNewInstance || endsSharing { lose() }
        let hasSameBounds = summary.window == peerWindow && summary.firstLimit == peerFirstLimit
        guard peer != peerToken || hasSameBounds else {
            throw .violation("a window or first limit of streams that has changed")
        }
        peerToken = peer
        hasPeerReceivedResume = isShared
        self.order = order
        (peerWindow, peerFirstLimit) = (summary.window, summary.firstLimit)
        let opened = isShared ? summary.opened : 0
        let limit = isShared ? summary.limit : summary.firstLimit
        guard (knownCount...toldCount).contains(opened), limit >= peerLimit || !isShared else {
            throw .violation("a resume that does not fit the streams")
        }
        peerLimit = limit
        (openedCount, knownCount) = (opened, opened)
        var entries: [Number: StreamSummary.Entry] = [:]
        for entry in isShared ? summary.entries : [] {
            let number = number(entry.id)
            guard entries.updateValue(entry, forKey: number) == nil,
                !number.isOwn || number.index < opened
            else { throw .violation("a stream that was not opened, or that is listed twice") }
        }
        var showsProgress = false
        for (number, handle) in handles.sorted(by: { $0.key < $1.key }) {
            let isKnown = !number.isOwn || number.index < opened
            if try resume(handle, isKnown: isKnown, entries[number]) { showsProgress = true }
        }
        isLinked = true
        return showsProgress
    }

    /// Returns whether the peer has received more of the stream than this side knew.
    private func resume(
        _ handle: Handle, isKnown: Bool, _ entry: StreamSummary.Entry?
    ) throws(DeliveryError) -> Bool {
        let window = peerWindow
        let result = change(handle) { stream in
            let before = stream.sending.reportedProgress
            stream.isOpened = isKnown
            stream.receiving.adaptStep(toPeerWindow: window)
            let fits: Bool
            if isKnown {
                // Without an entry, the stream is over for the peer: the peer is done with this
                // side's direction, and knows that this side is done with the peer's direction.
                fits =
                    (entry != nil || stream.receiving.isDone)
                    && stream.sending.resume(entry?.progress ?? .done)
            } else {
                stream.receiving.forgetStop()
                fits = stream.sending.resume(.receiving(count: 0, limit: window))
            }
            return (fits: fits, showsProgress: stream.sending.reportedProgress > before)
        }
        guard let result, result.fits else {
            throw .violation("a stream's state that is impossible")
        }
        touch(handle)
        return result.showsProgress
    }

    /// Notes that the peer has received this side's `resume`, which any record after the peer's own
    /// `resume` shows.
    func markOwnResumeAsReceived() { hasPeerReceivedResume = true }

    /// Ends the streams, because the peer or this side has begun a new instance. This side's streams
    /// whose `open` was never sent belong to the new instances, and are numbered anew.
    func lose() {
        while let handle = arrived.popFirst() { streams[handle] = nil }
        let untold = handles.filter { $0.key.isOwn && $0.key.index >= toldCount }
            .sorted { $0.key < $1.key }.map(\.value)
        for handle in handles.values where !untold.contains(handle) {
            guard let sending = streams[handle]?.sending else { continue }
            if !sending.isDone, !sending.isReset { lostCount += 1 }
            change(handle) { $0.isLost = true }
            touch(handle)
        }
        handles = [:]
        for (index, handle) in untold.enumerated() {
            let number = Number(isOwn: true, index: UInt64(index))
            streams[handle]?.number = number
            streams[handle]?.sending.forgetPeer()
            handles[number] = handle
        }
        controls = Queue()
        ready = [Queue(), Queue(), Queue()]
        ownCount = UInt64(untold.count)
        (openedCount, toldCount, knownCount) = (0, 0, 0)
        (ownOpen, peerLimit) = (untold.count, 0)
        (peerCount, acceptedCount, peerOverCount) = (0, 0, 0)
        toldLimit = openLimit
        (peerToken, hasPeerReceivedResume, isLinked) = (.none, false, false)
    }

    // MARK: - Records of the peer

    /// Handles a record. Returns whether the record shows that a stream makes progress.
    func receive(_ record: StreamRecord) throws(DeliveryError) -> Bool {
        switch record {
        case .streams(let limit):
            guard limit > peerLimit else {
                throw .violation("a limit of streams that is not greater than the last one")
            }
            peerLimit = limit
            return false
        case .open(let id, let priority, let label):
            let number = number(id)
            guard !number.isOwn, number.index == peerCount, peerCount < toldLimit else {
                throw .violation("a stream that is not the next one, or exceeds the limit")
            }
            peerCount += 1
            let handle = add(number, label, priority)
            let window = peerWindow
            change(handle) { stream in
                stream.isOpened = true
                stream.receiving.adaptStep(toPeerWindow: window)
                _ = stream.sending.resume(.receiving(count: 0, limit: window))
            }
            arrived.append(handle)
            touch(handle)
        case .bytes(let id, let offset, let bytes):
            return try changeOpen(id) { stream throws(DeliveryError) in
                try stream.receiving.append(bytes, at: offset)
                return stream.receiving.stopCode == nil
            }
        case .fin(let id, let size):
            try changeOpen(id) { stream throws(DeliveryError) in try stream.receiving.finish(size) }
        case .reset(let id, let code):
            // The `reset` may have crossed this side's `done`.
            if isForgotten(id) { return false }
            return try changeOpen(id) { stream throws(DeliveryError) in
                try stream.receiving.reset(code)
            }
        case .stop(let id, let code):
            return try changeOpen(id) { stream throws(DeliveryError) in
                guard stream.sending.stop(code) else {
                    throw .violation("a stream that is stopped twice")
                }
                return false
            }
        case .limit(let id, let received, let limit):
            return try changeOpen(id) { stream throws(DeliveryError) in
                let (oldReceived, oldLimit) = (stream.sending.acknowledged, stream.sending.limit)
                guard limit > oldLimit,
                    stream.sending.acknowledge(received: received, limit: limit)
                else {
                    throw .violation(
                        "a limit of a stream that is impossible, or not greater than the last one")
                }
                return received > oldReceived
            }
        case .done(let id):
            try changeOpen(id) { stream throws(DeliveryError) in
                guard stream.sending.handleDone() else {
                    throw .violation("a stream that is done before its end, or twice")
                }
            }
        }
        return true
    }

    private func isForgotten(_ id: UInt64) -> Bool {
        let number = number(id)
        return handles[number] == nil && number.index < (number.isOwn ? openedCount : peerCount)
    }

    /// Changes an open stream because of a record of the peer; throws if no such stream is open.
    private func changeOpen<Result>(
        _ id: UInt64, _ body: (inout Stream) throws(DeliveryError) -> Result
    ) throws(DeliveryError) -> Result {
        let number = number(id)
        guard let handle = handles[number], streams[handle]?.isOpened == true,
            let result = try change(handle, body)
        else { throw .violation("a record of a stream that is not open") }
        if number.isOwn { knownCount = max(knownCount, number.index + 1) }
        touch(handle)
        return result
    }

    // MARK: - One stream

    private func id(_ number: Number) -> UInt64 {
        let isEven = number.isOwn == (order == .lower)
        return 2 * number.index + (isEven ? 0 : 1)
    }

    private func number(_ id: UInt64) -> Number {
        Number(isOwn: (id % 2 == 0) == (order == .lower), index: id / 2)
    }

    private func add(
        _ number: Number, _ label: String, _ priority: FramePriority
    ) -> Handle {
        lastHandle += 1
        streams[lastHandle] = Stream(
            number: number, label: label, priority: priority,
            sending: SendingHalf(capacity: limits.window),
            receiving: ReceivingHalf(window: limits.window, isAccepted: number.isOwn))
        handles[number] = lastHandle
        return lastHandle
    }

    /// Changes a stream. Then queues the stream if it has something to send, or forgets the stream
    /// if it is over. Returns nil for an unknown stream.
    @discardableResult
    private func change<Result, Failure: Error>(
        _ handle: Handle, _ body: (inout Stream) throws(Failure) -> Result
    ) throws(Failure) -> Result? {
        guard let index = streams.index(forKey: handle) else { return nil }
        let result = try body(&streams.values[index])
        let next = streams.values[index].joinQueues()
        if next.hasControl { controls.append(handle) }
        if let priority = next.data { ready[Int(priority.rawValue)].append(handle) }
        if next.isOver { forget(handle) }
        return result
    }

    /// Forgets the number of a stream that is over. Forgets the stream itself only if the program
    /// does not have it, and will not get it.
    private func forget(_ handle: Handle) {
        guard let stream = streams[handle] else { return }
        if handles[stream.number] == handle {
            handles[stream.number] = nil
            hasForgotten = true
            if stream.number.isOwn { ownOpen -= 1 } else { peerOverCount += 1 }
        }
        if !stream.belongsToProgram { streams[handle] = nil }
    }

    private func touch(_ handle: Handle) {
        guard streams[handle]?.isTouched == false else { return }
        streams[handle]?.isTouched = true
        touched.append(handle)
    }
}
