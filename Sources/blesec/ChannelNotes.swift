internal import BLESec
internal import BLESecJSON
internal import BLESecLocking
internal import BLESecToolKit

/// Messages on standard error about a channel.
enum ChannelNotes {
    /// `channel ready: PROTOCOL with SHA256:…`, and the peer's URI if an authority has certified
    /// one.
    static func ready(_ channel: SecureChannel) async {
        let name = await channel.protocolName
        let identity = await channel.peer
        let peer = identity.description
        let uri = identity.uri
        Diagnostics.note(
            "channel ready: \(name) with \(peer)" + (uri.map { ", \($0)" } ?? ""), "ready",
            [("protocol", .string(name)), ("peer", .string(peer))]
                + (uri.map { [("uri", .string($0))] } ?? []))
    }

    /// `listening on ENDPOINT`
    static func listening(_ endpoint: Endpoint) {
        let text = endpoint.description
        Diagnostics.note("listening on \(text)", "listening", [("endpoint", .string(text))])
    }

    /// `channel complete with SHA256:…`
    static func complete(_ channel: SecureChannel) async {
        let peer = await channel.peer.description
        Diagnostics.note("channel complete with \(peer)", "complete", [("peer", .string(peer))])
    }
}

/// Reports failed attempts to open a channel: each of the first eight, and then only the 16th, the
/// 32nd, the 64th and so on, so that unauthenticated peers cannot fill a log. With `--verbose`, all
/// failures are reported.
final class FailureLog: Sendable {
    /// Each failure up to this number is reported.
    private static let alwaysReportedCount = 8
    private let count = Locked(0)

    /// Reports a listener's failed handshakes until the listener is closed.
    func follow(_ listener: SecureListener) async {
        let failures = await listener.failures()
        Task(executorPreference: listener.loop) {
            for await failure in failures { self.note(failure) }
        }
    }

    /// Counts a failure, and reports it by the rule of ``FailureLog``.
    func note(_ failure: PeerFailure) {
        let (peer, error) = (failure.peer, failure.error)
        let number = count.withLock { count in
            count += 1
            return count
        }
        let isPowerOfTwo = number.nonzeroBitCount == 1
        let isReported = number <= Self.alwaysReportedCount || isPowerOfTwo
        guard isReported || Diagnostics.verbosity > 0 else { return }
        let total = number <= Self.alwaysReportedCount ? "" : " (\(number) so far)"
        Diagnostics.note(
            "blesec: no channel with \(peer): \(error.reason)\(total)", "refused",
            [("address", .string(peer))] + error.members + [("count", .number(number))])
    }
}
