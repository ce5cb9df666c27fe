/// What an advertisement says about one service, in any of the three forms of
/// ``AdvertisementCarrier``.
package enum ServiceAdvertisement: Sendable, Hashable {
    /// The advertisement carries a payload.
    case payload(AdvertisementPayload)
    /// The advertisement names the service, and has no payload that can be read, as with a phone's
    /// app in the background. The PSM has to be read over GATT.
    case serviceOnly

    /// The company identifier of manufacturer data that carry a payload: 0xFFFF, reserved for
    /// tests.
    package static let company: UInt16 = 0xFFFF

    /// The payload, where there is one.
    package var payload: AdvertisementPayload? {
        if case .payload(let payload) = self { payload } else { nil }
    }

    /// Reads what a scanner has collected about one device.
    ///
    /// Service data carry the UUID of their service, so they always count. A name or manufacturer
    /// data count under two conditions. The service's UUID must be advertised too, since any device
    /// may use such a name or this company identifier. And no other vendor-specific UUID may be
    /// advertised: a scanner keeps only one name for a device, and one value for each company, so
    /// with two services the name or the value may be that of the other service.
    ///
    /// - Returns: nil when the device does not advertise the service.
    package init?(
        of service: BluetoothUUID, uuids: [BluetoothUUID], name: String?,
        serviceData: [BluetoothUUID: [UInt8]], manufacturerData: [UInt16: [UInt8]]
    ) {
        let data = serviceData[service]
        let listsService = uuids.contains(service)
        guard data != nil || listsService else { return nil }
        var payload = data.flatMap { AdvertisementPayload($0) }
        if listsService, uuids.allSatisfy({ $0 == service || $0.isAssigned }) {
            payload = payload ?? manufacturerData[Self.company].flatMap { AdvertisementPayload($0) }
            payload = payload ?? name.flatMap { AdvertisementPayload(text: $0) }
        }
        self = payload.map { .payload($0) } ?? .serviceOnly
    }
}
