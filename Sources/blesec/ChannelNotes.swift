internal import BLESec
internal import Locking
internal import ToolKit

/// What the tool says about a channel on standard error.
enum ChannelNotes {
    /// `channel ready: PROTOCOL with SHA256:…`
    static func ready(_ channel: SecureChannel) async {
        let name = await channel.protocolName
        let peer = await channel.peer.description
        Diagnostics.note(
            "channel ready: \(name) with \(peer)", "ready",
            [("protocol", .string(name)), ("peer", .string(peer))])
    }

    /// `channel complete with SHA256:…`
    static func complete(_ channel: SecureChannel) async {
        let peer = await channel.peer.description
        Diagnostics.note("channel complete with \(peer)", "complete", [("peer", .string(peer))])
    }
}

/// Handshakes that failed: each of the first ones, and then ever fewer, so that strangers cannot
/// fill a log.
final class FailureLog: Sendable {
    private static let told = 8
    private let count = Locked(0)

    /// Takes note of a failure, and says so if it is time.
    func note(_ peer: String, _ error: ChannelError) {
        let count = count.withLock { count in
            count += 1
            return count
        }
        // Beyond the first ones: the 16th, the 32nd, the 64th.
        guard count <= Self.told || count.nonzeroBitCount == 1 else { return }
        let total = count <= Self.told ? "" : " (\(count) so far)"
        Diagnostics.note(
            "blesec: no channel with \(peer): \(error.reason)\(total)", "refused",
            [
                ("address", .string(peer)), ("code", .string(error.code.rawValue)),
                ("reason", .string(error.reason)), ("count", .number(count)),
            ])
    }
}
