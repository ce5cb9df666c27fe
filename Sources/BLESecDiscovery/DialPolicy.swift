package import BLESecLinks

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
/// - Who has proven an identity before comes first, then addresses where somebody did; the tag there
///   may be a new one, or forged. They and unproven candidates get what a small budget each leaves, since anyone
///   can be a thousand of them, and within it chance decides: a strong signal or a long stay is what a
///   forger has, too.
package struct DialPolicy: Sendable {
    /// The numbers.
    package struct Rules: Sendable {
        /// How often a candidate is heard first; 2. Once is whoever passes by, or a forged packet;
        /// who asks for one identity, and believes no other, may be content with that.
        package var timesHeard = 2
        /// Within which time; 30 s. The kernel scans for 10 of every 15 s and an adapter may report an
        /// advertiser once in that time, so that two of them take 15 s.
        package var within = Duration.seconds(30)
        /// The weakest signal, in dBm; -90. Below it a link is more likely to break than to help.
        package var weakestSignal = -90
        /// How many links there may be at once, those under way included; 8. Adapters hold few.
        package var links = 8
        /// How many unproven candidates are dialed at once; 2. As many again where somebody has proven an
        /// identity under the same address.
        package var unprovenAtOnce = 2
        /// How many unproven candidates are dialed in a minute; 12. As many again as above.
        package var unprovenPerMinute = 12
        /// How long the one with the higher tag waits to be dialed.
        package var yielding = Duration.seconds(5)...Duration.seconds(10)
        /// How long to wait after failures.
        package var backoff = Backoff()

        /// The defaults above.
        package init() {}
    }

    /// The numbers.
    package let rules: Rules
    /// What this side advertises; nil when it does not, so that nobody can dial it.
    package var ownTag: AdvertisementTag?
    /// Who was heard.
    package private(set) var table: PeerTable

    /// The links that are open or being accepted, by address.
    private var links: [DeviceAddress: Links] = [:]
    /// Addresses where somebody proved an identity, the latest last.
    private var provenAddresses: [DeviceAddress] = []
    private static let mostProvenAddresses = 64
    /// When those who have yet to prove themselves were dialed, in the last minute.
    private var budgets: [Standing: [MonotonicTime]] = [.familiar: [], .unproven: []]

    /// What is known of a candidate.
    private enum Standing: Int {
        /// An identity was proven behind it.
        case proven
        /// One was proven under its address.
        case familiar
        case unproven
    }

    private struct Links {
        /// Those whose peer has yet to prove itself.
        var unproven = 0
        /// Those that are ready, and who is there.
        var ready = 0
        var identity: String?
    }

    /// Begins with nobody known.
    package init(
        rules: Rules = Rules(), ownTag: AdvertisementTag? = nil, table: PeerTable = PeerTable()
    ) {
        precondition(rules.timesHeard <= PeerTable.recentTimes, "that many times are not kept")
        self.rules = rules
        self.ownTag = ownTag
        self.table = table
    }

    // MARK: - What happened

    /// An advertisement was heard.
    package mutating func heard(
        _ sighting: Sighting, at now: MonotonicTime,
        using generator: inout some RandomNumberGenerator
    ) {
        // One's own, by way of a second adapter or of somebody's echo.
        guard ownTag == nil || sighting.candidate.tag != ownTag else { return }
        table.hear(sighting, at: now, using: &generator)
    }

    /// A dial that ``step(at:using:)`` asked for made a ready link to `identity`. It counts until
    /// ``linkEnded(with:_:at:using:)``.
    package mutating func dialSucceeded(_ candidate: Candidate, identity: String?) {
        table[candidate]?.dialing.isUnderWay = false
        table[candidate]?.dialing.turn = nil
        table[candidate]?.identity = identity
        if identity != nil { remember(candidate.address) }
        links[candidate.address, default: Links()].ready += 1
        links[candidate.address]?.identity = identity
    }

    /// A dial made no link.
    package mutating func dialFailed(
        _ candidate: Candidate, at now: MonotonicTime,
        using generator: inout some RandomNumberGenerator
    ) {
        guard var record = table[candidate]?.dialing else { return }
        record.isUnderWay = false
        record.failures += 1
        record.mustBeHeard = true
        record.turn = nil
        record.notBefore = backoff(afterFailures: record.failures, now, &generator)
        table[candidate]?.dialing = record
    }

    /// A dial was called off, and says nothing about the candidate.
    package mutating func dialCancelled(_ candidate: Candidate) {
        table[candidate]?.dialing.isUnderWay = false
        table[candidate]?.dialing.turn = nil
    }

    /// A link from `address` was accepted, though nobody has proven anything yet. It keeps us from
    /// dialing there, and counts as a link only once it is ready: unproven candidates take no places.
    ///
    /// - Returns: the dials to that address, which have to be called off.
    package mutating func accepted(from address: DeviceAddress) -> [Candidate] {
        links[address, default: Links()].unproven += 1
        return table.all.filter { $0.candidate.address == address && $0.dialing.isUnderWay }
            .map(\.candidate)
    }

    /// An accepted link ended before its peer was proven.
    package mutating func acceptFailed(from address: DeviceAddress) {
        change(address) { $0.unproven -= 1 }
    }

    /// An accepted link became ready, and its peer is `identity`. It counts until
    /// ``linkEnded(with:_:at:using:)``.
    package mutating func acceptSucceeded(from address: DeviceAddress, identity: String?) {
        change(address) { links in
            links.unproven -= 1
            links.ready += 1
            links.identity = identity
        }
        if identity != nil { remember(address) }
    }

    /// A ready link ended. Who was there has to be heard again before it is dialed, and whose turn it
    /// is is found out anew. How the link went says how long that takes at least.
    package mutating func linkEnded(
        with address: DeviceAddress, _ course: LinkOutcome, at now: MonotonicTime,
        using generator: inout some RandomNumberGenerator
    ) {
        let identity = links[address]?.identity
        for entry in table.all {
            var record = entry.dialing
            if entry.candidate.address == address {
                record.mustBeHeard = true
                record.failures = course.failures(after: record.failures)
                record.notBefore = backoff(afterFailures: record.failures, now, &generator)
            } else if identity == nil || entry.identity != identity {
                continue
            }
            record.turn = nil
            table[entry.candidate]?.dialing = record
        }
        change(address) { $0.ready -= 1 }
    }

    private func backoff(
        afterFailures count: Int, _ now: MonotonicTime,
        _ generator: inout some RandomNumberGenerator
    ) -> MonotonicTime {
        now.advanced(by: rules.backoff.delay(afterFailures: count, using: &generator))
    }

    /// Whether a link from `address` was accepted whose peer has yet to prove itself.
    package func isAccepting(from address: DeviceAddress) -> Bool {
        links[address].map { $0.unproven > 0 } ?? false
    }

    /// How many links are ready.
    package var readyLinks: Int { links.values.reduce(0) { $0 + $1.ready } }

    /// Whether there may be more links, so that it makes sense to look for somebody.
    package var hasPlaces: Bool { readyLinks < rules.links }

    private mutating func remember(_ address: DeviceAddress) {
        provenAddresses.removeAll { $0 == address }
        provenAddresses.append(address)
        if provenAddresses.count > Self.mostProvenAddresses { provenAddresses.removeFirst() }
    }

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
    package mutating func step(
        at now: MonotonicTime, using generator: inout some RandomNumberGenerator
    ) -> (dials: [Candidate], next: MonotonicTime?) {
        let minute = Duration.seconds(60)
        table.forget(
            notHeardSince: now.advanced(by: rules.within * -2),
            provenNotSince: now.advanced(by: minute * -60))
        for (standing, times) in budgets {
            budgets[standing] = times.filter { $0.advanced(by: minute) > now }
        }
        var dials: [Candidate] = []
        var next: MonotonicTime?
        var underWay = UnderWay(table.all.lazy.filter(\.dialing.isUnderWay), standing)
        // Those of one standing in a random order.
        let eligible = table.all.filter { isEligible($0, at: now) }.shuffled(using: &generator)
            .map { (entry: $0, standing: standing(of: $0)) }
            .sorted { $0.standing.rawValue < $1.standing.rawValue }
        for (entry, standing) in eligible {
            let spent = budgets[standing].flatMap {
                $0.count < rules.unprovenPerMinute ? nil : $0.first
            }
            // A place in the minute's budget comes free by itself; all else is told.
            let free = spent?.advanced(by: minute) ?? now
            let time = max(turn(of: entry, at: now, using: &generator), free)
            if time > now {
                next = min(next ?? time, time)
            } else if underWay.leaves(room: entry, standing, rules, readyLinks) {
                begin(entry, standing, at: now)
                underWay.add(entry, standing)
                dials.append(entry.candidate)
            }
        }
        return (dials, next)
    }

    private func standing(of entry: PeerTable.Entry) -> Standing {
        if entry.identity != nil { return .proven }
        return provenAddresses.contains(entry.candidate.address) ? .familiar : .unproven
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

    private mutating func begin(
        _ entry: PeerTable.Entry, _ standing: Standing, at now: MonotonicTime
    ) {
        table[entry.candidate]?.dialing.isUnderWay = true
        table[entry.candidate]?.dialing.turn = nil
        budgets[standing]?.append(now)
    }

    /// The dials under way.
    private struct UnderWay {
        private var addresses: Set<DeviceAddress> = []
        private var identities: Set<String> = []
        private var counts: [Standing: Int] = [:]

        init(_ entries: some Sequence<PeerTable.Entry>, _ standing: (PeerTable.Entry) -> Standing) {
            for entry in entries { add(entry, standing(entry)) }
        }

        mutating func add(_ entry: PeerTable.Entry, _ standing: Standing) {
            addresses.insert(entry.candidate.address)
            if let identity = entry.identity { identities.insert(identity) }
            counts[standing, default: 0] += 1
        }

        /// Whether there is a place for another dial, and none leads to the same address or identity.
        func leaves(
            room entry: PeerTable.Entry, _ standing: Standing, _ rules: Rules, _ readyLinks: Int
        ) -> Bool {
            guard readyLinks + counts.values.reduce(0, +) < rules.links,
                !addresses.contains(entry.candidate.address),
                entry.identity.map({ !identities.contains($0) }) ?? true
            else { return false }
            return standing == .proven || counts[standing, default: 0] < rules.unprovenAtOnce
        }
    }
}
