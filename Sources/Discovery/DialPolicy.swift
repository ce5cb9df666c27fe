public import Links

/// Whom to dial, and when: everything that decides, and nothing that acts.
///
/// What was heard, what became of dials and links, and the time go in; dials come out. It has no clock
/// and no randomness of its own, so it can be run through a day in a moment.
///
/// - Two that hear each other would both dial. The one with the lower tag dials at once, the other one
///   waits a random 5 to 10 seconds for it: hearing is not symmetric, and a forged low tag must not
///   silence anyone.
/// - A pair of addresses has one opener: nobody is dialed while a link from there is open or being
///   made, and accepting one calls off the dial. Kernels mix up the signalling otherwise.
/// - Who has proven an identity before comes first. Strangers get what a small budget leaves, since
///   anyone can be a thousand of them.
public struct DialPolicy: Sendable {
    /// The numbers.
    public struct Rules: Sendable {
        /// How often a candidate is heard first; 2. Once is whoever passes by, or a forged packet;
        /// who asks for one identity, and believes no other, may be content with that.
        public var timesHeard = 2
        /// Within which time; 30 s. The kernel scans for 10 of every 15 s and an adapter may report an
        /// advertiser once in that time, so that two of them take 15 s.
        public var within = Duration.seconds(30)
        /// The weakest signal, in dBm; -90. Below it a link is more likely to break than to help.
        public var weakestSignal = -90
        /// How many links there may be at once, those under way included; 8. Adapters hold few.
        public var links = 8
        /// How many strangers are dialed at once; 2.
        public var strangersAtOnce = 2
        /// How many strangers are dialed in a minute; 12.
        public var strangersPerMinute = 12
        /// How long the one with the higher tag waits to be dialed.
        public var yielding = Duration.seconds(5)...Duration.seconds(10)
        /// How long to wait after failures.
        public var backoff = Backoff()

        /// The defaults above.
        public init() {}
    }

    /// The numbers.
    public let rules: Rules
    /// What this side advertises; nil when it does not, so that nobody can dial it.
    public var ownTag: Tag?
    /// Who was heard.
    public private(set) var table: PeerTable

    /// The links that are open or being accepted, by address.
    private var links: [DeviceAddress: Links] = [:]
    /// When strangers were dialed, in the last minute.
    private var strangers: [MonotonicTime] = []

    private struct Links {
        /// Those whose peer has yet to prove itself.
        var unproven = 0
        /// Those that are ready, and who is there.
        var ready = 0
        var identity: String?
    }

    /// Begins with nobody known.
    public init(rules: Rules = Rules(), ownTag: Tag? = nil, table: PeerTable = PeerTable()) {
        precondition(rules.timesHeard <= PeerTable.recentTimes, "that many times are not kept")
        self.rules = rules
        self.ownTag = ownTag
        self.table = table
    }

    // MARK: - What happened

    /// An advertisement was heard.
    public mutating func heard(_ sighting: Sighting, at now: MonotonicTime) {
        // One's own, by way of a second adapter or of somebody's echo.
        guard ownTag == nil || sighting.candidate.tag != ownTag else { return }
        table.hear(sighting, at: now)
    }

    /// A dial that ``step(at:using:)`` asked for made a ready link to `identity`. It counts until
    /// ``linkEnded(with:)``.
    public mutating func dialSucceeded(_ candidate: Candidate, identity: String?) {
        table[candidate]?.dialing = DialRecord()
        table[candidate]?.identity = identity
        links[candidate.address, default: Links()].ready += 1
        links[candidate.address]?.identity = identity
    }

    /// A dial made no link.
    public mutating func dialFailed(
        _ candidate: Candidate, at now: MonotonicTime,
        using generator: inout some RandomNumberGenerator
    ) {
        guard var record = table[candidate]?.dialing else { return }
        record.isUnderWay = false
        record.failures += 1
        record.mustBeHeard = true
        record.turn = nil
        record.notBefore = now.advanced(
            by: rules.backoff.delay(afterFailures: record.failures, using: &generator))
        table[candidate]?.dialing = record
    }

    /// A dial was called off, and says nothing about the candidate.
    public mutating func dialCancelled(_ candidate: Candidate) {
        table[candidate]?.dialing.isUnderWay = false
    }

    /// A link from `address` was accepted, though nobody has proven anything yet. It keeps us from
    /// dialing there, and counts as a link only once it is ready: strangers take no places.
    ///
    /// - Returns: the dials to that address, which have to be called off.
    public mutating func accepted(from address: DeviceAddress) -> [Candidate] {
        links[address, default: Links()].unproven += 1
        return table.all.filter { $0.candidate.address == address && $0.dialing.isUnderWay }
            .map(\.candidate)
    }

    /// An accepted link ended before its peer was proven.
    public mutating func acceptFailed(from address: DeviceAddress) {
        change(address) { $0.unproven -= 1 }
    }

    /// An accepted link became ready, and its peer is `identity`. It counts until
    /// ``linkEnded(with:)``.
    public mutating func acceptSucceeded(from address: DeviceAddress, identity: String?) {
        change(address) { links in
            links.unproven -= 1
            links.ready += 1
            links.identity = identity
        }
    }

    /// A ready link ended. Who was there has to be heard again before it is dialed.
    public mutating func linkEnded(with address: DeviceAddress) {
        for entry in table.all where entry.candidate.address == address {
            table[entry.candidate]?.dialing.mustBeHeard = true
        }
        change(address) { $0.ready -= 1 }
    }

    /// How many links are ready.
    public var readyLinks: Int { links.values.reduce(0) { $0 + $1.ready } }

    /// Whether there may be more links, so that it makes sense to look for somebody.
    public var hasPlaces: Bool { readyLinks < rules.links }

    private mutating func change(_ address: DeviceAddress, _ body: (inout Links) -> Void) {
        guard var record = links[address] else { return }
        body(&record)
        links[address] = record.unproven > 0 || record.ready > 0 ? record : nil
    }

    // MARK: - What to do

    /// The dials to begin now, the best candidate first, and when to ask again if nothing happens.
    ///
    /// Each of them counts as under way from now on, and has to be answered with
    /// ``dialSucceeded(_:identity:)``, ``dialFailed(_:at:using:)`` or ``dialCancelled(_:)``.
    public mutating func step(
        at now: MonotonicTime, using generator: inout some RandomNumberGenerator
    ) -> (dials: [Candidate], next: MonotonicTime?) {
        table.forget(notHeardSince: now.advanced(by: rules.within * -2))
        strangers.removeAll { $0.advanced(by: .seconds(60)) <= now }
        var dials: [Candidate] = []
        var next: MonotonicTime?
        let order = table.entries.sorted { $0.identity != nil && $1.identity == nil }
        for entry in order where isEligible(entry, at: now) {
            let candidate = entry.candidate
            let time = turn(of: entry, at: now, using: &generator)
            if time > now {
                next = min(next ?? time, time)
            } else if isFree(entry), hasPlace(for: entry) {
                begin(entry, at: now)
                dials.append(candidate)
            }
        }
        // A place in the minute's budget comes free by itself; all else is told.
        if let oldest = strangers.first, strangers.count >= rules.strangersPerMinute {
            let time = oldest.advanced(by: .seconds(60))
            next = min(next ?? time, time)
        }
        return (dials, next)
    }

    /// Whether the candidate is worth a dial at all, if not yet.
    private func isEligible(_ entry: PeerTable.Entry, at now: MonotonicTime) -> Bool {
        let since = now.advanced(by: rules.within * -1)
        // Who has proven an identity needs to be heard again, but not twice.
        let needed = entry.identity == nil ? rules.timesHeard : 1
        return !entry.dialing.isUnderWay && !entry.dialing.mustBeHeard
            && entry.timesHeard(since: since) >= needed
            && entry.signal.map { $0 >= rules.weakestSignal } ?? true
            && !isLinked(entry)
    }

    private func isLinked(_ entry: PeerTable.Entry) -> Bool {
        if links[entry.candidate.address] != nil { return true }
        guard let identity = entry.identity else { return false }
        return links.values.contains { $0.ready > 0 && $0.identity == identity }
    }

    /// When it is this side's turn to dial.
    private mutating func turn(
        of entry: PeerTable.Entry, at now: MonotonicTime,
        using generator: inout some RandomNumberGenerator
    ) -> MonotonicTime {
        let earliest = entry.dialing.notBefore ?? now
        guard let ownTag, entry.candidate.tag.map({ ownTag > $0 }) ?? true else { return earliest }
        if let turn = entry.dialing.turn { return max(turn, earliest) }
        let part = Double.random(in: 0...1, using: &generator)
        let range = rules.yielding.upperBound - rules.yielding.lowerBound
        let turn = max(now, earliest).advanced(by: rules.yielding.lowerBound + range * part)
        table[entry.candidate]?.dialing.turn = turn
        return turn
    }

    /// Whether no other dial leads to the same address, or to the same identity.
    private func isFree(_ entry: PeerTable.Entry) -> Bool {
        !table.all.contains { other in
            other.dialing.isUnderWay
                && (other.candidate.address == entry.candidate.address
                    || entry.identity != nil && other.identity == entry.identity)
        }
    }

    private func hasPlace(for entry: PeerTable.Entry) -> Bool {
        let underWay = table.all.filter(\.dialing.isUnderWay)
        guard readyLinks + underWay.count < rules.links else { return false }
        guard entry.identity == nil else { return true }
        return underWay.count { $0.identity == nil } < rules.strangersAtOnce
            && strangers.count < rules.strangersPerMinute
    }

    private mutating func begin(_ entry: PeerTable.Entry, at now: MonotonicTime) {
        table[entry.candidate]?.dialing.isUnderWay = true
        table[entry.candidate]?.dialing.turn = nil
        if entry.identity == nil { strangers.append(now) }
    }
}
