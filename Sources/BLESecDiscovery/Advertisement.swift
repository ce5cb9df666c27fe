/// What this machine advertises: one service with its payload.
package struct Advertisement: Sendable, Hashable {
    package var service: BluetoothUUID
    /// The payload that goes with the service.
    package var payload: AdvertisementPayload
    /// How the payload is carried.
    package var carrier: AdvertisementCarrier

    package init(
        service: BluetoothUUID, payload: AdvertisementPayload,
        carrier: AdvertisementCarrier = .name
    ) {
        self.service = service
        self.payload = payload
        self.carrier = carrier
    }

    /// The properties of `org.bluez.LEAdvertisement1`.
    ///
    /// `Discoverable` is set, since a scanner that runs BlueZ may ignore a device that is not
    /// discoverable. Service data contain the 128-bit UUID, and leave no room for
    /// `ServiceUUIDs`.
    var properties: [String: BusValue] {
        var properties: [String: BusValue] = [
            "Type": .string("peripheral"), "Discoverable": .bool(true),
        ]
        if carrier != .serviceData { properties["ServiceUUIDs"] = .strings([service.description]) }
        switch carrier {
        case .name: properties["LocalName"] = .string(payload.text)
        case .serviceData:
            properties["ServiceData"] = .properties([service.description: .bytes(payload.bytes)])
        case .manufacturerData:
            let data = BusValue.variant(.bytes(payload.bytes))
            properties["ManufacturerData"] = .array(
                [.entry(.uint16(ServiceAdvertisement.company), data)], of: "{qv}")
        }
        return properties
    }
}
