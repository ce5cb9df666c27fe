package import BLESecLinks

/// Who was heard: a bounded table of candidates.
///
/// Anyone can fill the air with advertisements, so the table forgets: an address holds a few tags, and
/// when the whole is full, one of two unproven candidates taken at random makes room, the one that was heard
/// less. So who is heard again and again is hardly ever pushed out, and who is new has a chance beside
/// a crowd that was there before. A candidate that has proven an identity, or that is being dialed,
/// stays as long as there are others.
package struct PeerTable: Sendable {
    /// One candidate.
    package struct Entry: Sendable {
        /// Who it is.
        package let candidate: Candidate
        /// What it advertised last.
        package internal(set) var payload: AdvertisementPayload?
        /// How strong it was last, in dBm; nil where the adapter does not tell.
        package internal(set) var signal: Int?
        /// How often it was heard.
        package internal(set) var timesHeard = 0
        /// When it was heard last.
        package internal(set) var lastHeard: MonotonicTime
        /// When it was heard, the last few times, oldest first.
        var recent: [MonotonicTime] = []
        /// The identity that was proven behind it.
        package internal(set) var identity: String?
        /// How dialing it went.
        var dialing = DialRecord()
    }

    /// How many candidates there are at most.
    package let capacity: Int
    /// How many tags of one address are kept at most.
    package let tagsPerAddress: Int
    /// How many times of hearing one are kept: more than any rule asks for.
    static let recentTimes = 8

    private var byCandidate: [Candidate: Entry] = [:]

    /// Makes an empty table.
    package init(capacity: Int = 256, tagsPerAddress: Int = 4) {
        precondition(capacity > 0 && tagsPerAddress > 0, "a table holds at least one")
        self.capacity = capacity
        self.tagsPerAddress = tagsPerAddress
    }

    /// All candidates, the strongest signal first.
    package var entries: [Entry] {
        byCandidate.values.sorted { left, right in
            (left.signal ?? .min, right.lastHeard) > (right.signal ?? .min, left.lastHeard)
        }
    }

    /// How many candidates there are.
    package var count: Int { byCandidate.count }

    /// The entry of a candidate.
    package internal(set) subscript(candidate: Candidate) -> Entry? {
        get { byCandidate[candidate] }
        set { byCandidate[candidate] = newValue }
    }

    /// Those that are not sorted, for who looks at all of them.
    var all: some Sequence<Entry> { byCandidate.values }

    /// Takes note of an advertisement.
    ///
    /// An advertisement comes in two parts, of which one may be lost, and a phone leaves its name away
    /// in the background: one without a payload counts for the last payload of its address.
    package mutating func hear(
        _ sighting: Sighting, at now: MonotonicTime,
        using generator: inout some RandomNumberGenerator
    ) {
        let candidate = known(sighting)
        if byCandidate[candidate] == nil { makeRoom(for: candidate, using: &generator) }
        var entry =
            byCandidate[candidate]
            ?? Entry(candidate: candidate, lastHeard: now)
        entry.payload = sighting.advertisement.payload ?? entry.payload
        entry.signal = sighting.signal ?? entry.signal
        entry.timesHeard += 1
        entry.lastHeard = now
        entry.dialing.mustBeHeard = false
        if entry.recent.count == Self.recentTimes { entry.recent.removeFirst() }
        entry.recent.append(now)
        byCandidate[candidate] = entry
    }

    /// Forgets unproven candidates that were not heard since `time`, and those who proved an identity and were
    /// not heard since `provenTime`; a dial that is under way keeps its candidate.
    package mutating func forget(
        notHeardSince time: MonotonicTime, provenNotSince provenTime: MonotonicTime
    ) {
        byCandidate = byCandidate.filter { _, entry in
            entry.dialing.isUnderWay
                || entry.lastHeard >= (entry.identity == nil ? time : provenTime)
        }
    }

    private mutating func known(_ sighting: Sighting) -> Candidate {
        let candidate = sighting.candidate
        let nameless = Candidate(address: sighting.address, tag: nil)
        if candidate != nameless {
            if byCandidate[nameless]?.isUnproven ?? false { byCandidate[nameless] = nil }
            return candidate
        }
        let tagged = byCandidate.values.filter {
            $0.candidate.address == sighting.address && $0.payload != nil
        }
        return tagged.max { $0.lastHeard < $1.lastHeard }?.candidate ?? nameless
    }

    private mutating func makeRoom(
        for candidate: Candidate, using generator: inout some RandomNumberGenerator
    ) {
        let same = byCandidate.values.filter { $0.candidate.address == candidate.address }
        if same.count >= tagsPerAddress { removeOne(of: same, using: &generator) }
        if byCandidate.count >= capacity {
            removeOne(of: Array(byCandidate.values), using: &generator)
        }
    }

    private mutating func removeOne(
        of entries: [Entry], using generator: inout some RandomNumberGenerator
    ) {
        let unproven = entries.filter(\.isUnproven)
        let idle = unproven.isEmpty ? entries.filter { !$0.dialing.isUnderWay } : unproven
        let pool = idle.isEmpty ? entries : idle
        let first = Int.random(in: 0..<pool.count, using: &generator)
        var second = first
        if pool.count > 1 {
            second = (first + Int.random(in: 1..<pool.count, using: &generator)) % pool.count
        }
        let isSecond = pool[second].timesHeard < pool[first].timesHeard
        byCandidate[pool[isSecond ? second : first].candidate] = nil
    }
}

extension PeerTable.Entry {
    /// Nothing would be lost but what the air said.
    var isUnproven: Bool { identity == nil && !dialing.isUnderWay }

    /// How often it was heard since `time`, as far as that is kept.
    func timesHeard(since time: MonotonicTime) -> Int { recent.count { $0 >= time } }
}
