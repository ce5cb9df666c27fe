/// How a payload is carried.
public enum AdvertisementCarrier: String, Sendable, Hashable, CaseIterable {
    /// As the device's name, in eight characters, beside the service's UUID: what a phone can do
    /// too.
    case name
    /// As data of the service, which name the service by themselves.
    case serviceData = "service-data"
    /// As data of a manufacturer, beside the service's UUID.
    case manufacturerData = "manufacturer-data"
}
