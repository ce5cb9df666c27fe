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

    /// Why bluetoothd has refused the registration when it was repeated, for example after the
    /// adapter was off; nil if bluetoothd has not refused it, or grants it again. After a refusal,
    /// the request is repeated until bluetoothd grants it.
    package var refusal: DiscoveryError? { get async { await registrations.refusal(of: token) } }

    /// If `wasRefused` is false, waits until ``refusal`` becomes an error; otherwise, until it
    /// becomes nil. Throws once the registration has ended, or the task is cancelled.
    package func waitForChange(wasRefused: Bool) async throws(DiscoveryError) {
        try await registrations.waitForChange(of: token, wasRefused: wasRefused)
    }

    deinit {
        Task(executorPreference: loop) { [registrations, token] in await registrations.end(token) }
    }

    /// Ends the registration in this process, and then in bluetoothd. A second call does nothing.
    package func end() async { await registrations.end(token) }
}
