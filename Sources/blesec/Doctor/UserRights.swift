internal import Glibc

/// What this process's user may do.
struct UserRights {
    /// Whether the user is in the group `bluetooth`; nil if there is no such group, or the groups
    /// cannot be read.
    let isInBluetoothGroup: Bool?
    let isRoot = geteuid() == 0
    /// The capabilities that `btmgmt` and `btmon` need and that this process lacks; nil if the
    /// capabilities cannot be read.
    let missingCapabilities: [String]?

    private static let capabilities: [(name: String, bit: UInt64)] = [
        ("CAP_NET_ADMIN", 12), ("CAP_NET_RAW", 13),
    ]

    init(_ facts: SystemFacts) {
        isInBluetoothGroup = Self.bluetoothGroup(facts).flatMap { group in
            Self.groups?.contains(group)
        }
        missingCapabilities = Self.effectiveCapabilities(facts).map { set in
            Self.capabilities.filter { (set >> $0.bit) & 1 == 0 }.map(\.name)
        }
    }

    /// The ID of the group `bluetooth`; nil if there is no such group, or no ID can be read.
    private static func bluetoothGroup(_ facts: SystemFacts) -> gid_t? {
        guard case .bytes(let bytes) = facts.read("/etc/group") else { return nil }
        let prefix = Array("bluetooth:".utf8)
        for line in bytes.split(separator: UInt8(ascii: "\n")) where line.starts(with: prefix) {
            let fields = line.split(separator: UInt8(ascii: ":"), omittingEmptySubsequences: false)
            guard fields.count > 2 else { return nil }
            return gid_t(String(decoding: fields[2], as: UTF8.self))
        }
        return nil
    }

    /// The groups of this process; nil if they cannot be read.
    private static var groups: [gid_t]? {
        var list = [gid_t](repeating: 0, count: 65_536)
        let count = unsafe getgroups(Int32(list.count), &list)
        return count < 0 ? nil : list.prefix(Int(count)) + [getegid()]
    }

    /// The effective capabilities of this process, as bits; nil if they cannot be read.
    private static func effectiveCapabilities(_ facts: SystemFacts) -> UInt64? {
        guard case .bytes(let bytes) = facts.read("/proc/self/status") else { return nil }
        let prefix = Array("CapEff:".utf8)
        for line in bytes.split(separator: UInt8(ascii: "\n")) where line.starts(with: prefix) {
            let digits = line.dropFirst(prefix.count).drop { $0 == 9 || $0 == 32 }
            return UInt64(String(decoding: digits, as: UTF8.self), radix: 16)
        }
        return nil
    }
}
