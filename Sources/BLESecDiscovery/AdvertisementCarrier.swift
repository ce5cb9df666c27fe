/// How an advertisement carries its payload.
public enum AdvertisementCarrier: String, Sendable, Hashable, CaseIterable {
    /// As the device's name, in eight characters, with the service's UUID. A phone can advertise
    /// this form too.
    case name
    /// As service data, which contain the service's UUID.
    case serviceData = "service-data"
    /// As manufacturer data, with the service's UUID.
    case manufacturerData = "manufacturer-data"
}
