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
            let remoteAbort = BusError(name: name, text: "le-connection-abort-by-remote")
            #expect(DiscoveryError(bus: remoteAbort, cannot: "connect").code != .collision)
        }
    }

    @Test(
        "a refusal by the D-Bus policy, a full adapter, and a refusal by the device are told apart",
        arguments: [
            (
                "org.freedesktop.DBus.Error.AccessDenied", "Rejected send message",
                ChannelError.Code.permission, "the system's D-Bus policy does not allow it"
            ),
            (
                "org.bluez.Error.NotPermitted", "Maximum advertisements reached", .limitExceeded,
                "the adapter has no room for another advertisement: end a program that advertises"
            ),
            (
                "org.bluez.Error.Failed", "Operation already in progress", .noSuchPeer,
                "another program is connecting to it"
            ),
            ("org.bluez.Error.NotPermitted", "Not paired", .link, "Not paired"),
            (
                "org.bluez.Error.NotAuthorized", "", .link,
                "bluetoothd or the device does not permit it"
            ),
        ])
    func refusals(_ name: String, _ text: String, _ code: ChannelError.Code, _ cause: String) {
        let error = DiscoveryError(bus: BusError(name: name, text: text), cannot: "act")
        #expect(error.reason == "cannot act: \(cause)")
        #expect(error.busError == name)
        #expect(ChannelError(discovery: error).code == code)
    }

    @Test("a bluetoothd that ends during a call is told apart from one that answers too late")
    func noAnswer() {
        let noReply = BusError(
            name: "org.freedesktop.DBus.Error.NoReply",
            text: "Message recipient disconnected from message bus without replying")
        let error = DiscoveryError(bus: noReply, cannot: "act")
        #expect(error.code == .noService)
        #expect(
            error.reason
                == "cannot act: bluetoothd ended before it answered (`systemctl start bluetooth`)")
        let timeout = DiscoveryError(bus: .timedOut, cannot: "act")
        #expect(timeout.code == .timedOut)
        #expect(timeout.reason == "cannot act: no answer came in time")
    }

    @Test("a channel error has the name of the D-Bus error, or the loader's message, as its cause")
    func causes() {
        let busFailure = DiscoveryError(.noService, "bus", busError: "org.bluez.Error.Failed")
        #expect(ChannelError(discovery: busFailure).underlying == .dbus("org.bluez.Error.Failed"))
        let loaderFailure = DiscoveryError(.noService, "loader", loaderError: "file too short")
        #expect(ChannelError(discovery: loaderFailure).underlying == .loader("file too short"))
        #expect(ChannelError(discovery: DiscoveryError(.closed, "none")).underlying == nil)
    }
}
