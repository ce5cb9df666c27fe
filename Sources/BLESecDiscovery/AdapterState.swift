/// Whether an adapter can be used, and if not, why.
public enum AdapterState: String, Sendable, Hashable {
    /// bluetoothd or the message bus does not run or answer, or libsystemd cannot be loaded.
    case noService = "no-service"
    /// There is no such adapter.
    case absent
    /// The adapter is off.
    case off
    /// The adapter is off and cannot be switched on, since rfkill blocks it.
    case blocked
    /// The adapter can be used.
    case on

    /// The error that explains the state and the remedy; nil when the adapter can be used.
    package func failure(of adapter: String?) -> DiscoveryError? {
        let name = adapter.map { "the Bluetooth adapter \($0)" } ?? "the Bluetooth adapter"
        return switch self {
        case .noService:
            Bus.loadFailure
                ?? DiscoveryError(
                    .noService, "bluetoothd does not run: `systemctl start bluetooth` starts it")
        case .absent:
            DiscoveryError(
                .noAdapter,
                adapter.map { "there is no Bluetooth adapter \($0)" }
                    ?? "this machine has no Bluetooth adapter, or its driver has not found it")
        case .off:
            DiscoveryError(.adapterOff, "\(name) is off: `bluetoothctl power on` switches it on")
        case .blocked:
            DiscoveryError(.adapterOff, "\(name) is blocked: `rfkill unblock bluetooth` frees it")
        case .on: nil
        }
    }
}
