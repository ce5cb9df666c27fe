package import BLESecLinks
internal import Glibc

/// An open LE link of an adapter.
package struct OpenLink: Sendable, Hashable {
    /// The connection handle (Core Specification 5.4, volume 4, part E, 5.3.1).
    let handle: UInt16
    /// The address of the other device.
    package let peer: BluetoothAddress
}

/// A physical layer of LE (Core Specification 5.4, volume 6, part A, 1). The raw value is the
/// layer's number in the answer to the command LE Read PHY.
package enum PHY: UInt8, Sendable, CustomStringConvertible {
    case le1M = 1, le2M, leCoded

    package var description: String {
        switch self {
        case .le1M: "LE 1M"
        case .le2M: "LE 2M"
        case .leCoded: "LE Coded"
        }
    }
}

/// The physical layers of an open link.
package struct LinkPHYs: Sendable, Hashable, CustomStringConvertible {
    package let sending: PHY
    package let receiving: PHY

    /// Words that continue "the link", such as "uses LE 2M".
    package var description: String {
        sending == receiving
            ? "uses \(sending)" : "sends with \(sending) and receives with \(receiving)"
    }
}

extension Adapter {
    /// The adapter's open LE links. Needs no privilege.
    package func openLinks() throws(LinkError) -> [OpenLink] {
        let number = try number
        return try L2CAPFailure.translate(HCI.links(ofAdapter: number)) {
            L2CAPFailure.explain($0, cannot: "list the links of \(name)")
        }
    }

    /// The PHYs of a link; nil if the link has ended. Blocks for at most a second.
    ///
    /// - Throws: ``LinkError/Code/permission`` without CAP_NET_RAW, ``LinkError/Code/unavailable``
    ///   if the adapter rejects the command or does not answer.
    package func phys(of link: OpenLink) throws(LinkError) -> LinkPHYs? {
        let number = try number
        do throws(SystemError) {
            return try HCI.phys(ofLink: link.handle, adapter: number)
        } catch {
            if try !openLinks().contains(link) { return nil }
            let meaning: L2CAPFailure.Meaning? =
                switch error.number {
                case EPERM, EACCES: (.permission, "only a process with CAP_NET_RAW may do that")
                case EOPNOTSUPP, ETIMEDOUT: (.unavailable, "the adapter does not report it")
                default: nil
                }
            throw L2CAPFailure.explain(error, cannot: "read the PHY", meaning)
        }
    }
}
