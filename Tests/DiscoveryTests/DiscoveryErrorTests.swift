import Testing

@testable import BLESec
@testable import BLESecDiscovery

@Suite struct DiscoveryErrorTests {
    @Test("a channel error has the message of D-Bus or of the loader as its cause")
    func causes() {
        let byBus = DiscoveryError(.noService, "bus", busError: "org.bluez.Error.Failed")
        #expect(ChannelError(discovery: byBus).underlying == .dbus("org.bluez.Error.Failed"))
        let byLoader = DiscoveryError(.noService, "loader", loaderError: "file too short")
        #expect(ChannelError(discovery: byLoader).underlying == .loader("file too short"))
        #expect(ChannelError(discovery: DiscoveryError(.closed, "none")).underlying == nil)
    }
}
