import BLESecLinks
import BLESecTesting
import Testing

@testable import BLESecDiscovery

/// One side of a stream.
private final class Side {
    var stream: FragmentStream

    init(_ stream: FragmentStream) { self.stream = stream }

    func send(_ bytes: [UInt8], to fragments: inout [[UInt8]]) -> Int {
        stream.send(bytes.span, to: &fragments)
    }

    func read(_ count: Int) -> [UInt8] { [UInt8](capacity: count) { stream.read(into: &$0) } }

    func take(_ bytes: [UInt8], at now: MonotonicTime = .zero) -> Bool {
        StreamFragment(bytes).map { stream.take($0, at: now) } ?? false
    }

    func grant() -> [UInt8]? { stream.grant() }
    func finish() -> [UInt8] { stream.finish() }
    var deadline: MonotonicTime { stream.deadline }
    var hasPeerEnded: Bool { stream.hasPeerEnded }
    var hasReceivedAll: Bool { stream.hasReceivedAll }
    var isReadToEnd: Bool { stream.isReadToEnd }
}

/// Both sides of a stream, and the fragments under way between them.
private struct StreamPair {
    let dialer: Side
    let listener: Side
    var toDialer: [[UInt8]] = []
    var toListener: [[UInt8]] = []

    /// A pair whose dialer can send and accept values of these sizes, in bytes. The listener has
    /// the dialer's opening fragment; the listener's answer is in `toDialer`.
    init(dialerSends: Int = 508, dialerAccepts: Int = 508) throws {
        dialer = Side(
            FragmentStream(dialing: 1, sendableSize: dialerSends, acceptedSize: dialerAccepts))
        let opening = StreamFragment(dialer.stream.opening())
        listener = Side(try #require(opening.flatMap { FragmentStream(answering: $0) }))
        toDialer.append(listener.stream.opening())
    }

    /// Delivers the listener's answer to the dialer, so that the dialer can send.
    mutating func open() throws {
        let answer = toDialer.removeFirst()
        #expect(dialer.take(answer))
    }
}

extension MonotonicTime {
    fileprivate static let zero = MonotonicTime(nanoseconds: 0)
}

@Suite("Streams of fragments")
struct FragmentStreamTests {
    @Test(
        "bytes are read in order even if fragments are reordered and repeated", arguments: 0..<60)
    func reordering(seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        let dialerSends = Int.random(in: 0...600, using: &random)
        let dialerAccepts = Int.random(in: 0...600, using: &random)
        let largestToListener = min(max(dialerSends, 20), 508)
        let largestToDialer = min(max(dialerAccepts, 20), 508)
        var pair = try StreamPair(dialerSends: dialerSends, dialerAccepts: dialerAccepts)
        let dialerBytes = random.bytes(Int.random(in: 0...30_000, using: &random))
        let listenerBytes = random.bytes(Int.random(in: 0...30_000, using: &random))
        var (dialerSent, listenerSent) = (0, 0)
        var (listenerReceived, dialerReceived): ([UInt8], [UInt8]) = ([], [])
        let foreignFragment = StreamFragment(
            .data, stream: 2, number: 0, limit: 900, payload: [1, 2, 3]
        ).bytes
        for _ in 0..<1_000_000
        where listenerReceived.count < dialerBytes.count
            || dialerReceived.count < listenerBytes.count
        {
            let count = Int.random(in: 1...900, using: &random)
            switch Int.random(in: 0..<8, using: &random) {
            case 0:
                let piece = Array(dialerBytes[dialerSent...].prefix(count))
                dialerSent += pair.dialer.send(piece, to: &pair.toListener)
            case 1:
                let piece = Array(listenerBytes[listenerSent...].prefix(count))
                listenerSent += pair.listener.send(piece, to: &pair.toDialer)
            case 2, 3:
                guard let index = pair.toListener.indices.randomElement(using: &random) else {
                    break
                }
                let fragment = pair.toListener[index]
                if Int.random(in: 0..<8, using: &random) > 0 { pair.toListener.remove(at: index) }
                _ = pair.listener.take(fragment)
            case 4, 5:
                guard let index = pair.toDialer.indices.randomElement(using: &random) else { break }
                let fragment = pair.toDialer[index]
                if Int.random(in: 0..<8, using: &random) > 0 { pair.toDialer.remove(at: index) }
                _ = pair.dialer.take(fragment)
            case 6:
                listenerReceived += pair.listener.read(count)
                if let grant = pair.listener.grant() { pair.toDialer.append(grant) }
                #expect(
                    !pair.listener.take(foreignFragment), "the fragment belongs to another stream")
            default:
                dialerReceived += pair.dialer.read(count)
                if let grant = pair.dialer.grant() { pair.toListener.append(grant) }
                #expect(
                    !pair.dialer.take(Array(foreignFragment.prefix(6))), "the fragment is cut off")
            }
            for fragment in pair.toListener { #expect(fragment.count <= largestToListener) }
            for fragment in pair.toDialer { #expect(fragment.count <= largestToDialer) }
        }
        #expect(listenerReceived == dialerBytes)
        #expect(dialerReceived == listenerBytes)
        #expect(pair.dialer.deadline == .distantFuture && pair.listener.deadline == .distantFuture)
    }

    @Test(
        "the smallest MTU is enough, and no fragment is larger than its sender can send or its receiver accepts"
    )
    func sizes() throws {
        for (dialerSends, dialerAccepts, dialerFragmentSize, listenerFragmentSize) in [
            (0, 0, 20, 20), (20, 18, 20, 20), (100, 60, 100, 60), (514, 512, 508, 508),
        ] {
            var pair = try StreamPair(dialerSends: dialerSends, dialerAccepts: dialerAccepts)
            try pair.open()
            #expect(pair.dialer.send([UInt8](repeating: 1, count: 999), to: &pair.toListener) > 0)
            #expect(pair.listener.send([UInt8](repeating: 1, count: 999), to: &pair.toDialer) > 0)
            #expect(pair.toListener.first?.count == dialerFragmentSize)
            #expect(pair.toDialer.first?.count == listenerFragmentSize)
        }
    }

    @Test("the dialer sends nothing before the listener answers, and no more than is granted")
    func window() throws {
        var pair = try StreamPair(dialerSends: 20)
        #expect(pair.dialer.send([1], to: &pair.toListener) == 0)
        try pair.open()
        // A value of 20 bytes carries 13 bytes of the stream; the window has 32 fragments.
        let bytes = [UInt8](repeating: 7, count: 13 * 40)
        #expect(pair.dialer.send(bytes, to: &pair.toListener) == 13 * 32)
        #expect(pair.dialer.send(bytes, to: &pair.toListener) == 0)
        for fragment in pair.toListener { #expect(pair.listener.take(fragment)) }
        #expect(pair.listener.grant() == nil, "nothing was read yet")
        #expect(pair.listener.read(13 * 15 + 12).count == 13 * 15 + 12)
        #expect(pair.listener.grant() == nil, "fewer than 16 fragments were read")
        #expect(pair.listener.read(1).count == 1)
        let grant = try #require(pair.listener.grant())
        #expect(pair.listener.grant() == nil, "the limit was already granted")
        #expect(pair.dialer.take(grant))
        #expect(pair.dialer.send(bytes, to: &pair.toListener) == 13 * 16)
        #expect(!pair.dialer.take(grant), "the limit is not new")
    }

    @Test("a fragment that is beyond the window, repeated, empty or too large is ignored")
    func unwanted() throws {
        var pair = try StreamPair(dialerSends: 20, dialerAccepts: 20)
        try pair.open()
        func data(_ number: UInt16, _ count: Int = 1) -> [UInt8] {
            StreamFragment(
                .data, stream: 1, number: number, limit: 32,
                payload: [UInt8](repeating: 9, count: count)[...]
            ).bytes
        }
        #expect(pair.dialer.take(data(31)))
        #expect(!pair.dialer.take(data(31)))
        for number: UInt16 in [32, 33, 1_000, 0x7FFF, 0x8000, 0xFFFF] {
            #expect(!pair.dialer.take(data(number)))
        }
        #expect(!pair.dialer.take(data(0, 0)))
        #expect(
            !pair.dialer.take(data(0, 14)),
            "the dialer accepts 20 bytes, of which the header takes 7")
        #expect(pair.dialer.take(data(0, 13)))
        #expect(pair.dialer.read(100) == [UInt8](repeating: 9, count: 13))
    }

    @Test("a limit that is not above the last one, or is too far ahead, is ignored")
    func limits() throws {
        var pair = try StreamPair()
        try pair.open()
        func grant(_ limit: UInt16) -> [UInt8] {
            StreamFragment(.grant, stream: 1, number: 0, limit: limit).bytes
        }
        for limit: UInt16 in [0, 31, 32, 1_025, 0x8000, 0xFFFF] {
            #expect(!pair.dialer.take(grant(limit)))
        }
        #expect(pair.dialer.take(grant(33)))
        #expect(pair.dialer.take(grant(1_024)))
        var fragments: [[UInt8]] = []
        #expect(
            pair.dialer.send([UInt8](repeating: 1, count: 600_000), to: &fragments) == 1_024 * 501)
    }

    @Test(
        "a missing fragment has ten seconds to arrive, and progress restarts the time"
    )
    func missingFragment() throws {
        var pair = try StreamPair()
        try pair.open()
        for _ in 0..<6 { _ = pair.dialer.send([1], to: &pair.toListener) }
        func time(_ seconds: Int) -> MonotonicTime { .zero.advanced(by: .seconds(seconds)) }
        #expect(pair.listener.take(pair.toListener[0], at: time(1)))
        #expect(pair.listener.deadline == .distantFuture)
        #expect(pair.listener.take(pair.toListener[2], at: time(2)))
        #expect(pair.listener.deadline == time(12))
        #expect(pair.listener.take(pair.toListener[4], at: time(3)))
        #expect(pair.listener.deadline == time(12), "the missing fragment has not arrived")
        _ = pair.listener.read(100)
        #expect(pair.listener.deadline == time(12))
        #expect(pair.listener.take(pair.toListener[1], at: time(5)))
        #expect(pair.listener.deadline == time(15), "another fragment is missing now")
        #expect(pair.listener.take(pair.toListener[3], at: time(6)))
        #expect(pair.listener.deadline == .distantFuture)
        #expect(pair.listener.take(pair.dialer.finish(), at: time(7)))
        #expect(pair.listener.deadline == time(17), "the last fragment has not arrived")
        #expect(pair.listener.take(pair.toListener[5], at: time(8)))
        #expect(pair.listener.deadline == .distantFuture)
    }

    @Test("the stream is over when all sent bytes have been read, even if the end arrives first")
    func end() throws {
        var pair = try StreamPair()
        try pair.open()
        _ = pair.dialer.send([1, 2, 3], to: &pair.toListener)
        let end = pair.dialer.finish()
        #expect(pair.dialer.send([4], to: &pair.toListener) == 0)
        #expect(pair.listener.take(end))
        #expect(!pair.listener.take(end))
        #expect(pair.listener.hasPeerEnded && !pair.listener.hasReceivedAll)
        #expect(pair.listener.take(pair.toListener[0]))
        #expect(pair.listener.hasReceivedAll && !pair.listener.isReadToEnd)
        let afterEnd = StreamFragment(.data, stream: 1, number: 1, limit: 32, payload: [4]).bytes
        #expect(!pair.listener.take(afterEnd), "a fragment after the end is refused")
        #expect(pair.listener.read(9) == [1, 2, 3])
        #expect(pair.listener.isReadToEnd)
    }

    @Test("an end that lies before an arrived fragment, or beyond the window, is ignored")
    func forgedEnd() throws {
        var pair = try StreamPair()
        try pair.open()
        func end(_ number: UInt16) -> [UInt8] {
            StreamFragment(.end, stream: 1, number: number, limit: 32).bytes
        }
        _ = pair.dialer.send([UInt8](repeating: 1, count: 1_200), to: &pair.toListener)
        #expect(pair.listener.take(pair.toListener[1]))
        for number: UInt16 in [0, 1, 33, 0xFFFF] { #expect(!pair.listener.take(end(number))) }
        #expect(!pair.listener.hasPeerEnded)
    }

    @Test("a stream continues when its fragment numbers wrap from 65,535 to 0")
    func wrapping() throws {
        var pair = try StreamPair(dialerSends: 20)
        try pair.open()
        var (sent, received) = (0, 0)
        while received < 13 * 70_000 {
            let piece = (0..<13 * 32).map { UInt8(truncatingIfNeeded: (sent + $0) / 13) }
            sent += pair.dialer.send(piece, to: &pair.toListener)
            for fragment in pair.toListener.reversed() { #expect(pair.listener.take(fragment)) }
            pair.toListener = []
            for byte in pair.listener.read(13 * 32) {
                #expect(byte == UInt8(truncatingIfNeeded: received / 13))
                received += 1
            }
            if let grant = pair.listener.grant() { #expect(pair.dialer.take(grant)) }
        }
    }

    @Test(
        "with random input the bytes that wait to be read stay within the window", arguments: 0..<40
    )
    func hostile(seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        var pair = try StreamPair()
        try pair.open()
        var (accepted, waiting) = (0, 0)
        // Most fragments carry data (2).
        var kinds: [UInt8] = [0, 1, 2, 2, 2, 2, 2, 3]
        for step in 0..<5_000 {
            // Hardly anything is accepted after an end (4), so ends come only in the last steps.
            if step == 4_500 { kinds.append(4) }
            var bytes = random.bytes(min(30, Int.random(in: 0...60, using: &random)))
            if bytes.count >= 7, random.next() & 7 != 0 {
                let kind = kinds[Int.random(in: 0..<kinds.count, using: &random)]
                // The number of the first unread fragment is `accepted`, or up to 32 lower.
                let number = UInt16(
                    truncatingIfNeeded: accepted + Int.random(in: -32...16, using: &random))
                bytes.replaceSubrange(
                    0..<5, with: [kind, 0, 1, UInt8(number >> 8), UInt8(number & 0xFF)])
                // A grant (3) and an end have no payload.
                if kind > 2 { bytes = Array(bytes.prefix(7)) }
            }
            if pair.listener.take(bytes), bytes[0] == 2 {
                accepted += 1
                waiting += bytes.count - 7
            }
            if random.next() & 15 == 0 { waiting -= pair.listener.read(50).count }
            // 32 fragments of at most 30 bytes, 7 of them the header.
            #expect(waiting <= 32 * 23)
        }
        #expect(accepted > 200)
    }
}
