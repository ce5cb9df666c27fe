internal import BLESecLinks

/// Forwards events of a channel's link and timer to the channel, on the loop's thread.
///
/// It is separate from the channel, so that an application cannot call these methods.
final class LinkPort: LinkHandler, TimerHandler {
    weak var channel: SecureChannel?

    func linkIsReadable() { channel?.assumeIsolated { $0.read() } }
    func linkIsWritable() { channel?.assumeIsolated { $0.pump() } }
    func linkDidHangUp() { channel?.assumeIsolated { $0.hangUp() } }
    func timerFired(_ timer: LoopTimer) { channel?.assumeIsolated { $0.timeout() } }
}
