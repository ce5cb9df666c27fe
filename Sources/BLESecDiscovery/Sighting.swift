package import BLESecL2CAP

/// Where a device can be dialed: its address and the address type. It proves nothing.
package struct DeviceAddress: Sendable, Hashable, CustomStringConvertible {
    /// The six bytes.
    package let address: BluetoothAddress
    /// The address type.
    package let type: AddressType

    /// Makes a device address from its two parts.
    package init(_ address: BluetoothAddress, _ type: AddressType) {
        self.address = address
        self.type = type
    }

    /// Reads what ``description`` writes; nil for anything else.
    package init?(_ text: String) {
        let parts = text.split(separator: " ", omittingEmptySubsequences: false)
        guard parts.count == 2, parts[1].hasPrefix("("), parts[1].hasSuffix(")"),
            let address = BluetoothAddress(parts[0]),
            let type = AddressType(rawValue: String(parts[1].dropFirst().dropLast()))
        else { return nil }
        self.init(address, type)
    }

    /// The form `AA:BB:CC:DD:EE:FF (random)`, in which links also print their peers.
    package var description: String { "\(address) (\(type.rawValue))" }
}

/// A peer as it can be distinguished by advertisements alone: an address and a tag.
///
/// Two candidates are the same peer only if the same identity was proven on links to both. Until
/// then, an equal tag may be a copy.
package struct Candidate: Sendable, Hashable {
    /// The address to dial.
    package let address: DeviceAddress
    /// The tag that it advertises; nil where it advertises the service without a payload.
    package let tag: AdvertisementTag?

    /// Makes a candidate from its two parts.
    package init(address: DeviceAddress, tag: AdvertisementTag?) {
        self.address = address
        self.tag = tag
    }
}

/// One advertisement of the service that an adapter heard.
package struct Sighting: Sendable, Hashable {
    /// The sender's address.
    package let address: DeviceAddress
    /// What the advertisement says about the service.
    package let advertisement: ServiceAdvertisement
    /// The signal strength in dBm; nil where the adapter does not report it.
    package let signal: Int?

    /// Makes a sighting.
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
