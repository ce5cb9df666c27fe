/// The optional features of a channel, as bits in extension 1 of the hello and answer frames
/// (`docs/wire-format.md`, "Features").
///
/// The value is a bit string: bit n has the weight 2^(n mod 8) in byte n / 8, and missing bytes are
/// zero. The dialer offers features; the acceptor answers with those that apply to this channel.
package struct ChannelFeatures: OptionSet, Sendable, Hashable {
    /// Bits 0 to 7; no higher bit is assigned.
    package let rawValue: UInt8
    /// Makes a set of any bits.
    package init(rawValue: UInt8) { self.rawValue = rawValue }

    /// Bit 0: an `ack` counts a message once the receiving program has taken the message. Without
    /// this bit, an `ack` counts a message once the message has arrived.
    package static let acknowledgesTaken = Self(rawValue: 1 << 0)
    /// Bit 1: the channel carries records of the delivery layer, and no messages of its own. The
    /// messages of the delivery layer outlive a lost link (`docs/delivery.md`).
    package static let delivery = Self(rawValue: 1 << 1)
    /// Bit 2: the two sides pair, and until then neither reports the channel as ready
    /// (`docs/wire-format.md`, "Pairing").
    package static let pairing = Self(rawValue: 1 << 2)
    /// All features that this implementation knows.
    package static let known: Self = [.acknowledgesTaken, .delivery, .pairing]
    /// The ``HelloExtension/type`` of the extension that has the features.
    static let extensionType: UInt8 = 1

    /// The known features among a frame's extensions; none if the extension is missing.
    package init(in extensions: [HelloExtension]) {
        let value = extensions.first { $0.type == Self.extensionType }?.value ?? []
        self = Self(rawValue: value.first ?? 0).intersection(.known)
    }

    /// The extension for these features; an empty array if there are no features.
    package var extensions: [HelloExtension] {
        isEmpty ? [] : [HelloExtension(type: Self.extensionType, value: [rawValue])]
    }
}
