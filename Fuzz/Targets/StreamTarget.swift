@testable internal import BLESecDiscovery
internal import BLESecLinks

extension FuzzTarget {
    /// The byte stream over GATT: both ends, a radio that reorders, repeats and delays fragments,
    /// and other programs on both devices that send forged fragments of the stream.
    static let stream = FuzzTarget(name: "stream") { input in
        var script = Script(input)
        guard var scene = StreamScene(&script) else { return }
        for _ in 0..<200 where !script.isOver { scene.step(&script) }
        scene.settle()
    } seeds: {
        let busy: [UInt8] = (0..<8).flatMap { index -> [UInt8] in
            [0, 90, 2, 1, 200, 3, UInt8(index), 4, UInt8(index / 2), 5, 255, 6, 255]
        }
        let forged = StreamFragment(.data, stream: 7, number: 2, limit: 90, payload: [1, 2]).bytes
        return [
            [20, 20, 0] + busy, [200, 255, 0] + busy, [20, 200, 0] + busy + [7, 5, 8],
            [60, 60, 1] + busy + [9, UInt8(forged.count)] + forged + [5, 255],
        ]
    }
}

/// The dialer's end of a stream (index 0), the listener's end (index 1), and the radio between
/// them. The bytes that an end sends count up, so a byte out of order is recognized.
private struct StreamScene {
    private var ends: [FragmentStream]
    /// The fragments that each end has sent and that have not arrived.
    private var underWay: [[[UInt8]]] = [[], []]
    /// The number of stream bytes that each end has sent.
    private var sent = [0, 0]
    /// The number of stream bytes that were read at each end.
    private var received = [0, 0]
    private var now = MonotonicTime(nanoseconds: 0)
    /// Whether an end has got a forged fragment.
    private var hasInjected = false
    /// Whether other programs may send forged fragments.
    private let mayInject: Bool

    init?(_ script: inout Script) {
        var dialer = FragmentStream(
            dialing: 7, sendableSize: Int(script.byte()) * 2,
            acceptedSize: Int(script.byte()) * 2)
        mayInject = script.flag()
        guard let opening = StreamFragment(dialer.opening()),
            var listener = FragmentStream(answering: opening)
        else { fatalError("an opening cannot be parsed") }
        underWay[1].append(listener.opening())
        ends = [dialer, listener]
    }

    mutating func step(_ script: inout Script) {
        switch script.number(below: 10) {
        case 0: send(0, Int(script.byte()))
        case 1: send(1, Int(script.byte()))
        case 2, 3: deliver(from: 0, script.byte(), repeats: script.flag())
        case 4: deliver(from: 1, script.byte(), repeats: script.flag())
        case 5: read(1, Int(script.byte()) * 8 + 1)
        case 6: read(0, Int(script.byte()) * 8 + 1)
        case 7: now = now.advanced(by: .seconds(Int(script.byte())))
        case 8: underWay[0].append(ends[0].finish())
        default:
            // Any program on the peer's device can send a fragment of this stream: the receiver
            // knows the device, and not the program.
            let bytes = script.piece()
            guard mayInject, let fragment = StreamFragment(bytes) else { return }
            hasInjected = true
            let end = script.number(below: 2)
            _ = ends[end].take(fragment, at: now)
        }
    }

    private mutating func send(_ end: Int, _ count: Int) {
        let bytes = (0..<count).map { UInt8(truncatingIfNeeded: sent[end] + $0) }
        let before = underWay[end].count
        sent[end] += ends[end].send(bytes.span, to: &underWay[end])
        let fresh = underWay[end][before...]
        precondition(
            hasInjected || fresh.count <= Int(FragmentStream.window),
            "more fragments than the peer's window")
        precondition(fresh.allSatisfy { $0.count <= StreamFragment.largestSize })
    }

    private mutating func deliver(from end: Int, _ choice: UInt8, repeats: Bool) {
        guard !underWay[end].isEmpty else { return }
        let index = Int(choice) % underWay[end].count
        let bytes = repeats ? underWay[end][index] : underWay[end].remove(at: index)
        guard let fragment = StreamFragment(bytes) else {
            fatalError("a fragment cannot be parsed")
        }
        _ = ends[1 - end].take(fragment, at: now)
    }

    private mutating func read(_ end: Int, _ count: Int) {
        let bytes = [UInt8](capacity: count) { ends[end].read(into: &$0) }
        precondition(bytes.count <= Int(FragmentStream.window) * StreamFragment.largestSize)
        if !hasInjected {
            for byte in bytes {
                precondition(byte == UInt8(truncatingIfNeeded: received[end]), "out of order")
                received[end] += 1
            }
            precondition(received[end] <= sent[1 - end])
        }
        if let grant = ends[end].grant() { underWay[end].append(grant) }
    }

    /// Delivers all fragments, and checks that all bytes that were sent can be read, and that
    /// neither end still waits for a missing fragment.
    mutating func settle() {
        guard !hasInjected else { return }
        repeat {
            for end in 0...1 { deliver(from: end, 0, repeats: false) }
            for end in 0...1 { read(end, Int(FragmentStream.window) * StreamFragment.largestSize) }
        } while underWay.contains(where: { !$0.isEmpty })
        for end in 0...1 {
            precondition(received[end] == sent[1 - end], "bytes were lost")
            precondition(ends[end].deadline == .distantFuture, "an end waits for a fragment")
        }
        precondition(ends[1].isReadToEnd == ends[1].hasPeerEnded)
    }
}
