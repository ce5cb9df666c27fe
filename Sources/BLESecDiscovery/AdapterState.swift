/// Whether an adapter can be used, as bluetoothd tells.
public enum AdapterState: String, Sendable, Hashable {
    /// bluetoothd, or the message bus, does not run.
    case noService = "no-service"
    /// There is no such adapter.
    case absent
    /// It is there and off.
    case off
    /// It is off and cannot be switched on: rfkill blocks it.
    case blocked
    /// It can be used.
    case on

    /// What is wrong, and what to do; nil when nothing is.
    package func failure(of adapter: String?) -> DiscoveryError? {
        let name = adapter.map { "the Bluetooth adapter \($0)" } ?? "the Bluetooth adapter"
        return switch self {
        case .noService:
            DiscoveryError(
                .noService, "bluetoothd does not run: `systemctl start bluetooth` starts it")
        case .absent:
            DiscoveryError(
                .noAdapter,
                adapter.map { "there is no Bluetooth adapter \($0)" }
                    ?? "this machine has no Bluetooth adapter, or its driver has not found it")
        case .off:
            DiscoveryError(
                .adapterOff, "\(name) is off: `bluetoothctl power on` switches it on")
        case .blocked:
            DiscoveryError(
                .adapterOff, "\(name) is blocked: `rfkill unblock bluetooth` frees it")
        case .on: nil
        }
    }
}
