public import BLESecLinks

/// A protocol/service multiplexer: the port of an L2CAP channel.
///
/// On LE a PSM is 0x01 to 0xFF (Core specification 5.4, Vol 3, Part A, §4.22). The Bluetooth SIG
/// assigns the PSMs below 0x80, and listening on one of them requires CAP_NET_BIND_SERVICE. The
/// PSMs from 0x80 on are dynamic and free for any use; phones use only these.
public struct PSM: Sendable, Hashable, CustomStringConvertible {
    /// The number.
    public let rawValue: UInt16

    /// Checks a number.
    ///
    /// - Throws: ``LinkError/Code/invalidPSM``, whose reason explains the mistake.
    public init(_ number: Int) throws(LinkError) {
        guard number != 0 else {
            throw LinkError(
                .invalidPSM, "PSM 0 cannot be dialed; in `listen` it selects a free dynamic PSM")
        }
        guard (0x01...0xFF).contains(number) else {
            throw LinkError(
                .invalidPSM,
                "PSM \(number < 0 ? "\(number)" : Self.text(number)) is no LE PSM: LE PSMs end at "
                    + "0xFF (higher numbers belong to classic Bluetooth)")
        }
        rawValue = UInt16(number)
    }

    /// Parses decimal or, after `0x`, hexadecimal digits.
    ///
    /// - Throws: ``LinkError/Code/invalidPSM``.
    public init(parsing text: some StringProtocol) throws(LinkError) {
        let isHexadecimal = text.hasPrefix("0x") || text.hasPrefix("0X")
        let digits = isHexadecimal ? text.dropFirst(2) : text[...]
        // `Int` would accept a sign. In ASCII, both signs come before the digits, which begin at
        // 0x30.
        guard !digits.isEmpty, digits.utf8.count <= 8, digits.utf8.allSatisfy({ $0 > 0x2F }),
            let number = Int(digits, radix: isHexadecimal ? 16 : 10)
        else {
            throw LinkError(.invalidPSM, "\"\(text)\" is no PSM: write 0x80 or 128")
        }
        try self.init(number)
    }

    /// The numbers of dynamic PSMs.
    package static let dynamic = 0x80...0xFF

    /// Whether the PSM is dynamic: 0x80 to 0xFF.
    public var isDynamic: Bool { Self.dynamic.contains(Int(rawValue)) }
    /// The form `0x80`.
    public var description: String { Self.text(Int(rawValue)) }

    private static func text(_ number: Int) -> String {
        (number < 0x10 ? "0x0" : "0x") + String(number, radix: 16, uppercase: true)
    }
}
