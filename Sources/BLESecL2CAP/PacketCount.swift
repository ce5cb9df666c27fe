package import BLESecLinks

/// The ACL packets that have passed between this machine and an adapter since that appeared.
package struct PacketCount: Sendable, Hashable {
    /// The most bytes behind the header of one packet.
    package var size: UInt16 = 0
    /// Given to the adapter.
    package var sent: UInt32 = 0
    /// Got from it.
    package var received: UInt32 = 0
}

extension Adapter {
    /// The adapter's packets so far. Needs no privilege.
    ///
    /// - Throws: ``LinkError/Code/noSuchAdapter`` when it has gone.
    package func packets() throws(LinkError) -> PacketCount {
        guard let number = UInt16(name.dropFirst("hci".count)) else {
            throw LinkError(.noSuchAdapter, "\(name) is no adapter's name")
        }
        do throws(SystemError) {
            return try HCI.packets(number)
        } catch {
            throw L2CAPFailure.explain(error, "count the packets of \(name)")
        }
    }
}
