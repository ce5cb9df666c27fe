/// What an advertisement says about one service, whichever of the three ways it takes.
package enum ServiceAdvertisement: Sendable, Hashable {
    /// It carries a payload.
    case payload(AdvertisementPayload)
    /// It names the service and nothing else that is understood: a phone's app in the background. The
    /// rest has to be asked over GATT.
    case serviceOnly

    /// The company whose manufacturer data carry a payload: the one that is set aside for tests.
    package static let company: UInt16 = 0xFFFF

    /// The payload, where there is one.
    package var payload: AdvertisementPayload? {
        if case .payload(let payload) = self { payload } else { nil }
    }

    /// Reads what a scanner has collected of one device.
    ///
    /// Service data speak for their service by themselves. A name and a manufacturer's data mean
    /// something only beside the service's UUID, since anyone may use the same; and only where no
    /// other service of someone's own is offered from the same address, since a scanner keeps one
    /// name and one company's data of a device, and those may be the other one's.
    ///
    /// - Returns: nil when none of it is about the service.
    package init?(
        of service: BluetoothUUID, uuids: [BluetoothUUID], name: String?,
        serviceData: [BluetoothUUID: [UInt8]], manufacturerData: [UInt16: [UInt8]]
    ) {
        let data = serviceData[service]
        let isNamed = uuids.contains(service)
        guard data != nil || isNamed else { return nil }
        let isAlone = uuids.allSatisfy { $0 == service || $0.isAssigned }
        if let payload = data.flatMap({ AdvertisementPayload($0) }) {
            self = .payload(payload)
        } else if isNamed, isAlone,
            let payload = manufacturerData[Self.company].flatMap({ AdvertisementPayload($0) })
        {
            self = .payload(payload)
        } else if isNamed, isAlone, let payload = name.flatMap({ AdvertisementPayload(text: $0) }) {
            self = .payload(payload)
        } else {
            self = .serviceOnly
        }
    }
}
