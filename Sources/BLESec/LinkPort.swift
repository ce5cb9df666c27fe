internal import BLESecLinks

/// Where a link and a timer call a channel, on the loop's thread.
///
/// Apart from the channel, so that no application can call in their place.
final class LinkPort: LinkHandler, TimerHandler {
    weak var channel: SecureChannel?

    func linkIsReadable() { channel?.assumeIsolated { $0.read() } }
    func linkIsWritable() { channel?.assumeIsolated { $0.pump() } }
    func linkDidHangUp() { channel?.assumeIsolated { $0.hangUp() } }
    func timerFired(_ timer: LoopTimer) { channel?.assumeIsolated { $0.timeout() } }
}
