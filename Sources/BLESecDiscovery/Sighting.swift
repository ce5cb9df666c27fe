package import BLESecL2CAP

/// A peer, as far as advertisements alone distinguish it from others: an address and a tag.
///
/// Two candidates are known to be the same peer only when the same identity was proven on links to
/// both. Until then, another device may have copied the tag.
package struct Candidate: Sendable, Hashable {
    /// The address to dial.
    package let address: DeviceAddress
    /// The tag that the peer advertises; nil if it advertises the service without a payload.
    package let tag: AdvertisementTag?

    package init(address: DeviceAddress, tag: AdvertisementTag?) {
        self.address = address
        self.tag = tag
    }
}

/// One advertisement of the service, as an adapter heard it.
package struct Sighting: Sendable, Hashable {
    /// The sender's address.
    package let address: DeviceAddress
    /// What the advertisement says about the service.
    package let advertisement: ServiceAdvertisement
    /// The signal strength in dBm; nil where the adapter does not report it.
    package let signal: Int?

    package init(address: DeviceAddress, advertisement: ServiceAdvertisement, signal: Int?) {
        self.address = address
        self.advertisement = advertisement
        self.signal = signal
    }

    /// The candidate that sent the advertisement.
    package var candidate: Candidate {
        Candidate(address: address, tag: advertisement.payload?.tag)
    }
}
