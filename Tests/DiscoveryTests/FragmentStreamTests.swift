import BLESecLinks
import BLESecTesting
import Testing

@testable import BLESecDiscovery

/// One end of a stream.
private final class End {
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
    var hasEnd: Bool { stream.hasEnd }
    var hasAll: Bool { stream.hasAll }
    var isOver: Bool { stream.isOver }
}

/// Both ends of a stream, and the fragments under way between them.
private struct Ends {
    let dialer: End
    let listener: End
    var toDialer: [[UInt8]] = []
    var toListener: [[UInt8]] = []

    init(sending: Int = 508, taking: Int = 508, id: UInt16 = 1) throws {
        dialer = End(FragmentStream(dialing: id, sending: sending, taking: taking))
        let opening = StreamFragment(dialer.stream.opening())
        listener = End(try #require(opening.flatMap { FragmentStream(answering: $0) }))
        toDialer.append(listener.stream.opening())
    }

    /// Delivers the listener's answer to the dialer's opening fragment.
    mutating func open() throws {
        let answer = toDialer.removeFirst()
        #expect(dialer.take(answer))
    }
}

extension MonotonicTime {
    fileprivate static let zero = MonotonicTime(nanoseconds: 0)
}

@Suite("The stream of fragments")
struct FragmentStreamTests {
    @Test(
        "bytes are read in order even if fragments are reordered and repeated", arguments: 0..<60)
    func reordering(seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        var ends = try Ends(
            sending: Int.random(in: 0...600, using: &random),
            taking: Int.random(in: 0...600, using: &random))
        let dialerBytes = random.bytes(Int.random(in: 0...30_000, using: &random))
        let listenerBytes = random.bytes(Int.random(in: 0...30_000, using: &random))
        var (dialerSent, listenerSent) = (0, 0)
        var (listenerReceived, dialerReceived): ([UInt8], [UInt8]) = ([], [])
        let stale = StreamFragment(.data, stream: 2, number: 0, limit: 900, payload: [1, 2, 3])
            .bytes
        for _ in 0..<1_000_000
        where listenerReceived.count < dialerBytes.count
            || dialerReceived.count < listenerBytes.count
        {
            let size = Int.random(in: 1...900, using: &random)
            switch Int.random(in: 0..<8, using: &random) {
            case 0:
                let piece = Array(dialerBytes[dialerSent...].prefix(size))
                dialerSent += ends.dialer.send(piece, to: &ends.toListener)
            case 1:
                let piece = Array(listenerBytes[listenerSent...].prefix(size))
                listenerSent += ends.listener.send(piece, to: &ends.toDialer)
            case 2, 3:
                guard let index = ends.toListener.indices.randomElement(using: &random) else {
                    break
                }
                let fragment = ends.toListener[index]
                if Int.random(in: 0..<8, using: &random) > 0 { ends.toListener.remove(at: index) }
                _ = ends.listener.take(fragment)
            case 4, 5:
                guard let index = ends.toDialer.indices.randomElement(using: &random) else { break }
                let fragment = ends.toDialer[index]
                if Int.random(in: 0..<8, using: &random) > 0 { ends.toDialer.remove(at: index) }
                _ = ends.dialer.take(fragment)
            case 6:
                listenerReceived += ends.listener.read(size)
                if let grant = ends.listener.grant() { ends.toDialer.append(grant) }
                #expect(!ends.listener.take(stale), "it is of another stream")
            default:
                dialerReceived += ends.dialer.read(size)
                if let grant = ends.dialer.grant() { ends.toListener.append(grant) }
                #expect(!ends.dialer.take(Array(stale.prefix(6))), "it is cut off")
            }
            for fragment in ends.toListener + ends.toDialer { #expect(fragment.count <= 600) }
        }
        #expect(listenerReceived == dialerBytes)
        #expect(dialerReceived == listenerBytes)
        #expect(ends.dialer.deadline == .distantFuture && ends.listener.deadline == .distantFuture)
    }

    @Test(
        "the smallest MTU is enough, and no fragment is larger than its sender can send or its receiver accepts"
    )
    func sizes() throws {
        for (sending, taking, dialerBytes, listenerBytes) in [
            (0, 0, 20, 20), (20, 18, 20, 20), (100, 60, 100, 60), (514, 512, 508, 508),
        ] {
            var ends = try Ends(sending: sending, taking: taking)
            try ends.open()
            #expect(ends.dialer.send([UInt8](repeating: 1, count: 999), to: &ends.toListener) > 0)
            #expect(ends.listener.send([UInt8](repeating: 1, count: 999), to: &ends.toDialer) > 0)
            #expect(ends.toListener.first?.count == dialerBytes)
            #expect(ends.toDialer.first?.count == listenerBytes)
        }
    }

    @Test("nothing is sent before the listener has answered, nor beyond what it grants")
    func window() throws {
        var ends = try Ends(sending: 20)
        #expect(ends.dialer.send([1], to: &ends.toListener) == 0)
        try ends.open()
        let bytes = [UInt8](repeating: 7, count: 13 * 40)
        #expect(ends.dialer.send(bytes, to: &ends.toListener) == 13 * 32)
        #expect(ends.dialer.send(bytes, to: &ends.toListener) == 0)
        for fragment in ends.toListener { #expect(ends.listener.take(fragment)) }
        #expect(ends.listener.grant() == nil, "nothing was read yet")
        #expect(ends.listener.read(13 * 15 + 12).count == 13 * 15 + 12)
        #expect(ends.listener.grant() == nil, "fewer than 16 fragments were read")
        #expect(ends.listener.read(1).count == 1)
        let grant = try #require(ends.listener.grant())
        #expect(ends.listener.grant() == nil, "the limit was already granted")
        #expect(ends.dialer.take(grant))
        #expect(ends.dialer.send(bytes, to: &ends.toListener) == 13 * 16)
        #expect(!ends.dialer.take(grant), "its limit is not new")
    }

    @Test("a fragment that is beyond the window, repeated, empty or too large is ignored")
    func unwanted() throws {
        var ends = try Ends(sending: 20, taking: 20)
        try ends.open()
        func data(_ number: UInt16, _ count: Int = 1) -> [UInt8] {
            StreamFragment(
                .data, stream: 1, number: number, limit: 32,
                payload: [UInt8](repeating: 9, count: count)[...]
            ).bytes
        }
        #expect(ends.dialer.take(data(31)))
        #expect(!ends.dialer.take(data(31)))
        for number: UInt16 in [32, 33, 1_000, 0x7FFF, 0x8000, 0xFFFF] {
            #expect(!ends.dialer.take(data(number)))
        }
        #expect(!ends.dialer.take(data(0, 0)))
        #expect(
            !ends.dialer.take(data(0, 14)),
            "the dialer accepts 20 bytes, of which the header takes 7")
        #expect(ends.dialer.take(data(0, 13)))
        #expect(ends.dialer.read(100) == [UInt8](repeating: 9, count: 13))
    }

    @Test("a limit that goes back, or too far ahead, is ignored")
    func limits() throws {
        var ends = try Ends()
        try ends.open()
        func grant(_ limit: UInt16) -> [UInt8] {
            StreamFragment(.grant, stream: 1, number: 0, limit: limit).bytes
        }
        for limit: UInt16 in [0, 31, 32, 1_025, 0x8000, 0xFFFF] {
            #expect(!ends.dialer.take(grant(limit)))
        }
        #expect(ends.dialer.take(grant(33)))
        #expect(ends.dialer.take(grant(1_024)))
        var fragments: [[UInt8]] = []
        #expect(
            ends.dialer.send([UInt8](repeating: 1, count: 600_000), to: &fragments) == 1_024 * 501)
    }

    @Test(
        "a stream has ten seconds for a missing fragment, and progress restarts the time"
    )
    func missingFragment() throws {
        var ends = try Ends()
        try ends.open()
        for _ in 0..<6 { _ = ends.dialer.send([1], to: &ends.toListener) }
        func time(_ seconds: Int) -> MonotonicTime { .zero.advanced(by: .seconds(seconds)) }
        #expect(ends.listener.take(ends.toListener[0], at: time(1)))
        #expect(ends.listener.deadline == .distantFuture)
        #expect(ends.listener.take(ends.toListener[2], at: time(2)))
        #expect(ends.listener.deadline == time(12))
        #expect(ends.listener.take(ends.toListener[4], at: time(3)))
        #expect(ends.listener.deadline == time(12), "the missing fragment has not come")
        _ = ends.listener.read(100)
        #expect(ends.listener.deadline == time(12))
        #expect(ends.listener.take(ends.toListener[1], at: time(5)))
        #expect(ends.listener.deadline == time(15), "another fragment is missing now")
        #expect(ends.listener.take(ends.toListener[3], at: time(6)))
        #expect(ends.listener.deadline == .distantFuture)
        #expect(ends.listener.take(ends.dialer.finish(), at: time(7)))
        #expect(ends.listener.deadline == time(17), "the last one has not come")
        #expect(ends.listener.take(ends.toListener[5], at: time(8)))
        #expect(ends.listener.deadline == .distantFuture)
    }

    @Test("the end is read after all bytes that were sent, whenever it arrives")
    func end() throws {
        var ends = try Ends()
        try ends.open()
        _ = ends.dialer.send([1, 2, 3], to: &ends.toListener)
        let end = ends.dialer.finish()
        #expect(ends.dialer.send([4], to: &ends.toListener) == 0)
        #expect(ends.listener.take(end))
        #expect(!ends.listener.take(end))
        #expect(ends.listener.hasEnd && !ends.listener.hasAll)
        #expect(ends.listener.take(ends.toListener[0]))
        #expect(ends.listener.hasAll && !ends.listener.isOver)
        let behind = StreamFragment(.data, stream: 1, number: 1, limit: 32, payload: [4]).bytes
        #expect(!ends.listener.take(behind), "a fragment after the end is refused")
        #expect(ends.listener.read(9) == [1, 2, 3])
        #expect(ends.listener.isOver)
    }

    @Test("an end with the number of an earlier fragment, or beyond the window, is ignored")
    func forgedEnd() throws {
        var ends = try Ends()
        try ends.open()
        func end(_ number: UInt16) -> [UInt8] {
            StreamFragment(.end, stream: 1, number: number, limit: 32).bytes
        }
        _ = ends.dialer.send([UInt8](repeating: 1, count: 1_200), to: &ends.toListener)
        #expect(ends.listener.take(ends.toListener[1]))
        for number: UInt16 in [0, 1, 33, 0xFFFF] { #expect(!ends.listener.take(end(number))) }
        #expect(!ends.listener.hasEnd)
    }

    @Test("a stream goes on when its fragment numbers wrap from 65,535 to 0")
    func wrapping() throws {
        var ends = try Ends(sending: 20)
        try ends.open()
        var (sent, received) = (0, 0)
        while received < 13 * 70_000 {
            let piece = (0..<13 * 32).map { UInt8(truncatingIfNeeded: (sent + $0) / 13) }
            sent += ends.dialer.send(piece, to: &ends.toListener)
            for fragment in ends.toListener.reversed() { #expect(ends.listener.take(fragment)) }
            ends.toListener = []
            for byte in ends.listener.read(13 * 32) {
                #expect(byte == UInt8(truncatingIfNeeded: received / 13))
                received += 1
            }
            if let grant = ends.listener.grant() { #expect(ends.dialer.take(grant)) }
        }
    }

    @Test(
        "with random input the bytes that wait to be read stay within the window", arguments: 0..<40
    )
    func hostile(seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        var ends = try Ends()
        try ends.open()
        var waiting = 0
        for _ in 0..<5_000 {
            var bytes = random.bytes(Int.random(in: 0...30, using: &random))
            if bytes.count >= 7, random.next() & 7 != 0 {
                bytes.replaceSubrange(
                    0..<4, with: [UInt8.random(in: 0...4, using: &random), 0, 1, 0])
                bytes[4] &= 0x3F
            }
            if ends.listener.take(bytes), bytes[0] == 2 { waiting += bytes.count - 7 }
            if random.next() & 15 == 0 { waiting -= ends.listener.read(50).count }
            #expect(waiting <= 32 * 23)
        }
    }
}
