/// What this machine advertises: one service with its payload.
package struct Advertisement: Sendable, Hashable {
    /// The service.
    package var service: BluetoothUUID
    /// What is said of it.
    package var payload: AdvertisementPayload
    /// How.
    package var carrier: AdvertisementCarrier

    /// Puts one together.
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
    /// Discoverable, since a scanner that runs BlueZ may pass over who is not. Service data of 128 bits
    /// fill an advertisement, so nothing stands beside them.
    var properties: [String: BusValue] {
        var properties: [String: BusValue] = [
            "Type": .string("peripheral"), "Discoverable": .bool(true),
        ]
        switch carrier {
        case .name:
            properties["ServiceUUIDs"] = .strings([service.description])
            properties["LocalName"] = .string(payload.text)
        case .serviceData:
            properties["ServiceData"] = .properties([service.description: .bytes(payload.bytes)])
        case .manufacturerData:
            properties["ServiceUUIDs"] = .strings([service.description])
            let data = BusValue.variant(.bytes(payload.bytes))
            properties["ManufacturerData"] = .array(
                [.entry(.uint16(ServiceAdvertisement.company), data)], of: "{qv}")
        }
        return properties
    }
}
