import BLESecChannelCore
import BLESecTLSEngine
import CBLESecOpenSSL

/// What an alert of the linked OpenSSL looks like: Debian 12 has OpenSSL 3.0, and Debian 13 has
/// 3.5. SECURITY.md, "What a failure shows", describes the alerts of both.
enum LinkedOpenSSL {
    static let is35OrLater = OpenSSL_version_num() >= 0x3050_0000

    /// Whether a record looks like alert `number` of a side that refused the peer's certificate.
    ///
    /// A sealed alert has the type of application data, and all sealed alerts have the same length.
    /// An acceptor always seals its alert. With OpenSSL 3.0 a dialer's alert is in clear, because a
    /// dialer begins to use its keys with the flight that the alert replaces.
    static func isAlert(_ record: [UInt8], _ number: UInt8, by role: ChannelRole) -> Bool {
        guard role == .acceptor || is35OrLater else {
            return record == [21, 3, 3, 0, 2, 2, number]
        }
        return record.starts(with: [23, 3, 3]) && record.count == TLSEngine.overhead + 2
    }
}
