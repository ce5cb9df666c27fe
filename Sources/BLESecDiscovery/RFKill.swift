internal import Glibc

/// Checks whether the kernel's rfkill blocks an adapter.
///
/// bluetoothd before 5.69 does not report that an adapter is blocked.
enum RFKill {
    /// Whether `rfkill*/{soft,hard}` in the adapter's folder, such as `/sys/class/bluetooth/hci0`,
    /// reports a block; false when there is no such file.
    static func blocks(_ adapter: String) -> Bool {
        let folder = "/sys/class/bluetooth/\(adapter)"
        guard adapter.utf8.allSatisfy({ $0 != UInt8(ascii: "/") && $0 != UInt8(ascii: ".") }),
            let directory = unsafe opendir(folder)
        else { return false }
        defer { unsafe closedir(directory) }
        while let entry = unsafe readdir(directory) {
            let name = unsafe withUnsafeBytes(of: &entry.pointee.d_name) {
                unsafe String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
            }
            let file = "\(folder)/\(name)/"
            if name.hasPrefix("rfkill"), isSet(file + "soft") || isSet(file + "hard") {
                return true
            }
        }
        return false
    }

    private static func isSet(_ path: String) -> Bool {
        let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return false }
        defer { close(descriptor) }
        var digit: UInt8 = 0
        return unsafe read(descriptor, &digit, 1) == 1 && digit == UInt8(ascii: "1")
    }
}
