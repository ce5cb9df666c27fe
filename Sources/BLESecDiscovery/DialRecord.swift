internal import BLESecLinks

/// How dialing a candidate went, for the policy.
struct DialRecord: Sendable {
    /// A dial is under way.
    var isUnderWay = false
    /// Failures since the last good link.
    var failures = 0
    /// It has to be heard again first: it may have gone, and bluetoothd has forgotten it.
    var mustBeHeard = false
    /// No dial before this time.
    var notBefore: MonotonicTime?
    /// When it became this side's turn, for a candidate that ought to dial us.
    var turn: MonotonicTime?
}
