package import BLESecLinks

/// The ACL packets between this machine and an adapter since the adapter appeared.
package struct PacketCount: Sendable, Hashable {
    /// The largest payload of one packet, in bytes. On an adapter for LE and BR/EDR, this is the
    /// size for BR/EDR packets; if the adapter has separate buffers for LE, the size for LE packets
    /// may differ.
    package var maximumPayload: UInt16 = 0
    /// Packets passed to the adapter.
    package var sent: UInt32 = 0
    /// Packets received from the adapter.
    package var received: UInt32 = 0
}

extension Adapter {
    /// The adapter's packet counts so far. Needs no privilege.
    ///
    /// - Throws: ``LinkError/Code/noSuchAdapter`` when the adapter has been removed.
    package func packets() throws(LinkError) -> PacketCount {
        let number = try number
        return try L2CAPFailure.translate(HCI.packets(ofAdapter: number)) {
            L2CAPFailure.explain($0, cannot: "count the packets of \(name)")
        }
    }
}
