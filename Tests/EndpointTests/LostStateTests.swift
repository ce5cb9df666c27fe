import BLESecPrimitives
import Testing

@testable import BLESecDelivery

/// States that are lost in an order that random chains of events rarely produce.
struct LostStateTests {
    @Test("the position `confirmed` does not go back when the program confirms a skipped message")
    func confirmedAfterSkip() throws {
        var generator = SeededGenerator(seed: 5)
        var stored = StoredEndpoint()
        stored.peerEpoch = Identifier(using: &generator)
        stored.confirmed = 5
        var messages = IncomingMessages(stored, window: 1_000, longestMessage: 100)
        _ = messages.linkBegan()
        for number in UInt64(6)...9 {
            let chunk = Chunk(number: number, offset: 0, length: 1, bytes: [1])
            let isNew = try messages.append(chunk)
            #expect(isNew)
        }
        for _ in 6...8 { #expect(messages.take() == [1]) }
        // A later state of this side had confirmed message 10, so the messages up to 10 are skipped.
        messages.begin(stored.peerEpoch, confirmed: 10)
        #expect(!messages.confirm(through: 3) && messages.confirmed == 10)
        let (bytes, hasMoved) = messages.takeConfirmed()
        #expect(bytes == [1] && !hasMoved && messages.confirmed == 10)
        let isNew = try messages.append(Chunk(number: 11, offset: 0, length: 1, bytes: [2]))
        #expect(isNew)
        #expect(messages.takeConfirmed().hasMoved && messages.confirmed == 11)
    }

    /// Two endpoints, and the receiver's store.
    private struct Scene {
        var generator = SeededGenerator(seed: 3)
        var sender: DeliveryEndpoint
        var receiver: DeliveryEndpoint
        var store = StoredEndpoint()
        private let limits: DeliveryEndpoint.Limits

        init(resendsUnknown: Bool = false) {
            var limits = DeliveryEndpoint.Limits()
            limits.resendsUnknown = resendsUnknown
            self.limits = limits
            sender = DeliveryEndpoint(using: &generator)
            receiver = DeliveryEndpoint(limits: limits, using: &generator)
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

        mutating func passToReceiver() throws {
            while receiver.wantsRecords, let record = sender.nextRecord(atMost: 100) {
                try receiver.receive(record, using: &generator)
                commit()
            }
        }

        mutating func passToSender() throws {
            while sender.wantsRecords, let record = receiver.nextRecord(atMost: 100) {
                try sender.receive(record, using: &generator)
                commit()
            }
        }

        mutating func exchange() throws {
            for _ in 0..<10 {
                try passToReceiver()
                try passToSender()
                commit()
            }
        }

        /// Passes a message, and replaces the receiver's store with a copy from before the message
        /// was confirmed.
        mutating func rollBackAfterConfirmation() throws {
            _ = sender.send([1])
            commit()
            connect()
            try exchange()
            let copy = store
            #expect(receiver.take() == [1])
            receiver.confirm(through: 1)
            commit()
            try exchange()
            restartReceiver(with: copy)
        }

        /// Replaces the receiver with a new instance whose store has the content `copy`.
        mutating func restartReceiver(with copy: StoredEndpoint) {
            store = copy
            receiver = DeliveryEndpoint(copy, limits: limits, using: &generator)
            commit()
        }

        mutating func restartReceiverAndConnectTwice() throws {
            restartReceiver(with: store)
            for _ in 0..<2 {
                connect()
                try passToReceiver()
                try exchange()
            }
        }

        /// Replaces the sender with a new instance whose state is empty.
        mutating func replaceSender() {
            sender = DeliveryEndpoint(using: &generator)
            commit()
        }

        /// Passes the next record of `writer` to `reader`; fails if `writer` has none.
        mutating func passOne(from writer: DeliveryEndpoint, to reader: DeliveryEndpoint) throws {
            let record = try #require(writer.nextRecord(atMost: 100))
            try reader.receive(record, using: &generator)
            commit()
        }

        /// The `resume` that the sender shows on a new link.
        func resumeOfSender() throws -> Resume {
            sender.linkBegan()
            guard case .resume(let resume)? = sender.nextRecord(atMost: 100) else {
                throw DeliveryError.violation("no resume")
            }
            return resume
        }

        /// Takes the events that the receiver has reported.
        func takeReceiverEvents() -> [DeliveryEndpoint.Event] {
            var events: [DeliveryEndpoint.Event] = []
            while let event = receiver.nextEvent() { events.append(event) }
            return events
        }
    }

    /// When a link is lost. In each case, the sender has not taken over the token of the receiver's
    /// new instance.
    enum LinkLoss: CaseIterable { case beforeLinkBegins, beforeResumeArrives, afterResumes }

    @Test(
        "no rollback is found, however often an instance begins without the peer taking over its token",
        arguments: LinkLoss.allCases)
    func manyStarts(_ loss: LinkLoss) throws {
        var scene = Scene()
        _ = scene.receiver.send([1])
        scene.commit()
        scene.connect()
        try scene.exchange()
        #expect(scene.sender.take() == [1])
        scene.sender.confirm(through: 1)
        try scene.exchange()
        for _ in 0..<StoredEndpoint.mostIdentifiers + 50 {
            scene.restartReceiver(with: scene.store)
            if loss == .beforeLinkBegins { continue }
            scene.connect()
            if loss == .beforeResumeArrives {
                _ = try #require(scene.receiver.nextRecord(atMost: 100))
            } else {
                try scene.passOne(from: scene.receiver, to: scene.sender)
                try scene.passOne(from: scene.sender, to: scene.receiver)
                #expect(!scene.takeReceiverEvents().contains(.storeRolledBack))
            }
        }
        #expect(scene.store.own.count <= StoredEndpoint.mostIdentifiers)
        scene.restartReceiver(with: scene.store)
        let id = scene.receiver.send([2])
        scene.commit()
        scene.connect()
        try scene.exchange()
        #expect(scene.sender.take() == [2])
        scene.sender.confirm(through: 2)
        try scene.exchange()
        let events = scene.takeReceiverEvents()
        #expect(events == [.confirmed(id: id)])
    }

    @Test("a token stays this side's own, however many epochs its instance begins")
    func manyEpochs() throws {
        var scene = Scene()
        for _ in 0..<StoredEndpoint.mostIdentifiers + 50 {
            _ = scene.receiver.send([1])
            scene.commit()
            scene.connect()
            try scene.exchange()
            scene.replaceSender()
        }
        scene.connect()
        try scene.exchange()
        _ = scene.receiver.send([2])
        scene.commit()
        try scene.exchange()
        #expect(scene.sender.take() == [2])
        scene.restartReceiver(with: scene.store)
        scene.connect()
        try scene.exchange()
        let events = scene.takeReceiverEvents()
        #expect(!events.contains(.storeRolledBack))
    }

    @Test("a message that is sent again after a loss counts as possibly sent")
    func sentAgain() throws {
        for isRolledBack in [false, true] {
            var scene = Scene(resendsUnknown: true)
            _ = scene.receiver.send([1])
            scene.commit()
            let copy = scene.store
            scene.connect()
            try scene.exchange()
            #expect(copy.queued.count == 1 && scene.store.queued.isEmpty)
            if isRolledBack { scene.restartReceiver(with: copy) } else { scene.replaceSender() }
            // The receiver begins an epoch, and the link is lost before the message leaves again.
            scene.connect()
            try scene.passOne(from: scene.sender, to: scene.receiver)
            #expect(scene.store.epoch != copy.epoch)
            #expect(scene.store.messages.count == 1 && scene.store.queued.isEmpty)
            scene.restartReceiver(with: scene.store)
            for _ in 0..<2 {
                scene.connect()
                try scene.exchange()
            }
            var taken = [scene.sender.take()]
            if isRolledBack { taken.append(scene.sender.take()) }
            #expect(taken.allSatisfy { $0 == [1] })
        }
    }

    @Test("after the receiver's store is rolled back and a link is cut, a queued message arrives")
    func messageAfterRollback() throws {
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
        scene.restartReceiver(with: copy)
        scene.connect()
        try scene.passToReceiver()
        #expect(scene.receiver.mustEndLink)
        #expect(scene.receiver.nextEvent() == .storeRolledBack)
        // The sender learns of the new state, but the link is cut before the sender can answer.
        scene.connect()
        try scene.passToSender()
        scene.connect()
        try scene.exchange()
        #expect(scene.receiver.take() == [2])
        #expect(scene.receiver.take() == nil)
        scene.receiver.confirm(through: 1)
        scene.commit()
        try scene.exchange()
        #expect(scene.sender.nextEvent() == .confirmed(id: second))
    }

    @Test(
        "a side learns that it was rolled back, even if its resume arrives before the peer sends a resume"
    )
    func rollbackFoundBeforePeersResume() throws {
        var scene = Scene()
        try scene.rollBackAfterConfirmation()
        scene.connect()
        try scene.passToSender()
        #expect(scene.sender.isWaitingForLinkEnd)
        try scene.passToReceiver()
        #expect(scene.receiver.mustEndLink)
        #expect(scene.receiver.nextEvent() == .storeRolledBack)
        #expect(scene.sender.nextRecord(atMost: 100) == nil)
    }

    @Test("a rollback is found only once, even if the side restarts before the peer knows of it")
    func foundOnce() throws {
        var scene = Scene()
        try scene.rollBackAfterConfirmation()
        scene.connect()
        try scene.passToReceiver()
        #expect(scene.receiver.nextEvent() == .storeRolledBack)
        _ = scene.receiver.send([2])
        scene.commit()
        try scene.restartReceiverAndConnectTwice()
        #expect(scene.receiver.nextEvent() == nil)
        #expect(scene.sender.take() == [2])
    }

    /// What a side does between the loss of its store and its next start.
    enum AfterLoss: CaseIterable { case noLink, resumesAlone, ownRecords }

    @Test(
        "a side that loses its store, and restarts before its peer knows, does not count as rolled back, and its messages arrive",
        arguments: AfterLoss.allCases, [false, true])
    func lossAndRestart(_ afterLoss: AfterLoss, peerHasSent: Bool) throws {
        var scene = Scene()
        // The peer knows the token and the epoch of the state that is lost below. If the peer has
        // sent a message, that state has confirmed the message, and the peer no longer keeps it.
        _ = scene.receiver.send([1])
        if peerHasSent { _ = scene.sender.send([2]) }
        scene.commit()
        scene.connect()
        try scene.exchange()
        while let message = scene.receiver.takeConfirmed() { #expect(message == [2]) }
        #expect(scene.sender.takeConfirmed() == [1])
        scene.commit()
        try scene.exchange()
        _ = scene.takeReceiverEvents()

        scene.restartReceiver(with: StoredEndpoint())
        if afterLoss != .noLink {
            scene.connect()
            let (own, peers) = (
                try #require(scene.receiver.nextRecord(atMost: 100)),
                try #require(scene.sender.nextRecord(atMost: 100))
            )
            try scene.receiver.receive(peers, using: &scene.generator)
            try scene.sender.receive(own, using: &scene.generator)
            scene.commit()
        }
        if afterLoss == .ownRecords {
            // The peer takes the new token over, and sends nothing.
            _ = scene.receiver.send([3])
            scene.commit()
            #expect(scene.receiver.nextRecord(atMost: 100) == nil, "the mark is not committed")
            scene.commit()
            while let record = scene.receiver.nextRecord(atMost: 100) {
                try scene.sender.receive(record, using: &scene.generator)
                scene.commit()
            }
            #expect(scene.sender.take() == [3])
        }
        _ = scene.receiver.send([4])
        scene.commit()
        scene.restartReceiver(with: scene.store)
        scene.connect()
        try scene.exchange()
        let events = scene.takeReceiverEvents()
        #expect(!events.contains(.storeRolledBack) && !scene.receiver.mustEndLink)
        #expect(scene.sender.take() == [4])
        // The other direction works too.
        _ = scene.sender.send([5])
        scene.commit()
        try scene.exchange()
        #expect(scene.receiver.take() == [5])
    }

    @Test("a side that loses its store does not count as rolled back, even if its peer was")
    func lossAndPeersRollback() throws {
        var scene = Scene()
        // The peer takes over the tokens of two instances of the store that is lost below. `older`
        // is the `resume` of a copy of the peer's store that knows only the first token.
        scene.connect()
        try scene.exchange()
        _ = scene.receiver.send([1])
        scene.commit()
        try scene.exchange()
        let older = try scene.resumeOfSender()
        scene.restartReceiver(with: scene.store)
        scene.connect()
        _ = scene.receiver.send([2])
        scene.commit()
        try scene.exchange()
        let newer = try scene.resumeOfSender()
        #expect(older.peerToken != newer.peerToken)

        scene.restartReceiver(with: StoredEndpoint())
        scene.receiver.linkBegan()
        try scene.receiver.receive(.resume(newer), using: &scene.generator)
        _ = scene.receiver.send([3])
        scene.commit()
        scene.restartReceiver(with: scene.store)
        scene.receiver.linkBegan()
        try scene.receiver.receive(.resume(older), using: &scene.generator)
        scene.commit()
        #expect(!scene.receiver.mustEndLink)
        #expect(!scene.takeReceiverEvents().contains(.storeRolledBack))
    }

    @Test("a copy from before the first link is found, even if the side has begun an epoch since")
    func copyFromBeforeFirstLink() throws {
        var scene = Scene()
        _ = scene.receiver.send([1])
        scene.commit()
        let copy = scene.store
        scene.connect()
        try scene.exchange()
        // The peer loses its state, so that the receiver begins another epoch.
        scene.replaceSender()
        scene.connect()
        try scene.exchange()
        _ = scene.receiver.send([2])
        scene.commit()
        try scene.exchange()
        #expect(scene.store.epoch != copy.epoch)

        scene.restartReceiver(with: copy)
        scene.connect()
        try scene.passToReceiver()
        #expect(scene.receiver.mustEndLink)
        #expect(scene.takeReceiverEvents() == [.unknown(id: 1), .storeRolledBack])
    }

    @Test("a rollback is found only once, even if the peer has begun an epoch since the copy")
    func foundOnceInNewEpoch() throws {
        for isBeforeFirstLink in [false, true] {
            var scene = Scene()
            var copy = scene.store
            scene.connect()
            try scene.exchange()
            if !isBeforeFirstLink {
                _ = scene.sender.send([1])
                scene.commit()
                try scene.exchange()
                #expect(scene.receiver.takeConfirmed() == [1])
                scene.commit()
                copy = scene.store
            }
            // The peer loses its state, and so begins another epoch. Its message in this epoch is
            // confirmed.
            scene.replaceSender()
            scene.connect()
            _ = scene.sender.send([2])
            scene.commit()
            try scene.exchange()
            #expect(scene.receiver.takeConfirmed() == [2])
            scene.commit()
            try scene.exchange()

            scene.restartReceiver(with: copy)
            scene.connect()
            try scene.passToReceiver()
            #expect(scene.takeReceiverEvents().contains(.storeRolledBack))
            _ = scene.receiver.send([3])
            scene.commit()
            try scene.restartReceiverAndConnectTwice()
            #expect(scene.receiver.nextEvent() == nil)
            #expect(scene.sender.take() == [3])
        }
    }

    @Test("an older copy is found, even if only a resume has told the peer what was confirmed")
    func confirmedInResume() throws {
        var scene = Scene()
        let id = scene.sender.send([1])
        scene.commit()
        scene.connect()
        try scene.passOne(from: scene.receiver, to: scene.sender)
        try scene.passOne(from: scene.sender, to: scene.receiver)
        let copy = scene.store
        // The first call only makes the store mark the message as possibly sent.
        for _ in 0..<2 {
            try scene.passToReceiver()
            scene.commit()
        }
        #expect(scene.receiver.takeConfirmed() == [1])
        scene.commit()
        // The link is lost before the confirmation leaves. On the next link, only the `resume`
        // leaves before that link is lost.
        scene.connect()
        try scene.passOne(from: scene.receiver, to: scene.sender)
        #expect(scene.sender.nextEvent() == .confirmed(id: id))
        scene.restartReceiver(with: copy)
        scene.connect()
        try scene.passToReceiver()
        #expect(scene.receiver.mustEndLink)
        #expect(scene.receiver.nextEvent() == .storeRolledBack)
    }

    @Test(
        "a process finds that a copy of its store was used, even if the copy confirmed a message only in a resume"
    )
    func copyHasConfirmed() throws {
        var scene = Scene()
        // The sender takes the first process's token over.
        _ = scene.receiver.send([9])
        scene.commit()
        scene.connect()
        try scene.exchange()
        #expect(scene.sender.takeConfirmed() == [9])
        try scene.exchange()
        _ = scene.takeReceiverEvents()
        let (first, firstStore) = (scene.receiver, scene.store)
        scene.restartReceiver(with: firstStore)
        let id = scene.sender.send([1])
        scene.commit()
        scene.connect()
        try scene.exchange()
        #expect(scene.receiver.takeConfirmed() == [1])
        scene.commit()
        scene.connect()
        try scene.passOne(from: scene.receiver, to: scene.sender)
        #expect(scene.sender.nextEvent() == .confirmed(id: id))
        (scene.receiver, scene.store) = (first, firstStore)
        scene.connect()
        try scene.passToReceiver()
        #expect(scene.receiver.mustEndLink)
        #expect(scene.takeReceiverEvents() == [.storeRolledBack])
        _ = scene.sender.send([2])
        scene.commit()
        scene.connect()
        try scene.exchange()
        #expect(scene.receiver.takeConfirmed() == [2])
    }

    @Test("if a peer is replaced after its end has arrived, no message counts as missing")
    func replacedAfterEnd() throws {
        var scene = Scene()
        _ = scene.sender.send([1])
        scene.sender.finish()
        scene.commit()
        scene.connect()
        try scene.exchange()
        #expect(scene.receiver.takeConfirmed() == [1] && scene.receiver.take() == nil)
        #expect(scene.receiver.hasReachedPeerEnd)
        scene.commit()
        try scene.exchange()
        scene.replaceSender()
        scene.sender.finish()
        scene.commit()
        scene.connect()
        try scene.exchange()
        #expect(!scene.receiver.mayMissMessages)
    }

    /// With which store the first process has begun. Later, another process uses a copy of it.
    enum Beginning: CaseIterable { case newStore, storeFromBefore }

    @Test(
        "a process finds that a copy of its store was used meanwhile, and sends nothing again",
        arguments: Beginning.allCases)
    func copyInUse(_ beginning: Beginning) throws {
        var scene = Scene()
        if beginning == .storeFromBefore { scene.restartReceiver(with: scene.store) }
        _ = scene.receiver.send([1])
        scene.commit()
        scene.connect()
        try scene.exchange()
        #expect(scene.sender.takeConfirmed() == [1])
        try scene.exchange()
        _ = scene.takeReceiverEvents()
        let id = scene.receiver.send([2])
        scene.commit()
        let (first, firstStore) = (scene.receiver, scene.store)
        scene.restartReceiver(with: firstStore)
        scene.connect()
        try scene.exchange()
        #expect(scene.sender.takeConfirmed() == [2])
        try scene.exchange()
        (scene.receiver, scene.store) = (first, firstStore)
        scene.connect()
        try scene.passToReceiver()
        #expect(scene.receiver.mustEndLink)
        #expect(scene.takeReceiverEvents() == [.unknown(id: id), .storeRolledBack])
        let next = scene.receiver.send([3])
        scene.commit()
        scene.connect()
        try scene.exchange()
        #expect(scene.sender.takeConfirmed() == [3])
        #expect(scene.sender.take() == nil)
        try scene.exchange()
        #expect(scene.takeReceiverEvents() == [.confirmed(id: next)])
    }

    @Test("two stores that a side uses in turn do not stop the messages")
    func storesInTurn() throws {
        var scene = Scene()
        var stores = [scene.store, StoredEndpoint()]
        for turn in 0..<6 {
            scene.restartReceiver(with: stores[turn % 2])
            for _ in 0..<3 {
                scene.connect()
                try scene.passToReceiver()
                try scene.exchange()
            }
            let (own, peers) = ([UInt8(turn)], [UInt8(turn + 10)])
            _ = scene.receiver.send(own)
            _ = scene.sender.send(peers)
            scene.commit()
            try scene.exchange()
            #expect(scene.sender.takeConfirmed() == own, "turn \(turn)")
            #expect(scene.receiver.takeConfirmed() == peers, "turn \(turn)")
            scene.commit()
            try scene.exchange()
            stores[turn % 2] = scene.store
        }
    }

    @Test("a program learns that messages may be missing between those that it takes")
    func mayMissMessages() throws {
        var scene = Scene()
        _ = scene.sender.send([1])
        scene.commit()
        scene.connect()
        try scene.exchange()
        #expect(scene.receiver.takeConfirmed() == [1])
        scene.commit()
        try scene.exchange()
        scene.connect()
        try scene.exchange()
        #expect(!scene.receiver.mayMissMessages)
        // The sender's new state sends other messages.
        scene.replaceSender()
        _ = scene.sender.send([2])
        scene.commit()
        scene.connect()
        try scene.exchange()
        #expect(scene.receiver.mayMissMessages)
        // The store keeps this for the next instance, also if that instance has no link.
        scene.restartReceiver(with: scene.store)
        #expect(scene.receiver.mayMissMessages)
        scene.connect()
        try scene.exchange()
        #expect(scene.receiver.mayMissMessages)
        // A new state of the receiver continues after what the earlier state has confirmed.
        #expect(scene.receiver.takeConfirmed() == [2])
        scene.commit()
        try scene.exchange()
        scene.restartReceiver(with: StoredEndpoint())
        for message: UInt8 in [3, 4] { _ = scene.sender.send([message]) }
        scene.commit()
        scene.connect()
        try scene.exchange()
        #expect(scene.receiver.takeConfirmed() == [3])
        scene.commit()
        try scene.exchange()
        #expect(!scene.receiver.mayMissMessages)
        // Now the receiver's earlier state has a message that it has not confirmed. On the next
        // link, the sender either sends its `resume` first or gets the receiver's `resume` first.
        for isSenderFirst in [false, true] {
            scene.restartReceiver(with: StoredEndpoint())
            _ = scene.sender.send([5])
            scene.commit()
            scene.connect()
            if isSenderFirst {
                try scene.passOne(from: scene.sender, to: scene.receiver)
            } else {
                try scene.passOne(from: scene.receiver, to: scene.sender)
            }
            try scene.exchange()
            #expect(!scene.receiver.mayMissMessages, "nothing is taken yet")
            #expect(scene.receiver.take() == [5])
            #expect(scene.receiver.mayMissMessages)
        }
    }

    @Test(
        "a side is not complete while the peer's resume shows an epoch in which the peer has not finished"
    )
    func notCompleteInNewEpoch() throws {
        var pair = EndpointPair()
        pair.connect()
        for side in 0...1 { pair.sides[side].finish() }
        for _ in 0..<3 { try pair.exchange() }
        #expect(pair.sides[0].hasToldPeerOfCompletion)
        pair.sides[1] = DeliveryEndpoint(using: &pair.generator)
        pair.commit()
        for _ in 0..<2 {
            // All records of side 0 arrive; of the records of side 1, only the resume arrives.
            pair.connect()
            let resume = try #require(pair.sides[1].nextRecord(atMost: 100))
            try pair.sides[0].receive(resume, using: &pair.generator)
            pair.commit()
            for _ in 0..<3 {
                while let record = pair.sides[0].nextRecord(atMost: 100) {
                    try pair.sides[1].receive(record, using: &pair.generator)
                    pair.commit()
                }
                // Commits the mark that the end may have left; only then can the end leave.
                pair.commit()
            }
            #expect(!pair.sides[0].isSettled)
        }
        #expect(pair.sides[1].hasReachedPeerEnd)
        pair.sides[1].finish()
        for _ in 0..<3 { try pair.exchange() }
        #expect(pair.sides.allSatisfy { $0.hasToldPeerOfCompletion })
    }

    @Test("a side whose end was confirmed completes with a peer whose store was rolled back")
    func finishedBeforeRollback() throws {
        var scene = Scene()
        scene.sender.finish()
        scene.commit()
        scene.connect()
        try scene.exchange()
        #expect(scene.receiver.hasReachedPeerEnd && !scene.sender.hasPending)
        let copy = scene.store
        // The store is used once more before it is replaced by the copy.
        scene.restartReceiver(with: copy)
        scene.connect()
        _ = scene.receiver.send([1])
        scene.commit()
        try scene.exchange()
        #expect(scene.sender.take() == [1])
        scene.sender.confirm(through: 1)
        scene.restartReceiver(with: copy)
        for _ in 0..<3 {
            scene.connect()
            try scene.exchange()
        }
        scene.receiver.finish()
        scene.commit()
        try scene.exchange()
        for side in [scene.sender, scene.receiver] {
            #expect(side.hasReachedPeerEnd && !side.hasPending && side.isSettled)
        }
    }

    @Test("a side that has finished sends its end again to a peer whose state was lost")
    func finishedAgain() throws {
        var pair = EndpointPair()
        pair.connect()
        pair.sides[0].finish()
        for _ in 0..<3 { try pair.exchange() }
        #expect(pair.sides[1].hasReachedPeerEnd && !pair.sides[0].hasPending)
        pair.sides[1] = DeliveryEndpoint(using: &pair.generator)
        pair.commit()
        pair.connect()
        for _ in 0..<3 { try pair.exchange() }
        pair.sides[1].finish()
        for _ in 0..<3 { try pair.exchange() }
        #expect(pair.sides.allSatisfy { $0.hasToldPeerOfCompletion && $0.hasReachedPeerEnd })
    }

    @Test(
        "if a peer's state is lost after its end, a side is complete only after the peer's next end"
    )
    func nextEnd() throws {
        var pair = EndpointPair()
        pair.connect()
        pair.sides[1].finish()
        for _ in 0..<3 { try pair.exchange() }
        #expect(pair.sides[0].hasReachedPeerEnd)
        pair.sides[1] = DeliveryEndpoint(using: &pair.generator)
        pair.sides[0].finish()
        pair.commit()
        pair.connect()
        for _ in 0..<3 { try pair.exchange() }
        #expect(pair.sides[1].hasReachedPeerEnd && !pair.sides[0].isSettled)
        #expect(!pair.sides[0].hasToldPeerOfCompletion)
        pair.sides[1].finish()
        for _ in 0..<3 { try pair.exchange() }
        let haveToldPeer = pair.sides.map(\.hasToldPeerOfCompletion)
        #expect(haveToldPeer == [true, true])
    }

    @Test(
        "a message or a stream of the peer's new instance ends the session if an earlier instance has finished",
        arguments: [false, true])
    func moreAfterEnd(opensStream: Bool) throws {
        var pair = EndpointPair()
        pair.connect()
        pair.sides[1].finish()
        for _ in 0..<3 { try pair.exchange() }
        pair.sides[1] = DeliveryEndpoint(using: &pair.generator)
        if opensStream {
            _ = pair.sides[1].streams.open("", .normal)
        } else {
            _ = pair.sides[1].send([1])
        }
        pair.commit()
        pair.connect()
        #expect(throws: DeliveryError.sessionLost) {
            for _ in 0..<3 { try pair.exchange() }
        }
    }
}
