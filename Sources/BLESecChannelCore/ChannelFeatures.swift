/// What a side can do beyond blesec/1's base, as bits of extension 1 of hello and answer
/// (`docs/wire-format.md`, "Features").
///
/// The value is a bit string: bit n is the bit of weight 2^(n mod 8) in byte n / 8, and bytes that
/// are missing are zero. A dialer offers bits, an acceptor answers with those of them that count on
/// this channel.
package struct ChannelFeatures: OptionSet, Sendable, Hashable {
    /// Bits 0 to 7; no others are assigned.
    package let rawValue: UInt8
    /// Any bits.
    package init(rawValue: UInt8) { self.rawValue = rawValue }

    /// Bit 0: `ack` counts messages that the program has taken, not those that have arrived.
    package static let acknowledgesTaken = Self(rawValue: 1 << 0)
    /// All that this implementation knows.
    package static let known: Self = [.acknowledgesTaken]

    /// The type of the extension.
    static let extensionType: UInt8 = 1

    /// The bits among a frame's extensions that are known here; none where there is no such extension.
    package init(in extensions: [HelloExtension]) {
        let value = extensions.first { $0.type == Self.extensionType }?.value ?? []
        self = Self(rawValue: value.first ?? 0).intersection(.known)
    }

    /// The extension that says them; none where there are no bits.
    package var extensions: [HelloExtension] {
        isEmpty ? [] : [HelloExtension(type: Self.extensionType, value: [rawValue])]
    }
}
