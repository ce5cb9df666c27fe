internal import BLESec
internal import BLESecPrimitives

/// A channel without protection: it sends messages in the same pieces as a secure channel over a
/// link with SDUs of at least 4 KiB, but without sealing, acknowledgements or handshake.
///
/// A record is a u16 length, a byte for its kind and up to 16 KiB of a message. The length counts
/// the kind and the piece of the message. The difference between the figures of a secure channel
/// and of this channel is the cost of security.
@safe actor PlainChannel: MessageChannel {
    /// The kind of a record: the last piece of a message, an earlier piece, or the end of messages.
    private enum Kind { static let last: UInt8 = 0, more: UInt8 = 1, end: UInt8 = 2 }

    /// The bytes before a record's payload: the length and the kind.
    private static let headerLength = 3
    /// The largest number of the link's `receive` calls in one ``read()``, and of its `send` calls in
    /// one ``transmit()``.
    private static let callsPerTurn = 8
    /// While the unsent messages have this many bytes or more, `send` waits.
    private static let writeAhead = 64 << 10
    /// While the messages that wait for `receive` have this many bytes or more, the link is not
    /// read.
    private static let readAhead = 256 << 10
    /// The longest message that is received: twice the longest that the bench sends.
    private static let longestMessage = 2 << 20
    /// The bytes that are reserved for a message in several records. The message's length is known
    /// only after the last record. The longest message of a default run fits, and is not moved while
    /// it grows.
    private static let partialCapacity = 4 * Record.bulkPayload

    nonisolated let loop: EventLoop
    private let link: any Link
    private let maximumSDU: Int
    private let forwarder = EventForwarder()

    private var inbound = RecordBuffer(capacity: 144 << 10)
    private var outbound = RecordBuffer(capacity: 64 << 10)
    private var unsent = MessageQueue()
    /// How many bytes of the first unsent message are in ``outbound`` or were sent.
    private var unsentOffset = 0
    private var arrived = MessageQueue()
    /// The pieces that have arrived of a message in several records.
    private var partial: [UInt8] = []
    private var endState = EndState.open
    private var peerHasEnded = false
    private var failure: ChannelError?

    private var reader: UnsafeContinuation<Void, Never>?
    private var writer: UnsafeContinuation<Void, Never>?

    /// The state of this side's record `Kind.end`: not wanted yet, still to be queued, or queued.
    private enum EndState { case open, wanted, queued }

    nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

    init(over link: any Link) {
        self.link = link
        loop = link.loop
        maximumSDU = min(link.maximumSDU, 32 << 10)
    }

    /// Starts the channel. Call this once, before the channel is shared.
    func start() {
        forwarder.channel = self
        link.setHandler(forwarder)
        pump()
    }

    isolated deinit { link.close() }

    func send(_ message: [UInt8]) async throws(ChannelError) {
        while !unsent.isEmpty, unsent.byteCount >= Self.writeAhead, failure == nil {
            await unsafe withUnsafeContinuation { unsafe writer = $0 }
        }
        if let failure { throw failure }
        unsent.append(message)
        pump()
    }

    func receive() async throws(ChannelError) -> [UInt8]? {
        while true {
            if let message = arrived.next() {
                if !link.wantsRead { pump() }
                return message
            }
            if peerHasEnded { return nil }
            if let failure { throw failure }
            await unsafe withUnsafeContinuation { unsafe reader = $0 }
        }
    }

    func close() async throws(ChannelError) {
        if endState == .open { endState = .wanted }
        pump()
        while try await receive() != nil {}
        while endState != .queued || !outbound.isEmpty, failure == nil {
            await unsafe withUnsafeContinuation { unsafe writer = $0 }
        }
    }

    // MARK: - The link

    fileprivate func read() {
        for _ in 0..<Self.callsPerTurn where arrived.byteCount < Self.readAhead {
            guard readOnce() else { break }
        }
        pump()
    }

    private func readOnce() -> Bool {
        do throws(LinkError) {
            let result = try inbound.append(room: 16 << 10) { space throws(LinkError) in
                try link.receive(into: &space)
            }
            switch result {
            case .bytes: takeRecords()
            case .wouldBlock: return false
            case .end: fail(ChannelError(.truncated, "the peer has closed the link"))
            }
            return result == .bytes
        } catch {
            fail(ChannelError(.link, error.reason))
            return false
        }
    }

    private func takeRecords() {
        while inbound.count >= Self.headerLength {
            let (length, kind) = inbound.withBytes { bytes in
                (Int(bytes[0]) << 8 | Int(bytes[1]), bytes[2])
            }
            guard length >= 1, partial.count + length <= Self.longestMessage else {
                return fail(ChannelError(.protocolViolation, "the peer's record is malformed"))
            }
            guard inbound.count >= 2 + length else { return }
            inbound.withBytes { bytes in keep(bytes.span, Self.headerLength..<2 + length, kind) }
            inbound.consume(2 + length)
        }
    }

    private func keep(_ bytes: Span<UInt8>, _ payload: Range<Int>, _ kind: UInt8) {
        if kind == Kind.end {
            peerHasEnded = true
        } else if kind == Kind.last, partial.isEmpty {
            arrived.append(bytes.array(in: payload))
        } else {
            if partial.isEmpty { partial.reserveCapacity(Self.partialCapacity) }
            partial.append(bytes, in: payload)
            guard kind == Kind.last else { return }
            arrived.append(partial)
            partial = []
        }
    }

    fileprivate func pump() {
        transmit()
        if !arrived.isEmpty || peerHasEnded || failure != nil { unsafe reader.take()?.resume() }
        if unsent.byteCount < Self.writeAhead || failure != nil { unsafe writer.take()?.resume() }
        link.wantsRead = failure == nil && arrived.byteCount < Self.readAhead
    }

    private func transmit() {
        for _ in 0..<Self.callsPerTurn where failure == nil {
            fill()
            guard !outbound.isEmpty else {
                link.wantsWrite = false
                return
            }
            do throws(LinkError) {
                // `outbound` gets whole records, so it can be longer than `self.maximumSDU`. A link
                // with a larger limit gets all of `outbound` in one call.
                let sent = try outbound.withBytes { bytes throws(LinkError) in
                    try link.send(bytes.span.extracting(first: link.maximumSDU))
                }
                outbound.consume(sent)
                if sent == 0 { break }
            } catch {
                fail(ChannelError(.link, error.reason))
            }
        }
        link.wantsWrite = failure == nil
    }

    /// Frames records until they fill an SDU.
    private func fill() {
        while outbound.count < maximumSDU, let message = unsent.first {
            let end = min(unsentOffset + Record.bulkPayload, message.count)
            let isLast = end == message.count
            append(isLast ? Kind.last : Kind.more, message.span.extracting(unsentOffset..<end))
            unsentOffset = isLast ? 0 : end
            if isLast { _ = unsent.next() }
        }
        if unsent.isEmpty, endState == .wanted {
            append(Kind.end, Span())
            endState = .queued
        }
    }

    private func append(_ kind: UInt8, _ payload: Span<UInt8>) {
        outbound.append(room: Self.headerLength + payload.count) { output in
            output.append(UInt8(truncatingIfNeeded: (payload.count + 1) >> 8))
            output.append(UInt8(truncatingIfNeeded: payload.count + 1))
            output.append(kind)
            output.append(copying: payload)
        }
    }

    private func fail(_ error: ChannelError) {
        if failure == nil { failure = error }
        link.close()
    }
}

/// Passes the link's events to the plain channel.
private final class EventForwarder: LinkHandler {
    weak var channel: PlainChannel?

    func linkIsReadable() { channel?.assumeIsolated { $0.read() } }
    func linkIsWritable() { channel?.assumeIsolated { $0.pump() } }
    func linkDidHangUp() { channel?.assumeIsolated { $0.read() } }
}

/// A queue of messages, first in, first out.
struct MessageQueue {
    private var messages: [[UInt8]] = []
    private var head = 0
    /// The number of bytes of the queued messages, with ``overhead`` for each message.
    private(set) var byteCount = 0
    /// Limits the memory of a queue of empty messages.
    private static let overhead = 32

    var isEmpty: Bool { head == messages.count }
    var first: [UInt8]? { isEmpty ? nil : messages[head] }

    mutating func append(_ message: [UInt8]) {
        messages.append(message)
        byteCount += message.count + Self.overhead
    }

    mutating func next() -> [UInt8]? {
        guard !isEmpty else { return nil }
        let message = messages[head]
        messages[head] = []
        head += 1
        byteCount -= message.count + Self.overhead
        if head == messages.count || head >= max(64, messages.count / 2) {
            messages.removeSubrange(..<head)
            head = 0
        }
        return message
    }
}
