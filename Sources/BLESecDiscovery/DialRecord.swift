internal import BLESecLinks

/// What ``DialPolicy`` records about its dials to a candidate.
struct DialRecord: Sendable {
    var isUnderWay = false
    /// The number of failed dials and links in a row.
    var failures = 0
    /// The number of dials in a row that collided with this side's own scan.
    var collisions = 0
    /// Whether the candidate must be heard again before it is dialed: bluetoothd may have forgotten
    /// the candidate, and the candidate may be gone.
    var mustBeHeard = false
    /// The earliest time of the next dial.
    var notBefore: MonotonicTime?
    /// When this side's random wait ends. A candidate whose tag is lower than this side's, or
    /// unknown, may dial this side during the wait. Nil until the wait has begun.
    var waitEnd: MonotonicTime?
}
