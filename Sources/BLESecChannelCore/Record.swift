/// The first byte of every record's plaintext (`docs/wire-format.md`, "Records").
package struct RecordType: RawRepresentable, Hashable, Sendable {
    /// The byte.
    package let rawValue: UInt8

    /// Any byte; see ``isIgnorable`` for those without a name.
    package init(rawValue: UInt8) { self.rawValue = rawValue }

    /// The last bytes of a message.
    package static let data = Self(rawValue: 0x00)
    /// Bytes of a message of which more come; never empty.
    package static let dataMore = Self(rawValue: 0x01)
    /// Its sender sends no more messages; one byte of ``EndReason``.
    package static let end = Self(rawValue: 0x02)
    /// Asks for a pong with the same payload.
    package static let ping = Self(rawValue: 0x03)
    /// Answers a ping.
    package static let pong = Self(rawValue: 0x04)
    /// The sender's next record is sealed with a new key; empty.
    package static let rekey = Self(rawValue: 0x05)
    /// The sender has judged its peer; 32 bytes over the negotiation.
    package static let ready = Self(rawValue: 0x06)
    /// The sender refuses its peer; 32 bytes, the first a ``RejectCode``.
    package static let reject = Self(rawValue: 0x07)
    /// How many messages the sender acknowledges so far, as a u64.
    package static let ack = Self(rawValue: 0x08)
    /// Nothing, of any length.
    package static let padding = Self(rawValue: 0x80)

    /// Whether a receiver that does not know the type passes over it.
    package var isIgnorable: Bool { rawValue >= 0x80 }
}

/// Sizes of blesec/1's records.
package enum Record {
    /// The most payload one Noise record carries: 65,535 less the tag's 16 bytes and the type.
    package static let maximumPayload = 65_518
    /// The payload of a bulk record: long enough that its 19 bytes of overhead do not show, short
    /// enough that an acknowledgement does not wait long behind it.
    package static let bulkPayload = 16_384
    /// The least payload to which a bulk record is cut for a link with a tiny MTU.
    package static let leastBulkPayload = 512
    /// The payload of `ready` and `reject`.
    package static let readyLength = 32
    /// The payload of `ack`.
    package static let ackLength = 8
    /// The longest payload of a ping.
    package static let maximumPing = 8
    /// Messages after which an acknowledgement is sent at the latest.
    package static let messagesPerAck: UInt64 = 32
    /// How long an acknowledgement may wait for company.
    package static let ackDelay: Duration = .milliseconds(50)
    /// Records that lie between two rekeys of one direction at the least.
    package static let leastRekeyInterval: UInt64 = 1_024
}

/// Why a side sends no more.
public struct EndReason: RawRepresentable, Hashable, Sendable {
    /// The byte.
    public let rawValue: UInt8
    /// Any byte; unknown ones mean ``done``.
    public init(rawValue: UInt8) { self.rawValue = rawValue }

    /// Everything has been sent.
    public static let done = Self(rawValue: 0)
    /// Another link to the same identity was kept.
    public static let duplicate = Self(rawValue: 1)
    /// The session is too old.
    public static let expired = Self(rawValue: 2)
    /// The identity is not trusted any more.
    public static let untrusted = Self(rawValue: 3)
    /// Its sender was stopped, or failed, before it had sent everything.
    public static let interrupted = Self(rawValue: 4)

    /// What an end for this reason is for who still expected something: nothing where everything has
    /// been sent, and `truncated` otherwise.
    public var error: ChannelError? {
        let reason =
            switch self {
            case .duplicate: "the peer kept another channel instead of this one"
            case .expired: "the peer ended the session for its age"
            case .untrusted: "the peer does not trust this side any more"
            case .interrupted: "the peer was interrupted before it had sent everything"
            default: String?.none
            }
        return reason.map { ChannelError(.truncated, $0) }
    }
}

/// What a side tells a peer that it refuses; the reason stays local.
package enum RejectCode: UInt8, Sendable, Hashable {
    /// Refused, whatever the reason.
    case refused = 1
    /// Too many channels.
    case busy = 2
    /// Something failed inside.
    case `internal` = 3
}
