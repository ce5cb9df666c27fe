package import BLESecL2CAP

/// Where a device can be dialed: its address and the kind of it. Proves nothing.
package struct DeviceAddress: Sendable, Hashable, CustomStringConvertible {
    /// The six bytes.
    package let address: BluetoothAddress
    /// Which kind they are.
    package let type: AddressType

    /// Puts the two together.
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

    /// As in `AA:BB:CC:DD:EE:FF (random)`, which is also how links print their peers.
    package var description: String { "\(address) (\(type.rawValue))" }
}

/// A peer as far as advertisements tell one from another: an address and a tag.
///
/// Two candidates are one peer only once the same identity was proven behind both; a tag that is the
/// same is a copy until then.
package struct Candidate: Sendable, Hashable {
    /// Where it is dialed.
    package let address: DeviceAddress
    /// What it calls itself; nil where it advertises the service and no payload.
    package let tag: AdvertisementTag?

    /// Puts the two together.
    package init(address: DeviceAddress, tag: AdvertisementTag?) {
        self.address = address
        self.tag = tag
    }
}

/// One advertisement of the service that was heard.
package struct Sighting: Sendable, Hashable {
    /// Who sent it.
    package let address: DeviceAddress
    /// What it says.
    package let advertisement: ServiceAdvertisement
    /// How strong it was, in dBm; nil where the adapter does not tell.
    package let signal: Int?

    /// Puts one together.
    package init(address: DeviceAddress, advertisement: ServiceAdvertisement, signal: Int?) {
        self.address = address
        self.advertisement = advertisement
        self.signal = signal
    }

    /// The candidate that it speaks for.
    package var candidate: Candidate {
        Candidate(address: address, tag: advertisement.payload?.tag)
    }
}
