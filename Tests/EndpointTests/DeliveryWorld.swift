import BLESecDelivery
import BLESecPrimitives

/// A chain of random events for two endpoints with stores: messages, links that are cut, commits
/// that take time, crashes, and stores that are replaced with older copies.
struct DeliveryWorld {
    /// What may happen besides messages and lost links.
    struct Hazards {
        /// Whether processes end at any moment, and begin again with their stores.
        var crashes = false
        /// Whether processes begin again with empty stores.
        var crashesWithoutStore = false
        /// Whether stores are replaced with older copies.
        var rollbacks = false
        /// Whether messages whose fate is unknown are sent again.
        var resendsUnknown = false
        /// Whether programs finish before the chain's end.
        var finishes = false
        /// Whether messages that have not left are dropped while a side is down.
        var drops = false
    }

    /// A message's content: the life of the program in which it was sent, and its number. A program
    /// begins a new life when its store is lost, or is replaced with an older copy.
    struct Content: Hashable {
        var life: Int
        var number: Int
    }

    /// One side: the endpoint, the store, and the program with its own record.
    struct Side {
        var endpoint: DeliveryEndpoint
        var store = StoredEndpoint()
        /// The changes that the store is committing, and how many of `handled` are committed with
        /// them.
        var committing: (changes: [StoreChange], handledCount: Int)?
        /// The messages that the program has handled, in order. They are committed together with
        /// the position in the store.
        var handled: [Content] = []
        /// How many of `handled` are committed.
        var committedCount = 0
        /// Copies of the store and of the program's record.
        var copies: [Copy] = []
        /// The link that this side uses.
        var link: Int?
        /// The program's messages by id, and what it has learned about them.
        var sent: [UInt64: Content] = [:]
        var confirmed: Set<Content> = []
        var unknown: Set<Content> = []
        /// The messages that were dropped from the store.
        var dropped: Set<Content> = []
        var life = 0
        /// How many messages the program has sent.
        var sentCount = 0
        /// Whether this side's state was ever lost.
        var hasLostState = false
        /// Whether the store was ever replaced with an older copy.
        var wasRolledBack = false
        /// Whether the store was lost, and later replaced with a copy of the lost store from before
        /// its first link. Nobody can notice that (`docs/delivery.md`, "What is guaranteed").
        var hasUnmetCopy = false
        /// Whether the store is an older copy, the peer has met a later state, and this side has
        /// not noticed that yet.
        var mustNoticeRollback = false
        /// Whether the endpoint has said that it has no record to send, and nothing that may cause
        /// a record has happened since then.
        var isIdle = false
    }

    struct Copy {
        var store = StoredEndpoint()
        var handled: [Content]
        var sent: [UInt64: Content] = [:]
        var confirmed: Set<Content> = []
        var unknown: Set<Content> = []
        var dropped: Set<Content> = []
    }

    struct Failure: Error, CustomStringConvertible { var description: String }

    var sides: [Side]
    /// The records that are under way on each link, by the side that receives them.
    private var underWay: [Int: [[DeliveryRecord]]] = [:]
    private var newestLink = 0
    private var generator: SeededGenerator
    private let hazards: Hazards
    private let limits: DeliveryEndpoint.Limits
    /// Contents that were sent, in order, by side.
    private(set) var sentContents: [[Content]] = [[], []]
    /// How many rollbacks were noticed. Only those that a side had to notice count
    /// (``Side/mustNoticeRollback``).
    private(set) var noticedRollbacks = 0

    init(seed: UInt64, _ hazards: Hazards, window: Int = 4_000) {
        generator = SeededGenerator(seed: seed)
        self.hazards = hazards
        var limits = DeliveryEndpoint.Limits()
        limits.window = window
        limits.longestMessage = 20_000
        limits.resendsUnknown = hazards.resendsUnknown
        self.limits = limits
        sides = []
        for _ in 0..<2 {
            sides.append(Side(endpoint: DeliveryEndpoint(limits: limits, using: &generator)))
        }
    }

    // MARK: - Events

    mutating func step() throws {
        let side = Int.random(in: 0...1, using: &generator)
        switch Int.random(in: 0..<1_000, using: &generator) {
        case 0..<80: send(side)
        case 80..<430: try transmit(side)
        case 430..<700: try deliver(to: side)
        case 700..<830: commit(side)
        case 830..<930: try take(side)
        case 930..<950: connect()
        case 950..<952: cut()
        case 952..<956: if hazards.crashes { crash(side, restoring: nil) }
        case 956..<958: if hazards.crashesWithoutStore { loseStore(side) }
        case 958..<962: copyStore(side)
        case 962..<965: if hazards.rollbacks { rollBack(side) }
        case 965..<966:
            sides[side].isIdle = false
            if hazards.finishes { sides[side].endpoint.finish() }
        default: noticeLink(side)
        }
        try learn(side)
    }

    private mutating func send(_ side: Int) {
        guard !sides[side].endpoint.hasFinished else { return }
        sides[side].isIdle = false
        sides[side].sentCount += 1
        let content = Content(life: sides[side].life, number: sides[side].sentCount)
        let length = [0, 1, 10, 900, 3_000].randomElement(using: &generator) ?? 0
        let id = sides[side].endpoint.send(Self.encode(content, length))
        sides[side].sent[id] = content
        sentContents[side].append(content)
    }

    private mutating func transmit(_ side: Int) throws {
        guard let link = sides[side].link else { return }
        for _ in 0..<Int.random(in: 1...4, using: &generator) {
            guard let record = sides[side].endpoint.nextRecord(atMost: 700) else {
                sides[side].isIdle = true
                break
            }
            guard !sides[side].isIdle else {
                throw Failure(description: "side \(side) sends \(record), which nothing has caused")
            }
            if let change = sides[side].committing?.0.first(where: Self.blocks) {
                throw Failure(
                    description: "side \(side) sends \(record) before \(change) is stored")
            }
            sides[side].isIdle = !sides[side].endpoint.mayHaveMore
            underWay[link]?[1 - side].append(record)
        }
        if sides[side].endpoint.mustEndLink { endLink(of: side) }
    }

    /// Whether a change has to be stored before the next record leaves.
    private static func blocks(_ change: StoreChange) -> Bool {
        switch change {
        case .newestIdentifier, .epoch, .seen, .peer, .peerEpoch, .rolledBack: true
        default: false
        }
    }

    private mutating func deliver(to side: Int) throws {
        guard let link = sides[side].link, sides[side].endpoint.wantsRecords,
            let records = underWay[link]?[side], let record = records.first
        else { return }
        underWay[link]?[side].removeFirst()
        do {
            try sides[side].endpoint.receive(record, using: &generator)
            if sides[side].endpoint.mayHaveAnswer { sides[side].isIdle = false }
        } catch {
            throw Failure(description: "side \(side) ends the link: \(error), at \(record)")
        }
    }

    private mutating func commit(_ side: Int) {
        if let (changes, handledCount) = sides[side].committing {
            for change in changes { sides[side].store.apply(change) }
            sides[side].committedCount = handledCount
            sides[side].committing = nil
            sides[side].endpoint.didCommit()
            sides[side].isIdle = false
        } else if let changes = sides[side].endpoint.takeChanges() {
            sides[side].committing = (changes, sides[side].handled.count)
        }
    }

    /// The program takes a message if one waits, handles the message, and confirms it.
    private mutating func take(_ side: Int) throws {
        sides[side].isIdle = false
        if let bytes = sides[side].endpoint.take() {
            guard !sides[side].mustNoticeRollback else {
                throw Failure(description: "side \(side) takes a message, but was rolled back")
            }
            sides[side].handled.append(Self.decode(bytes))
        }
        // A crash undoes what is not committed yet: handled messages and confirmations.
        sides[side].endpoint.confirm(through: sides[side].endpoint.takenCount)
    }

    /// Brings up a link. One side notices it now, the other side later.
    private mutating func connect() {
        newestLink += 1
        underWay[newestLink] = [[], []]
        noticeLink(Int.random(in: 0...1, using: &generator))
    }

    private mutating func noticeLink(_ side: Int) {
        guard underWay[newestLink] != nil, sides[side].link != newestLink else { return }
        sides[side].link = newestLink
        sides[side].endpoint.linkBegan()
        sides[side].isIdle = false
    }

    private mutating func cut() {
        underWay[newestLink] = nil
        for side in 0...1 where sides[side].link == newestLink { endLink(of: side) }
    }

    private mutating func endLink(of side: Int) {
        sides[side].link = nil
        sides[side].endpoint.linkEnded()
        // The peer notices the link's end together with the next link. Until then it receives
        // nothing.
        underWay[newestLink] = nil
    }

    // MARK: - Lost states

    /// Ends a side's process, and starts a new one with the side's store or, if given, with `copy`.
    private mutating func crash(_ side: Int, restoring copy: Copy?) {
        endLink(of: side)
        if let copy {
            let hasMetPeer = copy.store.seen.token != .none || copy.store.peerEpoch != .none
            if !copy.store.own.isEmpty, !hasMetPeer,
                !copy.store.epoch.sharesStore(with: sides[side].store.epoch)
            {
                sides[side].hasUnmetCopy = true
            }
            sides[side].store = copy.store
            sides[side].handled = copy.handled
            sides[side].sent = copy.sent
            sides[side].confirmed = copy.confirmed
            sides[side].unknown = copy.unknown
            sides[side].dropped = copy.dropped
            sides[side].life += 1
            sides[side].hasLostState = true
            // A side must notice its rollback if the other side's store has met a later state of
            // that side. If the peer has a rollback to notice, this is decided anew for the peer,
            // since this side's copy may not have met the peer's later state.
            for index in 0...1 where index == side || sides[index].mustNoticeRollback {
                sides[index].mustNoticeRollback = Self.hasMet(
                    sides[1 - index].store, later: sides[index].store)
            }
        } else {
            sides[side].handled.removeLast(
                sides[side].handled.count - sides[side].committedCount)
        }
        sides[side].committedCount = sides[side].handled.count
        sides[side].committing = nil
        let store = sides[side].store
        let storedIDs = Set(store.messages.map(\.id))
        // For the new process, messages that were not committed have never been sent.
        for (id, content) in sides[side].sent
        where !storedIDs.contains(id) && id >= store.nextID {
            sentContents[side].removeAll { $0 == content }
            sides[side].sent[id] = nil
        }
        if hazards.drops { drop(side) }
        sides[side].endpoint = DeliveryEndpoint(
            sides[side].store, limits: limits, using: &generator)
    }

    /// Drops some of the messages that have not left, while no process uses the store.
    private mutating func drop(_ side: Int) {
        let queued = sides[side].store.queued.filter { $0.bytes != nil }.map(\.id)
        let ids = queued.filter { _ in Int.random(in: 0..<3, using: &generator) == 0 }
        sides[side].store.apply(.dropped(Set(ids)))
        for id in ids {
            if let content = sides[side].sent[id] { sides[side].dropped.insert(content) }
        }
    }

    private mutating func loseStore(_ side: Int) {
        // If rollbacks occur too, both sides' states may be lost, and then no side can recognize a
        // message that is sent again. So the program loses its record as well.
        crash(side, restoring: Copy(handled: hazards.rollbacks ? [] : sides[side].handled))
    }

    private mutating func copyStore(_ side: Int) {
        let handled = Array(sides[side].handled.prefix(sides[side].committedCount))
        sides[side].copies.append(
            Copy(
                store: sides[side].store, handled: handled, sent: sides[side].sent,
                confirmed: sides[side].confirmed, unknown: sides[side].unknown,
                dropped: sides[side].dropped))
    }

    private mutating func rollBack(_ side: Int) {
        guard let copy = sides[side].copies.randomElement(using: &generator) else { return }
        sides[side].wasRolledBack = true
        crash(side, restoring: copy)
    }

    /// Whether a peer whose store is `peer` has met a later state of a side than `store`, as
    /// `docs/delivery.md` defines it ("A received `resume`", step 1). What the peer has met but not
    /// committed yet is not considered; that could only change the result from false to true.
    private static func hasMet(_ peer: StoredEndpoint, later store: StoredEndpoint) -> Bool {
        // An unused store begins a new state, which is no rollback.
        guard !store.own.isEmpty else { return false }
        let hasMetPeer = store.seen.token != .none || store.peerEpoch != .none
        for name in [peer.peerToken, peer.peerEpoch]
        where name != .none && !store.own.contains(name) {
            if name.sharesStore(with: store.epoch) { return true }
            let isOfLostStore = !hasMetPeer || store.own.contains { $0.sharesStore(with: name) }
            if !isOfLostStore { return true }
        }
        // The peer's program has confirmed messages that have not left according to `store`; or the
        // peer has the confirmation of messages that this side's program has not confirmed
        // according to `store`. (A gap in an epoch that the store has seen only in a `resume` is
        // another sign. It is not used here, since the peer may begin another epoch before its next
        // `resume`.)
        return peer.peerEpoch == store.epoch
            && peer.confirmed > max(store.lastThatMayHaveLeft, store.first - 1)
            || peer.epoch == store.peerEpoch && peer.first > store.confirmed + 1
    }

    // MARK: - What the programs learn

    private mutating func learn(_ side: Int) throws {
        guard !sides[side].endpoint.mayMissMessages || sides.contains(where: \.hasLostState) else {
            throw Failure(description: "side \(side) may miss messages, and no state was lost")
        }
        while let event = sides[side].endpoint.nextEvent() {
            switch event {
            case .confirmed(let id):
                guard let content = sides[side].sent[id] else { continue }
                guard sides[1 - side].handled.contains(content) || sides[1 - side].hasLostState
                else { throw Failure(description: "\(content) is confirmed and was not taken") }
                guard !sides[side].unknown.contains(content) else {
                    throw Failure(description: "\(content) is unknown and then confirmed")
                }
                sides[side].confirmed.insert(content)
            case .unknown(let id):
                guard let content = sides[side].sent[id] else { continue }
                guard sides.contains(where: \.hasLostState) else {
                    throw Failure(description: "\(content) is unknown, and no state was lost")
                }
                guard !sides[side].confirmed.contains(content) else {
                    throw Failure(description: "\(content) is confirmed and then unknown")
                }
                sides[side].unknown.insert(content)
            case .finished:
                guard sides[1 - side].endpoint.hasReachedPeerEnd else {
                    throw Failure(description: "the end of side \(side) was not taken")
                }
            case .storeRolledBack:
                // The exception of `docs/delivery.md`, "What is guaranteed": the peer's copy names
                // what a side with a lost store does not know.
                let isMisled = sides[side].hasLostState && sides[1 - side].wasRolledBack
                guard sides[side].wasRolledBack || isMisled else {
                    throw Failure(description: "side \(side) was never rolled back")
                }
                if sides[side].mustNoticeRollback { noticedRollbacks += 1 }
                sides[side].mustNoticeRollback = false
            }
        }
    }

    // MARK: - The end

    /// Brings up links until nothing moves any more on the newest one. Then checks what
    /// `docs/delivery.md` promises.
    mutating func settle() throws {
        for side in 0...1 {
            sides[side].endpoint.finish()
            sides[side].isIdle = false
        }
        // For each side, whether it gets the peer's `resume` before it sends its own.
        let receivesFirst = [Bool.random(using: &generator), Bool.random(using: &generator)]
        for _ in 0..<40 {
            cut()
            connect()
            for side in 0...1 { noticeLink(side) }
            var isQuiet = false
            for _ in 0..<4_000 where !isQuiet {
                let countsBefore = (
                    underWay[newestLink]?.map(\.count) ?? [], sides.map(\.handled.count)
                )
                for side in 0...1 {
                    for _ in 0..<2 { commit(side) }
                    try take(side)
                    if receivesFirst[side] { try deliver(to: side) }
                    try transmit(side)
                    try deliver(to: side)
                    try learn(side)
                }
                isQuiet =
                    (underWay[newestLink]?.map(\.count) ?? []) == countsBefore.0
                    && sides.map(\.handled.count) == countsBefore.1
                    && sides.allSatisfy { $0.committing == nil }
                    && (underWay[newestLink] ?? []).allSatisfy(\.isEmpty)
                    && sides.allSatisfy { $0.endpoint.hasToldPeerOfCompletion }
                if underWay[newestLink] == nil { break }
            }
            if isQuiet { break }
        }
        for side in 0...1 {
            for _ in 0..<4 { commit(side) }
            try learn(side)
        }
        try check()
    }

    private func check() throws {
        for side in 0...1 {
            let peer = sides[1 - side]
            guard sides[side].endpoint.isComplete, sides[side].endpoint.hasToldPeerOfCompletion
            else {
                if sides.contains(where: \.hasUnmetCopy) { return }
                throw Failure(description: "side \(side) is not complete")
            }
            guard !sides[side].mustNoticeRollback else {
                throw Failure(description: "side \(side) has not noticed that it was rolled back")
            }
            for content in sides[side].sent.values
            where !sides[side].confirmed.contains(content)
                && !sides[side].unknown.contains(content)
                && !sides[side].dropped.contains(content)
                && content.life == sides[side].life
            { throw Failure(description: "\(content) of side \(side) has no fate") }
            if hazards.resendsUnknown, !hazards.rollbacks {
                for content in sides[side].sent.values
                where content.life == sides[side].life && !sides[side].dropped.contains(content)
                    && !peer.handled.contains(content)
                { throw Failure(description: "\(content) of side \(side) is lost") }
            }
            if !hazards.resendsUnknown {
                guard Set(peer.handled).count == peer.handled.count else {
                    throw Failure(description: "side \(1 - side) has taken a message twice")
                }
                var last: [Int: Int] = [:]
                for content in peer.handled {
                    guard content.number > last[content.life] ?? 0 else {
                        throw Failure(
                            description: "side \(1 - side) has taken messages out of order")
                    }
                    last[content.life] = content.number
                }
            }
            // Without a lost state, everything arrives.
            if !sides.contains(where: \.hasLostState) {
                guard
                    peer.handled == sentContents[side].filter({ !sides[side].dropped.contains($0) })
                else {
                    throw Failure(
                        description: "side \(1 - side) has taken \(peer.handled.count) of "
                            + "\(sentContents[side].count) messages")
                }
            }
            try checkFates(side)
        }
    }

    /// Checks what the store says about each message.
    private func checkFates(_ side: Int) throws {
        for (id, content) in sides[side].sent where content.life == sides[side].life {
            let fate = sides[side].store.fates.fate(id: id)
            let isTrue =
                switch fate {
                case .confirmed: sides[side].confirmed.contains(content)
                case .unknown:
                    sides[side].unknown.contains(content)
                        || sides[side].dropped.contains(content) && sides[side].hasLostState
                case .dropped:
                    sides[side].dropped.contains(content)
                        && !sides[1 - side].handled.contains(content)
                case nil: false
                }
            guard isTrue else {
                throw Failure(description: "the store says that \(content) is \(fate as Any)")
            }
        }
        for (id, content) in sides[side].sent
        where sides[side].store.fates.fate(id: id) == .dropped {
            guard !sides[1 - side].handled.contains(content) else {
                throw Failure(description: "\(content) was dropped, and was taken")
            }
        }
    }

    private static func encode(_ content: Content, _ length: Int) -> [UInt8] {
        Array("\(content.life) \(content.number) ".utf8) + [UInt8](repeating: 46, count: length)
    }

    private static func decode(_ bytes: [UInt8]) -> Content {
        let words = String(decoding: bytes, as: UTF8.self).split(separator: " ")
        return Content(life: Int(words[0]) ?? -1, number: Int(words[1]) ?? -1)
    }
}
