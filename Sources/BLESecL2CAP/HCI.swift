internal import BLESecLinks
internal import CBLESecBlueZ
import Glibc

/// The kernel's information about its adapters and their links. Only ``phys(ofLink:adapter:)``
/// needs a privilege. This is the only file of this module that calls C functions.
enum HCI {
    /// The size of `sockaddr_l2`, to compare with ``L2CAPSocketAddress/size``.
    static var l2capSocketAddressSize: Int { MemoryLayout<sockaddr_l2>.size }

    static func adapters() throws(SystemError) -> [Adapter] {
        let descriptor = try openSocket()
        defer { close(descriptor) }
        var numbers = [UInt16](repeating: 0, count: Int(HCI_MAX_DEV))
        let count = unsafe blesec_hci_list(descriptor, &numbers)
        guard count >= 0 else { throw SystemError(errno) }
        return numbers.prefix(Int(count)).sorted().compactMap { adapter(descriptor, $0) }
    }

    /// The packet counts of the adapter with this number.
    static func packets(ofAdapter number: UInt16) throws(SystemError) -> PacketCount {
        let descriptor = try openSocket()
        defer { close(descriptor) }
        var count = PacketCount()
        let result = unsafe blesec_hci_packets(
            descriptor, number, &count.maximumPayload, &count.sent, &count.received)
        guard result == 0 else { throw SystemError(errno) }
        return count
    }

    /// The open LE links of an adapter, at most ``BLESEC_HCI_LINKS``.
    static func links(ofAdapter number: UInt16) throws(SystemError) -> [OpenLink] {
        let descriptor = try openSocket()
        defer { close(descriptor) }
        var handles = [UInt16](repeating: 0, count: Int(BLESEC_HCI_LINKS))
        var addresses = [UInt8](repeating: 0, count: 6 * handles.count)
        let count = unsafe blesec_hci_links(descriptor, number, &handles, &addresses)
        guard count >= 0 else { throw SystemError(errno) }
        return (0..<Int(count)).compactMap { index in
            let bytes = addresses[6 * index..<6 * index + 6].reversed()
            return BluetoothAddress(bytes: Array(bytes)).map {
                OpenLink(handle: handles[index], peer: $0)
            }
        }
    }

    /// Reads the PHYs of a link from an adapter with the command LE Read PHY (Core Specification
    /// 5.4, volume 4, part E, 7.8.47). Needs CAP_NET_RAW. Blocks for at most a second.
    static func phys(
        ofLink handle: UInt16, adapter number: UInt16
    ) throws(SystemError) -> LinkPHYs {
        let descriptor = try openSocket()
        defer { close(descriptor) }
        guard blesec_hci_bind(descriptor, number, PHYAnswer.opcode) == 0 else {
            throw SystemError(errno)
        }
        let command = PHYAnswer.command(handle)
        guard unsafe write(descriptor, command, command.count) == command.count else {
            throw SystemError(errno)
        }
        let deadline = ContinuousClock.now + .seconds(1)
        var buffer = [UInt8](repeating: 0, count: Int(HCI_MAX_EVENT_SIZE))
        while true {
            let millisecondsLeft = (deadline - .now) / .milliseconds(1)
            var event = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            let result =
                millisecondsLeft > 0
                ? unsafe poll(&event, 1, Int32(millisecondsLeft.rounded(.up))) : 0
            // 0 means that the second is over.
            guard result != 0 else { throw SystemError(ETIMEDOUT) }
            if result < 0 {
                guard errno == EINTR else { throw SystemError(errno) }
                continue
            }
            let count = unsafe read(descriptor, &buffer, buffer.count)
            guard count >= 0 || errno == EINTR else { throw SystemError(errno) }
            switch PHYAnswer(buffer.prefix(max(0, count)), to: handle) {
            case .phys(let phys): return phys
            case .refused: throw SystemError(EOPNOTSUPP)
            case .other: continue
            }
        }
    }

    private static func openSocket() throws(SystemError) -> Int32 {
        let kind = Int32(SOCK_RAW.rawValue | SOCK_CLOEXEC.rawValue)
        let descriptor = socket(L2CAPSocketAddress.family, kind, BTPROTO_HCI)
        guard descriptor >= 0 else { throw SystemError(errno) }
        return descriptor
    }

    /// The adapter with that number; nil when it has been removed meanwhile.
    private static func adapter(_ descriptor: Int32, _ number: UInt16) -> Adapter? {
        // The name has at most 8 bytes; the ninth stays 0.
        var name = [CChar](repeating: 0, count: 9)
        var address = [UInt8](repeating: 0, count: 6)
        var flags: UInt32 = 0
        guard unsafe blesec_hci_info(descriptor, number, &name, &address, &flags) == 0,
            let address = BluetoothAddress(bytes: address.reversed())
        else { return nil }
        let text = String(decoding: name.prefix { $0 != 0 }.map(UInt8.init), as: UTF8.self)
        return Adapter(name: text, address: address, isUp: flags & (1 << UInt32(HCI_UP)) != 0)
    }
}
