package import BLESecL2CAP

/// The six bytes that a peer advertises with its service.
///
/// `version, 4 bits · capabilities, 4 bits · PSM or 0, 1 byte · tag, 4 bytes`. Anyone can forge a
/// payload. It is a hint for where to dial; it never decides whom to trust or what to negotiate.
package struct AdvertisementPayload: Sendable, Hashable {
    /// What a peer can do.
    package struct Capabilities: OptionSet, Sendable, Hashable {
        /// The four bits.
        package let rawValue: UInt8

        /// Takes the lower four bits.
        package init(rawValue: UInt8) { self.rawValue = rawValue & 0x0F }

        /// The peer accepts L2CAP channels.
        package static let l2cap = Capabilities(rawValue: 8)
        /// The peer accepts the byte stream over GATT.
        package static let gattStream = Capabilities(rawValue: 4)
        /// The peer supports Noise.
        package static let noise = Capabilities(rawValue: 2)
        /// The peer supports TLS.
        package static let tls = Capabilities(rawValue: 1)
    }

    /// The version that this code writes and reads.
    package static let version: UInt8 = 1
    /// The number of bytes in a payload.
    package static let size = 6

    /// What the peer can do.
    package let capabilities: Capabilities
    /// The PSM of the peer's L2CAP channels; nil if the payload contains none.
    package let psm: PSM?
    /// The tag that distinguishes this advertisement from others.
    package let tag: AdvertisementTag

    /// Makes a payload.
    ///
    /// A PSM must be dynamic, and requires ``Capabilities/l2cap``; anything else is a programming
    /// error.
    package init(capabilities: Capabilities, psm: PSM?, tag: AdvertisementTag) {
        precondition(
            psm.map { $0.isDynamic && capabilities.contains(.l2cap) } ?? true,
            "a PSM in an advertisement is dynamic and goes with the capability for L2CAP")
        self.capabilities = capabilities
        self.psm = psm
        self.tag = tag
    }

    /// Reads the six bytes.
    ///
    /// - Returns: nil for another length, another version, a PSM that is not dynamic, or a PSM
    ///   without ``Capabilities/l2cap``.
    package init?(_ bytes: [UInt8]) {
        guard bytes.count == Self.size, bytes[0] >> 4 == Self.version else { return nil }
        capabilities = Capabilities(rawValue: bytes[0])
        psm = bytes[1] == 0 ? nil : try? PSM(Int(bytes[1]))
        tag = AdvertisementTag(rawValue: bytes[2...].reduce(0) { $0 << 8 | UInt32($1) })
        guard bytes[1] == 0 || psm?.isDynamic == true && capabilities.contains(.l2cap) else {
            return nil
        }
    }

    /// Reads the eight characters of a local name: base64url without padding (RFC 4648 §5).
    package init?(text: some StringProtocol) {
        let digits = text.utf8.compactMap { Self.alphabet.firstIndex(of: $0) }
        guard text.utf8.count == 8, digits.count == 8 else { return nil }
        let bits = digits.reduce(0 as UInt64) { $0 << 6 | UInt64($1) }
        self.init(
            stride(from: 40, through: 0, by: -8).map { UInt8(truncatingIfNeeded: bits >> $0) })
    }

    /// The six bytes.
    package var bytes: [UInt8] {
        let tag = stride(from: 24, through: 0, by: -8).map {
            UInt8(truncatingIfNeeded: self.tag.rawValue >> $0)
        }
        return [Self.version << 4 | capabilities.rawValue, UInt8(psm?.rawValue ?? 0)] + tag
    }

    /// The payload as the eight characters of a local name.
    package var text: String {
        let bits = bytes.reduce(0 as UInt64) { $0 << 8 | UInt64($1) }
        let characters = stride(from: 42, through: 0, by: -6).map {
            Self.alphabet[Int(bits >> $0 & 0x3F)]
        }
        return String(decoding: characters, as: UTF8.self)
    }

    private static let alphabet = Array(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".utf8)
}
