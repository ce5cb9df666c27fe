import BLESecDelivery
import BLESecPrimitives
import Testing

/// Lost states in a certain order, which random chains hardly meet.
struct LostStateTests {
    /// Two endpoints, and the store of the second one.
    private struct Scene {
        var generator = SeededGenerator(seed: 3)
        var sender: DeliveryEndpoint
        var receiver: DeliveryEndpoint
        var store = StoredEndpoint()

        init() {
            sender = DeliveryEndpoint(using: &generator)
            receiver = DeliveryEndpoint(using: &generator)
            commit()
        }

        mutating func commit() {
            while sender.takeChanges() != nil { sender.didCommit() }
            while let changes = receiver.takeChanges() {
                for change in changes { store.apply(change) }
                receiver.didCommit()
            }
        }

        mutating func connect() {
            sender.linkBegan()
            receiver.linkBegan()
        }

        mutating func toReceiver() throws {
            while receiver.wantsRecords, let record = sender.nextRecord(atMost: 100) {
                try receiver.receive(record, using: &generator)
                commit()
            }
        }

        mutating func toSender() throws {
            while sender.wantsRecords, let record = receiver.nextRecord(atMost: 100) {
                try sender.receive(record, using: &generator)
                commit()
            }
        }

        mutating func exchange() throws {
            for _ in 0..<10 {
                try toReceiver()
                try toSender()
                commit()
            }
        }

        mutating func restore(_ copy: StoredEndpoint) {
            store = copy
            receiver = DeliveryEndpoint(copy, using: &generator)
            commit()
        }
    }

    @Test("after a rollback of the receiver and a cut link, a message that never left arrives")
    func undone() throws {
        var scene = Scene()
        let first = scene.sender.send([1])
        scene.commit()
        scene.connect()
        try scene.exchange()
        let copy = scene.store
        #expect(scene.receiver.take() == [1])
        scene.receiver.confirm(through: 1)
        scene.commit()
        try scene.exchange()
        #expect(scene.sender.nextEvent() == .confirmed(id: first))

        let second = scene.sender.send([2])
        scene.restore(copy)
        scene.connect()
        try scene.toReceiver()
        #expect(scene.receiver.mustEndLink)
        #expect(scene.receiver.nextEvent() == .storeRolledBack)
        // The sender learns of the new state, and the link is cut before it can answer.
        scene.connect()
        try scene.toSender()
        scene.connect()
        try scene.exchange()
        #expect(scene.receiver.take() == [2])
        #expect(scene.receiver.take() == nil)
        scene.receiver.confirm(through: 1)
        scene.commit()
        try scene.exchange()
        #expect(scene.sender.nextEvent() == .confirmed(id: second))
    }
}
