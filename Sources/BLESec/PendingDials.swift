internal import BLESecLocking

/// The unfinished dials of this process, by which a device detects that it has dialed itself.
///
/// A device that both dials and listens could connect to itself, even through a relay. Its acceptor
/// recognizes the first message of an unfinished dial by the same device, but treats this message
/// like any other: whoever replays the message must not learn that dialer and acceptor are one
/// device. The acceptor notes its answer. The dialer recognizes the noted answer when it arrives:
/// the answer has a new ephemeral key, so the dialer's peer is that acceptor.
///
/// Channels of this process with different keys of their own count as different devices; all
/// channels without keys count as one device.
package final class PendingDials: Sendable {
    /// The set that all channels of the process share.
    package static let shared = PendingDials()
    /// How many bytes of a first message identify it. They include at least a part of Noise's
    /// ephemeral key, or of the random field of a TLS hello.
    static let prefixLength = 32

    /// The most answers that are kept for a dial. Each replay of the dial's message causes another
    /// answer.
    private static let mostAnswers = 256

    /// Whether `message` is a TLS record with a HelloRetryRequest, whose random bytes are constant
    /// (RFC 8446 §4.1.3). They follow the record's header (5 bytes), the message's header (4), and
    /// the version (2).
    private static func isRetryRequest(_ message: [UInt8]) -> Bool {
        message.dropFirst(5 + 4 + 2).starts(with: retryRandom)
    }

    private static let retryRandom: [UInt8] = [
        0xCF, 0x21, 0xAD, 0x74, 0xE5, 0x9A, 0x61, 0x11, 0xBE, 0x1D, 0x8C, 0x02, 0x1E, 0x65, 0xB8,
        0x91,
    ]

    /// What the dialer and the acceptors of one device tell each other about a dial.
    fileprivate struct Notes: Sendable {
        /// The first bytes of the acceptors' last ``mostAnswers`` answers, the latest at the end. An
        /// answer stays when its acceptor's channel ends, since a relay may pass the answer on later.
        var answers: [[UInt8]] = []
        /// The answer that the dialer has received, if it is one of ``answers``.
        var received: [UInt8]?
        /// Whether an acceptor has closed the link without an answer.
        var wasClosed = false
    }

    /// The unfinished dials that began with the same first message.
    private struct Dials: Sendable {
        var count = 0
        let notes = Locked(Notes())
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

    /// The dialer's part in a dial. Keeps the first message in the set as long as the token lives.
    package final class Token: Sendable {
        private let owner: PendingDials
        private let prefix: Prefix
        private let notes: Locked<Notes>

        fileprivate init(_ owner: PendingDials, _ prefix: Prefix, _ notes: Locked<Notes>) {
            self.owner = owner
            self.prefix = prefix
            self.notes = notes
        }

        deinit { owner.remove(prefix) }

        /// Whether `message`, the peer's first message, is the answer of an acceptor of this
        /// device. If so, that acceptor's ``ReturnedDial/isSelfConnection`` becomes true.
        func isAnswered(by message: [UInt8]) -> Bool {
            let answer = Array(message.prefix(prefixLength))
            return notes.withLock { notes in
                guard notes.answers.contains(answer) else { return false }
                notes.received = answer
                return true
            }
        }

        /// Whether an acceptor of this device has closed the link without an answer.
        var wasClosed: Bool { notes.withLock { $0.wasClosed } }
    }

    /// An acceptor's part in a dial by the same device, whose first message the acceptor has
    /// received. The message may have come through a relay, or may be a replay.
    final class ReturnedDial {
        private let notes: Locked<Notes>
        /// The first bytes of the acceptor's answer; nil until ``noteAnswer(_:)`` has noted an answer.
        private var answer: [UInt8]?

        fileprivate init(_ notes: Locked<Notes>) { self.notes = notes }

        /// Notes the first message that the acceptor is about to send; later calls change nothing. A
        /// HelloRetryRequest of TLS does not count, because it begins alike for every acceptor.
        func noteAnswer(_ message: [UInt8]) {
            guard answer == nil, !PendingDials.isRetryRequest(message) else { return }
            let answer = Array(message.prefix(prefixLength))
            notes.withLock { notes in
                if notes.answers.count == mostAnswers { notes.answers.removeFirst() }
                notes.answers.append(answer)
            }
            self.answer = answer
        }

        /// Whether the dialer has received this acceptor's answer, so that the two are each other's
        /// peers.
        var isSelfConnection: Bool {
            guard let answer else { return false }
            return notes.withLock { $0.received == answer }
        }

        /// If the acceptor has not answered, notes that the acceptor closes the link, and returns
        /// true. Otherwise returns false.
        func noteClosing() -> Bool {
            guard answer == nil else { return false }
            notes.withLock { $0.wasClosed = true }
            return true
        }
    }

    func insert(_ message: [UInt8], by ownKeys: [UInt8]) -> Token {
        let prefix = Prefix(of: message, by: ownKeys)
        let notes = dials.withLock { dials in
            dials[prefix, default: Dials()].count += 1
            return dials[prefix, default: Dials()].notes
        }
        return Token(self, prefix, notes)
    }

    func contains(_ message: [UInt8], by ownKeys: [UInt8]) -> Bool {
        let prefix = Prefix(of: message, by: ownKeys)
        return dials.withLock { $0[prefix] != nil }
    }

    /// The unfinished dial by the device with `ownKeys` that began with `message`; nil if there is
    /// none.
    func dial(beginningWith message: [UInt8], by ownKeys: [UInt8]) -> ReturnedDial? {
        let prefix = Prefix(of: message, by: ownKeys)
        guard let notes = dials.withLock({ $0[prefix]?.notes }) else { return nil }
        return ReturnedDial(notes)
    }

    private func remove(_ prefix: Prefix) {
        dials.withLock { dials in
            guard let index = dials.index(forKey: prefix) else { return }
            dials.values[index].count -= 1
            if dials.values[index].count == 0 { dials.remove(at: index) }
        }
    }
}
