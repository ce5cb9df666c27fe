import Testing

@testable import BLESecDiscovery

@Suite("What bluetoothd has answered to a request")
struct RegistrationTests {
    private static let error = DiscoveryError(.failed, "cannot advertise on hci0: Failed")

    @Test("a refused request counts as refused, also while it is sent again, until it is granted")
    func refusal() {
        var entry = Registrations.Entry(request: .advertisement("/a", on: AdapterName("hci0")))
        #expect(entry.refusal == nil)
        entry.state = .refused(Self.error)
        for state: Registrations.State in [.lapsed, .asking, .dropped, .paused] {
            entry.state = state
            #expect(entry.refusal == Self.error)
        }
        entry.state = .granted
        #expect(entry.refusal == nil)
        entry.state = .lapsed
        #expect(entry.refusal == nil)
    }

    @Test("a request that bluetoothd drops on its own is sent again, and does not count as refused")
    func dropped() {
        var entry = Registrations.Entry(request: .advertisement("/a", on: AdapterName("hci0")))
        entry.state = .granted
        entry.retry()
        guard case .granted = entry.state else {
            Issue.record("a granted request is sent again")
            return
        }
        entry.markDropped()
        #expect(entry.refusal == nil)
        entry.retry()
        guard case .lapsed = entry.state else {
            Issue.record("a dropped request is not sent again")
            return
        }
    }
}
