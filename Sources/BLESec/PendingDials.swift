internal import BLESecLocking

/// The first bytes of each dial's first message, while this process has not finished the dial.
///
/// A device that both dials and listens could connect to itself, even through a relay. So an
/// acceptor refuses a first message that begins with the same bytes as the first message of an
/// unfinished dial by the same device. Channels of this process with different keys of their own
/// count as different devices; all channels without keys count as one device.
package final class PendingDials: Sendable {
    /// The set that all channels of the process share.
    package static let shared = PendingDials()
    /// How many bytes of a first message identify it: the length of an X25519 ephemeral key; in a
    /// TLS hello these bytes include part of its random field.
    static let prefixLength = 32

    /// The unfinished dials that began with the same first message.
    private struct Dials: Sendable {
        var count = 0
        /// Whether this process has also received the message.
        var cameBack = false
    }

    private let prefixes = Locked<[[UInt8]: Dials]>([:])

    /// Keeps a prefix in the set as long as the token lives.
    package final class Token: Sendable {
        private let dials: PendingDials
        private let prefix: [UInt8]

        fileprivate init(_ dials: PendingDials, _ prefix: [UInt8]) {
            self.dials = dials
            self.prefix = prefix
        }

        deinit { dials.remove(prefix) }
        /// Whether an acceptor of this process has received the first message and refused it.
        var cameBack: Bool { dials.prefixes.withLock { $0[prefix]?.cameBack == true } }
    }

    func insert(_ message: [UInt8], by ownKeys: [UInt8]) -> Token {
        let prefix = Self.prefix(of: message, by: ownKeys)
        prefixes.withLock { $0[prefix, default: Dials()].count += 1 }
        return Token(self, prefix)
    }

    func contains(_ message: [UInt8], by ownKeys: [UInt8]) -> Bool {
        let prefix = Self.prefix(of: message, by: ownKeys)
        return prefixes.withLock { $0[prefix] != nil }
    }

    /// Whether a first message that has arrived belongs to an unfinished dial by the device with
    /// `ownKeys`. If so, the dial is marked, because the acceptor closes the link without a
    /// message, and the dialer would otherwise not know why.
    func refuses(_ message: [UInt8], by ownKeys: [UInt8]) -> Bool {
        let prefix = Self.prefix(of: message, by: ownKeys)
        return prefixes.withLock { prefixes in
            prefixes[prefix]?.cameBack = true
            return prefixes[prefix] != nil
        }
    }

    private static func prefix(of message: [UInt8], by ownKeys: [UInt8]) -> [UInt8] {
        message.prefix(prefixLength) + ownKeys
    }

    private func remove(_ prefix: [UInt8]) {
        prefixes.withLock { prefixes in
            prefixes[prefix]?.count -= 1
            if prefixes[prefix]?.count == 0 { prefixes[prefix] = nil }
        }
    }
}
