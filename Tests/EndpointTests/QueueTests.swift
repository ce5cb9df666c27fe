import BLESecPrimitives
import Testing

@testable import BLESecDelivery

@Suite("Queues")
struct QueueTests {
    private final class Element: Sendable {
        let value: Int
        init(_ value: Int) { self.value = value }
    }

    @Test("a queue behaves like an array, and releases what is taken", arguments: 1...20)
    func behavesLikeAnArray(seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        let initial = (0..<Int.random(in: 0...9, using: &generator)).map { Element(-1 - $0) }
        var (queue, model) = (Queue(initial), initial)
        weak var taken: Element?
        for step in 0..<2_000 {
            // Phases of growth and of shrinking, so that the ring wraps, grows and is dropped.
            let grows = Int.random(in: 0..<10, using: &generator) < (step / 200 % 2 == 0 ? 7 : 3)
            if grows {
                let element = Element(step)
                queue.append(element)
                model.append(element)
            } else {
                taken = model.first
                #expect(queue.popFirst() === (model.isEmpty ? nil : model.removeFirst()))
                // Of the taken elements, only those of `initial` still exist; their values are
                // negative.
                #expect(taken.map { $0.value < 0 } ?? true)
            }
            #expect(queue.count == model.count && queue.isEmpty == model.isEmpty)
            #expect(queue.first === model.first)
            let index = Int.random(in: 0..<model.count + 2, using: &generator)
            #expect(queue[index] === (index < model.count ? model[index] : nil))
        }
        #expect(queue.elements.map(\.value) == model.map(\.value))
    }

    @Test("of successive confirmed positions in one epoch, the store gets only the last position")
    func successivePositions() {
        var queue = CommitQueue(
            hasStore: true,
            CommitQueue.StoreState(epoch: .none, lastThatMayHaveLeft: 0, confirmed: 0))
        let epoch = Identifier(high: 1, low: 1)
        for number: UInt64 in 1...3 { queue.append(.confirmed(through: number)) }
        queue.append(.peerEpoch(epoch, confirmed: 0))
        for number: UInt64 in 1...2 { queue.append(.confirmed(through: number)) }
        let changes = queue.beginCommit(queue.committedState)
        #expect(
            changes == [
                .confirmed(through: 3), .peerEpoch(epoch, confirmed: 0), .confirmed(through: 2),
            ])
    }
}
