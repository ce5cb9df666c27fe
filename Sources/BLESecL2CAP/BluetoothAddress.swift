/// The address of a Bluetooth device: six bytes.
///
/// On LE, an address is complete only with its ``AddressType``. An address authenticates nobody: it
/// can be forged, and it may change.
public struct BluetoothAddress: Sendable, Hashable, CustomStringConvertible {
    /// The address as a 48-bit big-endian number.
    private let value: UInt64

    /// Makes an address of six bytes, in the order of the text form.
    ///
    /// - Returns: nil if there are not exactly six.
    public init?(bytes: [UInt8]) {
        guard bytes.count == 6 else { return nil }
        value = bytes.reduce(0) { $0 << 8 | UInt64($1) }
    }

    /// Parses `AA:BB:CC:DD:EE:FF`: six pairs of hexadecimal digits in either case.
    ///
    /// - Returns: nil for anything else.
    public init?(_ text: some StringProtocol) {
        let characters = Array(text.utf8)
        guard characters.count == 17 else { return nil }
        var bytes: [UInt8] = []
        for start in stride(from: 0, to: 17, by: 3) {
            let digits = characters[start...(start + 1)].compactMap {
                Character(Unicode.Scalar($0)).hexDigitValue
            }
            guard digits.count == 2, start == 15 || characters[start + 2] == UInt8(ascii: ":")
            else { return nil }
            bytes.append(UInt8(digits[0] << 4 | digits[1]))
        }
        self.init(bytes: bytes)
    }

    /// `00:00:00:00:00:00`, which means any adapter (BDADDR_ANY).
    public static let any = BluetoothAddress(value: 0)

    /// The six bytes, in the order of the text form.
    public var bytes: [UInt8] {
        stride(from: 40, through: 0, by: -8).map { UInt8(truncatingIfNeeded: value >> $0) }
    }

    /// `AA:BB:CC:DD:EE:FF`.
    public var description: String {
        bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16, uppercase: true) }
            .joined(separator: ":")
    }

    private init(value: UInt64) { self.value = value }
}

/// The kind of an LE address. Equal addresses of different types belong to different devices.
public enum AddressType: String, Sendable, Hashable {
    /// Assigned by the IEEE, and fixed in the hardware.
    case `public`
    /// Chosen by the device, which either keeps the address at least until it restarts, or changes
    /// the address every few minutes.
    case random

    /// The `bdaddr_type` in a socket address; 0 is BR/EDR.
    var rawSocketValue: UInt8 { self == .public ? 1 : 2 }

    init?(rawSocketValue: UInt8) {
        guard (1...2).contains(rawSocketValue) else { return nil }
        self = rawSocketValue == 1 ? .public : .random
    }
}
