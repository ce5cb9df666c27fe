internal import BLESecLinks

/// Something that bluetoothd does for this process until the registration ends. Releasing the last
/// reference also ends the registration.
package final class Registration: Sendable {
    let token: UInt64
    let registrations: Registrations
    private let loop: EventLoop

    init(_ token: UInt64, of registrations: Registrations, loop: EventLoop) {
        self.token = token
        self.registrations = registrations
        self.loop = loop
    }

    deinit {
        Task(executorPreference: loop) { [registrations, token] in await registrations.end(token) }
    }

    /// Ends the registration in this process, and then in bluetoothd. A second call does nothing.
    package func end() async { await registrations.end(token) }
}
