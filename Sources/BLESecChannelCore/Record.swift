/// The first byte of every record's plaintext (`docs/wire-format.md`, "Records"). `BLESecDelivery`
/// has the types 0x09 to 0x16.
package struct RecordType: RawRepresentable, Hashable, Sendable {
    package let rawValue: UInt8

    /// Makes a type of any byte; see ``isIgnorable`` for bytes without a name.
    package init(rawValue: UInt8) { self.rawValue = rawValue }

    /// The last part of a message.
    package static let data = Self(rawValue: 0x00)
    /// A part of a message, but not the last part; never empty.
    package static let dataMore = Self(rawValue: 0x01)
    /// The sender sends no more messages; the payload is one byte of ``EndReason``.
    package static let end = Self(rawValue: 0x02)
    /// Asks for a pong with the same payload.
    package static let ping = Self(rawValue: 0x03)
    /// Answers a ping.
    package static let pong = Self(rawValue: 0x04)
    /// The sender's next record is sealed with a new key; the payload is empty.
    package static let rekey = Self(rawValue: 0x05)
    /// The sender trusts its peer; the payload is 32 bytes that confirm the negotiation.
    package static let ready = Self(rawValue: 0x06)
    /// The sender refuses its peer; the payload is 32 bytes, the first a ``RejectCode``.
    package static let reject = Self(rawValue: 0x07)
    /// The payload is a u64: how many of its peer's messages the sender of this record has
    /// acknowledged so far.
    package static let ack = Self(rawValue: 0x08)
    /// A step of pairing; the payload is a byte of ``PairingStep`` and what belongs to it.
    package static let pair = Self(rawValue: 0x17)
    /// Padding of any length, without a meaning.
    package static let padding = Self(rawValue: 0x80)

    /// Whether a receiver that does not know the type ignores the record.
    package var isIgnorable: Bool { rawValue >= 0x80 }
}

/// Sizes of blesec/1's records.
package enum Record {
    /// The largest payload of one Noise record: 65,535 less the 16-byte tag and the 1-byte type.
    package static let maximumPayload = 65_518
    /// The payload length in bytes of a bulk record: one of the many records that carry a long
    /// message. At this length, the overhead of a record hardly matters (with Noise 19 bytes: length
    /// 2, type 1, tag 16), and an acknowledgement does not wait long behind a bulk record.
    package static let bulkPayload = 16_384
    /// The smallest payload of a bulk record in bytes, for a link with a tiny MTU.
    package static let leastBulkPayload = 512
    /// The length in bytes of the payload of `ready` and of `reject`.
    package static let readyLength = 32
    /// The length in bytes of the longest payload of a ping.
    package static let maximumPing = 8
    /// The number of messages after which an acknowledgement is sent at the latest.
    package static let messagesPerAck: UInt64 = 32
    /// How long an acknowledgement may wait, so that it covers several messages.
    package static let ackDelay: Duration = .milliseconds(50)
    /// The least number of records between two rekeys of one direction.
    package static let leastRekeyInterval: UInt64 = 1_024
}

/// The reason why a side sends no more messages.
public struct EndReason: RawRepresentable, Hashable, Sendable {
    /// The byte.
    public let rawValue: UInt8
    /// Makes a reason of any byte; an unknown reason means ``done``.
    public init(rawValue: UInt8) { self.rawValue = rawValue }

    /// Everything has been sent.
    public static let done = Self(rawValue: 0)
    /// The sender kept another channel to the same identity.
    public static let duplicate = Self(rawValue: 1)
    /// The session is too old.
    public static let expired = Self(rawValue: 2)
    /// The sender does not trust the peer's identity any more.
    public static let untrusted = Self(rawValue: 3)
    /// The sender was stopped, or failed, before it had sent everything.
    public static let interrupted = Self(rawValue: 4)

    /// The error for a receiver that still expected messages: `truncated`, or nil for ``done``.
    public var error: ChannelError? {
        let reason =
            switch self {
            case .duplicate: "the peer kept another channel instead of this one"
            case .expired: "the peer ended the session because the session was too old"
            case .untrusted: "the peer does not trust this side any more"
            case .interrupted: "the peer was interrupted before it had sent everything"
            default: String?.none
            }
        return reason.map { ChannelError(.truncated, $0) }
    }
}

/// What a side sends to a peer that it refuses; the detailed reason is not sent.
package enum RejectCode: UInt8, Sendable, Hashable {
    /// Refused, for any reason.
    case refused = 1
    /// Too many channels.
    case busy = 2
    /// An internal failure.
    case `internal` = 3
}
