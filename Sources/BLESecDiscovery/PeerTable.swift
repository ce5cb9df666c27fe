package import BLESecLinks

/// A bounded table of the candidates that were heard: pairs of an address and an advertised tag.
///
/// Anyone can send any number of advertisements, so the table holds at most ``capacity``
/// candidates, and at most ``tagsPerAddress`` for one address. To make room, the table chooses two
/// candidates at random and drops the one that was heard less often. A peer that is heard again and
/// again is therefore hardly ever dropped, and a new peer always finds room. A candidate that has a
/// proven identity, or that is being dialed, is dropped only when there are no others.
package struct PeerTable: Sendable {
    /// One candidate.
    package struct Entry: Sendable {
        package let candidate: Candidate
        /// The payload that the candidate advertised last; nil if none was heard.
        package internal(set) var payload: AdvertisementPayload?
        /// The candidate's last signal strength, in dBm; nil where the adapter does not report it.
        package internal(set) var signal: Int?
        /// How many times the candidate was heard.
        package internal(set) var timesHeard = 0
        /// When the candidate was last heard.
        package internal(set) var lastHeard: MonotonicTime
        /// The last times at which the candidate was heard, oldest first.
        var recent: [MonotonicTime] = []
        /// The identity that a peer proved on a link to this candidate.
        package internal(set) var identity: String?
        /// The dials to the candidate.
        var dialing = DialRecord()
    }

    /// The most candidates that the table holds.
    package let capacity: Int
    /// The most tags that are kept for one address.
    package let tagsPerAddress: Int
    /// The most times that ``Entry/recent`` keeps. A dialing rule may require at most this many.
    static let recentCapacity = 8

    private var byCandidate: [Candidate: Entry] = [:]

    /// Makes an empty table.
    package init(capacity: Int = 256, tagsPerAddress: Int = 4) {
        precondition(capacity > 0 && tagsPerAddress > 0, "a table holds at least one candidate")
        self.capacity = capacity
        self.tagsPerAddress = tagsPerAddress
    }

    /// All candidates, the strongest signal first. Of candidates with equal signals, the one that
    /// was heard last comes first.
    package var entries: [Entry] {
        byCandidate.values.sorted { left, right in
            let (leftSignal, rightSignal) = (left.signal ?? .min, right.signal ?? .min)
            if leftSignal != rightSignal { return leftSignal > rightSignal }
            return left.lastHeard > right.lastHeard
        }
    }

    package var count: Int { byCandidate.count }

    /// The entry of a candidate.
    package internal(set) subscript(candidate: Candidate) -> Entry? {
        get { byCandidate[candidate] }
        set { byCandidate[candidate] = newValue }
    }

    /// All candidates, unsorted.
    var all: some Sequence<Entry> { byCandidate.values }

    /// Records an advertisement.
    ///
    /// A sighting may lack the payload that the peer advertises. An advertisement comes in two
    /// parts, and either part may be lost. A phone carries the payload in the name, and omits the
    /// name while the app is in the background. So a sighting without a payload counts for a
    /// candidate with a payload at the same address, if there is one: for the one heard last.
    package mutating func hear(
        _ sighting: Sighting, at now: MonotonicTime,
        using generator: inout some RandomNumberGenerator
    ) {
        let candidate = candidate(for: sighting)
        if byCandidate[candidate] == nil { makeRoom(for: candidate, using: &generator) }
        var entry = byCandidate[candidate] ?? Entry(candidate: candidate, lastHeard: now)
        entry.payload = sighting.advertisement.payload ?? entry.payload
        entry.signal = sighting.signal ?? entry.signal
        entry.timesHeard += 1
        entry.lastHeard = now
        entry.dialing.mustBeHeard = false
        if entry.recent.count == Self.recentCapacity { entry.recent.removeFirst() }
        entry.recent.append(now)
        byCandidate[candidate] = entry
    }

    /// Forgets the candidates that were not heard since `time`; if a candidate has a proven
    /// identity, `provenTime` counts instead. A candidate that is being dialed stays.
    package mutating func forget(
        notHeardSince time: MonotonicTime, provenNotHeardSince provenTime: MonotonicTime
    ) {
        byCandidate = byCandidate.filter { _, entry in
            entry.dialing.isUnderWay
                || entry.lastHeard >= (entry.identity == nil ? time : provenTime)
        }
    }

    /// The candidate that a sighting is counted for. A candidate with a tag replaces the candidate
    /// without a tag at the same address, if the latter is expendable.
    private mutating func candidate(for sighting: Sighting) -> Candidate {
        let candidate = sighting.candidate
        let untagged = Candidate(address: sighting.address, tag: nil)
        if candidate != untagged {
            if byCandidate[untagged]?.isExpendable ?? false { byCandidate[untagged] = nil }
            return candidate
        }
        let tagged = byCandidate.values.filter {
            $0.candidate.address == sighting.address && $0.payload != nil
        }
        return tagged.max { $0.lastHeard < $1.lastHeard }?.candidate ?? untagged
    }

    private mutating func makeRoom(
        for candidate: Candidate, using generator: inout some RandomNumberGenerator
    ) {
        let sameAddress = byCandidate.values.filter { $0.candidate.address == candidate.address }
        if sameAddress.count >= tagsPerAddress {
            removeOne(of: sameAddress, using: &generator)
        }
        if byCandidate.count >= capacity {
            removeOne(of: Array(byCandidate.values), using: &generator)
        }
    }

    private mutating func removeOne(
        of entries: [Entry], using generator: inout some RandomNumberGenerator
    ) {
        let expendable = entries.filter(\.isExpendable)
        let idle = expendable.isEmpty ? entries.filter { !$0.dialing.isUnderWay } : expendable
        let pool = idle.isEmpty ? entries : idle
        let first = Int.random(in: 0..<pool.count, using: &generator)
        var second = first
        if pool.count > 1 {
            second = (first + Int.random(in: 1..<pool.count, using: &generator)) % pool.count
        }
        let dropsSecond = pool[second].timesHeard < pool[first].timesHeard
        byCandidate[pool[dropsSecond ? second : first].candidate] = nil
    }
}

extension PeerTable.Entry {
    /// Whether the candidate may be dropped before others: it has proven no identity, and is not
    /// being dialed.
    var isExpendable: Bool { identity == nil && !dialing.isUnderWay }
    /// How many of the times in ``recent`` are not before `time`.
    func timesHeard(since time: MonotonicTime) -> Int { recent.count { $0 >= time } }
}
