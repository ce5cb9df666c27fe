public import BLESecLinks

/// The address of an L2CAP channel on LE: a device and a PSM.
public struct L2CAPAddress: Sendable, Hashable, CustomStringConvertible {
    /// The device.
    public var device: BluetoothAddress
    /// The type of the device's address.
    public var type: AddressType
    /// The PSM.
    public var psm: PSM

    /// Makes an address of its three parts.
    public init(device: BluetoothAddress, type: AddressType = .public, psm: PSM) {
        self.device = device
        self.type = type
        self.psm = psm
    }

    /// Parses `AA:BB:CC:DD:EE:FF/0x80`, as ``description`` writes it after `l2cap:`.
    ///
    /// - Throws: ``LinkError/Code/invalidAddress`` or ``LinkError/Code/invalidPSM``.
    public init(parsing text: some StringProtocol, type: AddressType = .public) throws(LinkError) {
        let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
        guard let device = parts.first.flatMap({ BluetoothAddress($0) }) else {
            throw LinkError(
                .invalidAddress,
                "\"\(text)\" is no Bluetooth address: write AA:BB:CC:DD:EE:FF/0x80")
        }
        guard parts.count == 2 else {
            throw LinkError(.invalidAddress, "\"\(text)\" lacks the PSM: write \(device)/0x80")
        }
        self.init(device: device, type: type, psm: try PSM(parsing: parts[1]))
    }

    /// The endpoint in the format of the command-line tools: `l2cap:AA:BB:CC:DD:EE:FF/0x80`.
    public var description: String { "l2cap:\(device)/\(psm)" }
}

/// A `sockaddr_l2` on LE: 14 bytes.
struct L2CAPSocketAddress: Hashable {
    static let size = 14
    /// `AF_BLUETOOTH`, which Swift's C library modules do not export.
    static let family: Int32 = 31

    var device: BluetoothAddress
    var type: AddressType
    /// The PSM. When a socket is bound, 0 lets the kernel choose a free dynamic PSM.
    var psm: UInt16
}

extension L2CAPSocketAddress {
    init(_ address: L2CAPAddress) {
        self.init(device: address.device, type: address.type, psm: address.psm.rawValue)
    }

    /// Reads an address from the kernel; nil when it is not an LE address.
    init?(_ address: SocketAddress) {
        let bytes = address.bytes
        guard bytes.count >= Self.size,
            Array(bytes[..<2]) == SocketAddress.family(Self.family),
            let device = BluetoothAddress(bytes: bytes[4..<10].reversed()),
            let type = AddressType(rawSocketValue: bytes[12])
        else { return nil }
        self.init(device: device, type: type, psm: UInt16(bytes[2]) | UInt16(bytes[3]) << 8)
    }

    /// In this order: l2_family, l2_psm (little-endian), l2_bdaddr (last byte first), l2_cid,
    /// l2_bdaddr_type.
    var socketAddress: SocketAddress {
        SocketAddress(
            SocketAddress.family(Self.family)
                + [UInt8(truncatingIfNeeded: psm), UInt8(truncatingIfNeeded: psm >> 8)]
                + device.bytes.reversed() + [0, 0] + [type.rawSocketValue, 0])
    }
}
