import Testing

@testable import BLESec
@testable import BLESecDiscovery

@Suite struct DiscoveryErrorTests {
    @Test("if bluetoothd aborted its own connection attempt, the error's code is `collision`")
    func collision() {
        for name in ["org.bluez.Error.Failed", "org.bluez.Error.ConnectionAttemptFailed"] {
            let text = "le-connection-abort-by-local"
            let error = DiscoveryError(bus: BusError(name: name, text: text), cannot: "connect")
            #expect(error.code == .collision)
            #expect(ChannelError(discovery: error).code == .noSuchPeer)
            let other = BusError(name: name, text: "le-connection-abort-by-remote")
            #expect(DiscoveryError(bus: other, cannot: "connect").code != .collision)
        }
    }

    @Test("a channel error has the name of the D-Bus error, or the loader's message, as its cause")
    func causes() {
        let byBus = DiscoveryError(.noService, "bus", busError: "org.bluez.Error.Failed")
        #expect(ChannelError(discovery: byBus).underlying == .dbus("org.bluez.Error.Failed"))
        let byLoader = DiscoveryError(.noService, "loader", loaderError: "file too short")
        #expect(ChannelError(discovery: byLoader).underlying == .loader("file too short"))
        #expect(ChannelError(discovery: DiscoveryError(.closed, "none")).underlying == nil)
    }
}
