internal import BLESecLinks
internal import CBLESecBlueZ
import Glibc

/// The kernel's information about its adapters, available without privileges. The only file of this
/// module with C calls.
enum HCI {
    /// The size of `sockaddr_l2`, which ``L2CAPSocketAddress`` lays out by hand.
    static var socketAddressSize: Int { MemoryLayout<sockaddr_l2>.size }

    static func adapters() throws(SystemError) -> [Adapter] {
        let descriptor = try openSocket()
        defer { close(descriptor) }
        var numbers = [UInt16](repeating: 0, count: Int(HCI_MAX_DEV))
        let count = unsafe blesec_hci_list(descriptor, &numbers)
        guard count >= 0 else { throw SystemError(errno) }
        return numbers.prefix(Int(count)).sorted().compactMap { adapter(descriptor, $0) }
    }

    static func packets(_ number: UInt16) throws(SystemError) -> PacketCount {
        let descriptor = try openSocket()
        defer { close(descriptor) }
        var count = PacketCount()
        let result = unsafe blesec_hci_packets(
            descriptor, number, &count.size, &count.sent, &count.received)
        guard result == 0 else { throw SystemError(errno) }
        return count
    }

    private static func openSocket() throws(SystemError) -> Int32 {
        let kind = Int32(SOCK_RAW.rawValue | SOCK_CLOEXEC.rawValue)
        let descriptor = socket(L2CAPSocketAddress.family, kind, BTPROTO_HCI)
        guard descriptor >= 0 else { throw SystemError(errno) }
        return descriptor
    }

    /// The adapter with that number; nil when it has been removed meanwhile.
    private static func adapter(_ descriptor: Int32, _ number: UInt16) -> Adapter? {
        var name = [CChar](repeating: 0, count: 9)
        var address = [UInt8](repeating: 0, count: 6)
        var flags: UInt32 = 0
        guard unsafe blesec_hci_info(descriptor, number, &name, &address, &flags) == 0,
            let address = BluetoothAddress(bytes: address.reversed())
        else { return nil }
        let text = String(decoding: name.prefix { $0 != 0 }.map(UInt8.init), as: UTF8.self)
        return Adapter(name: text, address: address, isUp: flags & 1 << UInt32(HCI_UP) != 0)
    }
}
