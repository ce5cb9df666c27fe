package import BLESecL2CAP
package import BLESecLinks

/// Decides which peers to dial, and when; it does no I/O.
///
/// Its input is the advertisements that were heard, the outcomes of dials and links, and the time;
/// its output is the candidates to dial. It has no clock and no random numbers of its own, so a
/// test can simulate a day quickly.
///
/// - Two peers that hear each other would both dial. So the peer that advertises the lower tag
///   dials at once, and the peer with the higher tag waits for a random 5 to 10 seconds. If no dial
///   has arrived by then, the peer with the higher tag dials too: the other peer may not hear this
///   one's advertisements, and a forged low tag must not keep anyone from dialing.
/// - Only one side makes a link between two addresses. So this side does not dial an address while
///   a link with the address is open, being accepted or being ended, and accepting a link cancels
///   the dials to its address. Otherwise both sides could open an L2CAP channel at the same time,
///   and kernels mix up the signalling of two such channels.
/// - Candidates with a proven identity come first, then candidates at an address where an identity
///   was proven (their tag may be new, or forged), then all others. The last two groups may each be
///   dialed only a few times a minute, since anyone can advertise a thousand candidates. Within a
///   group the order is random, since an attacker can have the strongest signal, or be heard for
///   the longest time.
package struct DialPolicy: Sendable {
    /// The limits and times.
    package struct Rules: Sendable {
        /// How many times a candidate must be heard before it is dialed; 2 by default. One
        /// advertisement may come from a peer that only passes by, or be forged. A program that
        /// accepts a single identity can set 1.
        package var timesHeard = 2
        /// The period for ``timesHeard``; 30 s by default. The kernel scans for 10 s of every 15 s,
        /// and an adapter may report an advertiser once per scan: two reports may be 15 s apart.
        package var hearingPeriod = Duration.seconds(30)
        /// The weakest signal, in dBm, at which a candidate is dialed; -90 by default. A link with
        /// a weaker signal may break.
        package var weakestSignal = -90
        /// The most links and dials at the same time; 8 by default. Adapters support few links.
        package var links = 8
        /// The most simultaneous dials to unproven candidates; 2 by default. The same number
        /// applies separately to candidates at an address where an identity was proven.
        package var unprovenAtOnce = 2
        /// The most dials in a minute to unproven candidates; 12 by default. The same number
        /// applies separately to candidates at an address where an identity was proven.
        package var unprovenPerMinute = 12
        /// The range of the random time for which the peer with the higher tag waits to be dialed,
        /// before it dials; 5 to 10 s by default.
        package var yielding = Duration.seconds(5)...Duration.seconds(10)
        /// How long to wait after failures.
        package var backoff = Backoff()

        /// The defaults above.
        package init() {}
    }

    /// The limits and times.
    package let rules: Rules
    /// The tag that this side advertises. Nil when this side does not advertise: then nobody can
    /// dial this side.
    package var ownTag: AdvertisementTag?
    /// The candidates that were heard.
    package private(set) var table: PeerTable

    /// The links that are open or being accepted, by address.
    private var links: [DeviceAddress: Links] = [:]
    /// The addresses whose links this side is ending.
    private var releasing: Set<DeviceAddress> = []
    /// Addresses where an identity was proven, the latest last.
    private var provenAddresses: [DeviceAddress] = []
    private static let mostProvenAddresses = 64
    /// The times of the last minute's dials to each of the two groups without a proven identity.
    /// The budget of each group is ``Rules/unprovenPerMinute``.
    private var recentDials: [Standing: [MonotonicTime]] = [.familiar: [], .unproven: []]

    /// What is known about a candidate.
    private enum Standing: Int {
        /// The candidate has proven an identity.
        case proven
        /// The candidate itself has proven none, but an identity was proven at its address.
        case familiar
        case unproven
    }

    /// The links with one address that are open or being accepted.
    private struct Links {
        /// The number of links whose peer has not proven an identity yet.
        var unproven = 0
        /// The number of links that are ready.
        var ready = 0
        /// The identity that the peer of the last ready link has proven.
        var identity: String?
    }

    /// Makes a policy that knows no links yet.
    package init(
        rules: Rules = Rules(), ownTag: AdvertisementTag? = nil, table: PeerTable = PeerTable()
    ) {
        precondition(rules.timesHeard <= PeerTable.recentCapacity, "timesHeard is too large")
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
        // Ignores this side's own advertisement, which a second adapter may hear or someone may
        // replay.
        guard ownTag == nil || sighting.candidate.tag != ownTag else { return }
        table.hear(sighting, at: now, using: &generator)
    }

    /// A dial that ``step(at:using:)`` returned made a ready link to `identity`. The link counts
    /// towards ``Rules/links`` until ``linkEnded(with:_:at:using:)``.
    package mutating func dialSucceeded(_ candidate: Candidate, identity: String?) {
        table[candidate]?.dialing.isUnderWay = false
        table[candidate]?.dialing.waitEnd = nil
        table[candidate]?.dialing.collisions = 0
        table[candidate]?.identity = identity
        if identity != nil { remember(candidate.address) }
        links[candidate.address, default: Links()].ready += 1
        links[candidate.address]?.identity = identity
    }

    /// A dial failed.
    package mutating func dialFailed(
        _ candidate: Candidate, at now: MonotonicTime,
        using generator: inout some RandomNumberGenerator
    ) {
        guard var record = table[candidate]?.dialing else { return }
        record.isUnderWay = false
        record.failures += 1
        record.collisions = 0
        record.mustBeHeard = true
        record.waitEnd = nil
        let wait = rules.backoff.delay(afterFailures: record.failures, using: &generator)
        record.notBefore = now.advanced(by: wait)
        table[candidate]?.dialing = record
    }

    /// A dial collided with the scan of this side's own bluetoothd. The collision says nothing
    /// about the candidate, so a side with the higher tag, which has already waited to be dialed,
    /// does not wait again.
    ///
    /// - Returns: whether the candidate may be dialed again at once. After ``mostCollisions``
    ///   collisions in a row it may not, and the caller reports the dial as failed.
    package mutating func dialCollided(_ candidate: Candidate) -> Bool {
        guard let collisions = table[candidate]?.dialing.collisions,
            collisions < Self.mostCollisions
        else { return false }
        table[candidate]?.dialing.isUnderWay = false
        table[candidate]?.dialing.collisions += 1
        return true
    }

    /// The most collisions in a row that do not count as a failure.
    static let mostCollisions = 2

    /// A dial was cancelled, which is not counted as a failure of the candidate.
    package mutating func dialCancelled(_ candidate: Candidate) {
        table[candidate]?.dialing.isUnderWay = false
        table[candidate]?.dialing.waitEnd = nil
    }

    /// A link from `address` was accepted, and its peer has not proven an identity yet. This side
    /// does not dial the address meanwhile. The link counts towards ``Rules/links`` only when it is
    /// ready, so unauthenticated peers do not use up this limit.
    ///
    /// - Returns: the dials to that address, which the caller has to cancel.
    package mutating func accepted(from address: DeviceAddress) -> [Candidate] {
        links[address, default: Links()].unproven += 1
        return table.all.filter { $0.candidate.address == address && $0.dialing.isUnderWay }
            .map(\.candidate)
    }

    /// An accepted link ended before its peer proved an identity.
    package mutating func acceptFailed(from address: DeviceAddress) {
        change(address) { $0.unproven -= 1 }
    }

    /// An accepted link became ready, and its peer is `identity`. The link counts towards
    /// ``Rules/links`` until ``linkEnded(with:_:at:using:)``.
    package mutating func acceptSucceeded(from address: DeviceAddress, identity: String?) {
        change(address) { links in
            links.unproven -= 1
            links.ready += 1
            links.identity = identity
        }
        if identity != nil { remember(address) }
    }

    /// A ready link ended. Before the address is dialed again, it has to be heard again, and the
    /// wait that `outcome` determines has to pass. The side with the higher tag also waits again to
    /// be dialed.
    package mutating func linkEnded(
        with address: DeviceAddress, _ outcome: LinkOutcome, at now: MonotonicTime,
        using generator: inout some RandomNumberGenerator
    ) {
        let identity = links[address]?.identity
        for entry in table.all {
            var record = entry.dialing
            if entry.candidate.address == address {
                record.mustBeHeard = true
                record.failures = outcome.failures(after: record.failures)
                let wait = rules.backoff.delay(afterFailures: record.failures, using: &generator)
                record.notBefore = now.advanced(by: wait)
            } else if identity == nil || entry.identity != identity {
                continue
            }
            record.waitEnd = nil
            table[entry.candidate]?.dialing = record
        }
        change(address) { $0.ready -= 1 }
    }

    /// This side begins to end the link to an address. A dial to the address before
    /// ``releaseEnded(_:)`` would lose its channel with the link.
    package mutating func releaseBegan(_ address: DeviceAddress) { releasing.insert(address) }

    /// The link to an address, which this side was ending, is down. bluetoothd may have forgotten
    /// the device, so the address has to be heard again before it is dialed.
    package mutating func releaseEnded(_ address: DeviceAddress) {
        releasing.remove(address)
        for entry in table.all where entry.candidate.address == address {
            table[entry.candidate]?.dialing.mustBeHeard = true
        }
    }

    /// Whether this side has accepted a link from `address` whose peer has not proven an identity
    /// yet.
    package func isAccepting(from address: DeviceAddress) -> Bool {
        links[address].map { $0.unproven > 0 } ?? false
    }

    /// The number of ready links.
    package var readyLinks: Int { links.values.reduce(0) { $0 + $1.ready } }
    /// Whether more links are allowed, so that it makes sense to look for peers.
    package var hasPlaces: Bool { readyLinks < rules.links }

    /// Records that an identity was proven at `address`.
    private mutating func remember(_ address: DeviceAddress) {
        provenAddresses.removeAll { $0 == address }
        provenAddresses.append(address)
        if provenAddresses.count > Self.mostProvenAddresses { provenAddresses.removeFirst() }
    }

    private mutating func change(_ address: DeviceAddress, _ body: (inout Links) -> Void) {
        guard var changed = links[address] else { return }
        body(&changed)
        links[address] = changed.unproven > 0 || changed.ready > 0 ? changed : nil
    }

    // MARK: - What to do

    /// The dials to begin now, the best candidate first, and when to call again if nothing else
    /// happens.
    ///
    /// Each dial counts as under way until the caller reports it with
    /// ``dialSucceeded(_:identity:)``, ``dialFailed(_:at:using:)`` or ``dialCancelled(_:)``, or
    /// until ``dialCollided(_:)`` returns true for it.
    package mutating func step(
        at now: MonotonicTime, using generator: inout some RandomNumberGenerator
    ) -> (dials: [Candidate], next: MonotonicTime?) {
        let minute = Duration.seconds(60)
        // A candidate that was not heard for two hearing periods is forgotten; a candidate with a
        // proven identity, if it was not heard for an hour.
        table.forget(
            notHeardSince: hearingStart(before: hearingStart(before: now)),
            provenNotHeardSince: now.advanced(by: minute * -60))
        for (standing, times) in recentDials {
            recentDials[standing] = times.filter { $0.advanced(by: minute) > now }
        }
        var dials: [Candidate] = []
        var next: MonotonicTime?
        var underWay = UnderWay(table.all.lazy.filter(\.dialing.isUnderWay), standing)
        // Sorted by standing; random within one standing.
        let eligible = table.all.filter { isEligible($0, at: now) }.shuffled(using: &generator)
            .map { (entry: $0, standing: standing(of: $0)) }
            .sorted { $0.standing.rawValue < $1.standing.rawValue }
        for (entry, standing) in eligible {
            // The time of the oldest recent dial, if the budget is used up: a new dial has to wait
            // until that dial is a minute old. Nil if the budget has room, or if this standing has
            // no budget.
            let oldestDial = recentDials[standing].flatMap {
                $0.count < rules.unprovenPerMinute ? nil : $0.first
            }
            let budgetTime = oldestDial?.advanced(by: minute) ?? now
            let time = max(earliestDial(of: entry, at: now, using: &generator), budgetTime)
            // `next` covers only the waits and the budgets. The other limits change only with
            // events, after which the caller calls this function again.
            if time > now {
                next = min(next ?? time, time)
            } else if underWay.leavesRoom(for: entry, standing, rules, readyLinks) {
                table[entry.candidate]?.dialing.isUnderWay = true
                recentDials[standing]?.append(now)
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

    /// The beginning of the hearing period that ends at `time`.
    private func hearingStart(before time: MonotonicTime) -> MonotonicTime {
        time.advanced(by: .zero - rules.hearingPeriod)
    }

    /// Whether the candidate may be dialed as soon as the waits, the budgets and the limits allow
    /// it.
    private func isEligible(_ entry: PeerTable.Entry, at now: MonotonicTime) -> Bool {
        let since = hearingStart(before: now)
        // A candidate with a proven identity has to be heard once, any other `timesHeard` times.
        let needed = entry.identity == nil ? rules.timesHeard : 1
        return !entry.dialing.isUnderWay && !entry.dialing.mustBeHeard
            && entry.timesHeard(since: since) >= needed
            && entry.signal.map { $0 >= rules.weakestSignal } ?? true
            && !isLinked(entry)
    }

    private func isLinked(_ entry: PeerTable.Entry) -> Bool {
        let address = entry.candidate.address
        if links[address] != nil || releasing.contains(address) { return true }
        guard let identity = entry.identity else { return false }
        return links.values.contains { $0.ready > 0 && $0.identity == identity }
    }

    /// The time from which this side may dial the candidate.
    private mutating func earliestDial(
        of entry: PeerTable.Entry, at now: MonotonicTime,
        using generator: inout some RandomNumberGenerator
    ) -> MonotonicTime {
        let earliest = entry.dialing.notBefore ?? now
        // This side waits to be dialed if its tag is the higher one, or if the candidate's tag is
        // unknown.
        guard let ownTag, entry.candidate.tag.map({ ownTag > $0 }) ?? true else { return earliest }
        if let waitEnd = entry.dialing.waitEnd { return max(waitEnd, earliest) }
        let fraction = Double.random(in: 0...1, using: &generator)
        let range = rules.yielding.upperBound - rules.yielding.lowerBound
        let wait = rules.yielding.lowerBound + range * fraction
        let waitEnd = max(now, earliest).advanced(by: wait)
        table[entry.candidate]?.dialing.waitEnd = waitEnd
        return waitEnd
    }

    /// The dials that are under way.
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

        /// Whether the limits allow a dial to `entry`, and no dial under way leads to the same
        /// address or identity.
        func leavesRoom(
            for entry: PeerTable.Entry, _ standing: Standing, _ rules: Rules, _ readyLinks: Int
        ) -> Bool {
            guard readyLinks + counts.values.reduce(0, +) < rules.links,
                !addresses.contains(entry.candidate.address),
                entry.identity.map({ !identities.contains($0) }) ?? true
            else { return false }
            return standing == .proven || counts[standing, default: 0] < rules.unprovenAtOnce
        }
    }
}
