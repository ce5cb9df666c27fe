/// What an advertisement says about one service, whichever of the three ways it takes.
public enum ServiceAdvertisement: Sendable, Hashable {
    /// It carries a payload.
    case payload(AdvertisementPayload)
    /// It names the service and nothing else that is understood: a phone's app in the background. The
    /// rest has to be asked over GATT.
    case serviceOnly

    /// How a payload is carried.
    public enum Carrier: String, Sendable, Hashable, CaseIterable {
        /// As the device's name, in eight characters, beside the service's UUID: what a phone can do
        /// too.
        case name
        /// As data of the service, which name the service by themselves.
        case serviceData = "service-data"
        /// As data of a manufacturer, beside the service's UUID.
        case manufacturerData = "manufacturer-data"
    }

    /// The company whose manufacturer data carry a payload: the one that is set aside for tests.
    public static let company: UInt16 = 0xFFFF

    /// The payload, where there is one.
    public var payload: AdvertisementPayload? {
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
    public init?(
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
