internal import BLESecLocking

/// The first bytes of the first handshake message of each unfinished dial of this process.
///
/// A device that both dials and listens could connect to itself, even through a relay. So an
/// acceptor refuses a first message that begins with the same bytes as the first message of an
/// unfinished dial by the same device. Channels of this process with different keys of their own
/// count as different devices; all channels without keys count as one device.
package final class PendingDials: Sendable {
    /// The set that all channels of the process share.
    package static let shared = PendingDials()
    /// How many bytes of a first message identify it. They include at least a part of Noise's
    /// ephemeral key, or of the random field of a TLS hello.
    static let prefixLength = 32

    /// The unfinished dials that began with the same first message.
    private struct Dials: Sendable {
        var count = 0
        /// Whether this process has also received the message.
        var cameBack = false
    }

    /// The first bytes of a dial's first message, and the keys of the device that dials.
    fileprivate struct Prefix: Hashable, Sendable {
        let bytes: [UInt8]

        init(of message: [UInt8], by ownKeys: [UInt8]) {
            bytes = message.prefix(prefixLength) + ownKeys
        }

        // An array feeds its bytes to the hasher one by one, which takes longer.
        func hash(into hasher: inout Hasher) {
            unsafe bytes.withUnsafeBytes { unsafe hasher.combine(bytes: $0) }
        }
    }

    private let dials = Locked<[Prefix: Dials]>([:])

    /// Keeps a prefix in the set as long as the token lives.
    package final class Token: Sendable {
        private let owner: PendingDials
        private let prefix: Prefix

        fileprivate init(_ owner: PendingDials, _ prefix: Prefix) {
            self.owner = owner
            self.prefix = prefix
        }

        deinit { owner.remove(prefix) }
        /// Whether an acceptor of this process has received the first message and refused it.
        var cameBack: Bool { owner.dials.withLock { $0[prefix]?.cameBack == true } }
    }

    func insert(_ message: [UInt8], by ownKeys: [UInt8]) -> Token {
        let prefix = Prefix(of: message, by: ownKeys)
        dials.withLock { $0[prefix, default: Dials()].count += 1 }
        return Token(self, prefix)
    }

    func contains(_ message: [UInt8], by ownKeys: [UInt8]) -> Bool {
        let prefix = Prefix(of: message, by: ownKeys)
        return dials.withLock { $0[prefix] != nil }
    }

    /// Whether a first message that has arrived belongs to an unfinished dial by the device with
    /// `ownKeys`. If so, the dial is marked, because the acceptor closes the link without a
    /// message, and the dialer would otherwise not know why.
    func markIfOwn(_ message: [UInt8], by ownKeys: [UInt8]) -> Bool {
        let prefix = Prefix(of: message, by: ownKeys)
        return dials.withLock { dials in
            guard let index = dials.index(forKey: prefix) else { return false }
            dials.values[index].cameBack = true
            return true
        }
    }

    private func remove(_ prefix: Prefix) {
        dials.withLock { dials in
            guard let index = dials.index(forKey: prefix) else { return }
            dials.values[index].count -= 1
            if dials.values[index].count == 0 { dials.remove(at: index) }
        }
    }
}
