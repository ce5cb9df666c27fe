internal import BLESecLocking

/// The first bytes of every handshake that a device of this process has begun and not finished.
///
/// A device that dials and listens could reach itself, through a relay even; a first message that
/// begins with the ephemeral of one of its own dials is refused. Channels with different keys of their
/// own are different devices; all channels without any are one.
package final class PendingDials: Sendable {
    /// The process's own.
    package static let shared = PendingDials()

    /// How many bytes of a first message tell it from all others: an X25519
    /// ephemeral's, or what a TLS hello has of its random bytes.
    static let prefixLength = 32

    /// A first message of which this process has dials under way.
    private struct Dial: Sendable {
        var count = 0
        /// Whether it has arrived in this process, too.
        var cameBack = false
    }

    private let prefixes = Locked<[[UInt8]: Dial]>([:])

    /// Keeps a prefix in the set for as long as it lives.
    package final class Token: Sendable {
        private let dials: PendingDials
        private let prefix: [UInt8]

        fileprivate init(_ dials: PendingDials, _ prefix: [UInt8]) {
            self.dials = dials
            self.prefix = prefix
        }

        deinit { dials.remove(prefix) }

        /// Whether an acceptor of this process has received the first message, and refused it.
        var cameBack: Bool { dials.prefixes.withLock { $0[prefix]?.cameBack == true } }
    }

    func insert(_ message: [UInt8], by ownKeys: [UInt8]) -> Token {
        let prefix = Self.key(message, ownKeys)
        prefixes.withLock { $0[prefix, default: Dial()].count += 1 }
        return Token(self, prefix)
    }

    func contains(_ message: [UInt8], by ownKeys: [UInt8]) -> Bool {
        let prefix = Self.key(message, ownKeys)
        return prefixes.withLock { $0[prefix] != nil }
    }

    /// Whether a first message that has arrived is that of a dial of one's own, which hears of it: an
    /// acceptor that meets itself just closes, and the dialer would not know why.
    func refuses(_ message: [UInt8], by ownKeys: [UInt8]) -> Bool {
        let prefix = Self.key(message, ownKeys)
        return prefixes.withLock { prefixes in
            prefixes[prefix]?.cameBack = true
            return prefixes[prefix] != nil
        }
    }

    private static func key(_ message: [UInt8], _ ownKeys: [UInt8]) -> [UInt8] {
        message.prefix(prefixLength) + ownKeys
    }

    private func remove(_ prefix: [UInt8]) {
        prefixes.withLock { prefixes in
            prefixes[prefix]?.count -= 1
            if prefixes[prefix]?.count == 0 { prefixes[prefix] = nil }
        }
    }
}
