package import BLESecL2CAP

/// The value of the characteristic in which a peer publishes its PSM.
///
/// Apple writes a little-endian u16; others write four bytes, big-endian. Both forms are read, in
/// either byte order: a dynamic PSM lies in 0x80 to 0xFF, so only one order gives a valid number.
package enum PSMValue {
    /// `ABDD3056-28FA-441D-A470-55A75A52553A`, which Apple's CoreBluetooth names
    /// `CBUUIDL2CAPPSMCharacteristicString`.
    package static let characteristic = BluetoothUUID(
        high: 0xABDD_3056_28FA_441D, low: 0xA470_55A7_5A52_553A)

    /// The PSM as two bytes, little-endian.
    package static func format(_ psm: PSM) -> [UInt8] {
        [UInt8(truncatingIfNeeded: psm.rawValue), UInt8(truncatingIfNeeded: psm.rawValue >> 8)]
    }

    /// Reads a dynamic PSM from two or four bytes, in either byte order; nil for anything else.
    package static func parse(_ bytes: [UInt8]) -> PSM? {
        guard bytes.count == 2 || bytes.count == 4 else { return nil }
        let numbers = [bytes.reversed(), bytes].map { $0.reduce(0) { $0 << 8 | Int($1) } }
        return numbers.first { (0x80...0xFF).contains($0) }.flatMap { try? PSM($0) }
    }
}
