/// Why something could not be found, published or read.
public struct DiscoveryError: Error, Sendable, Hashable, CustomStringConvertible {
    /// What kind of failure it was: what a program compares.
    public struct Code: Sendable, Hashable, CustomStringConvertible {
        /// A stable word for it.
        public let description: String

        init(_ description: String) {
            self.description = description
        }

        /// bluetoothd, or the message bus, does not run.
        public static let noService = Code("noService")
        /// No adapter of that name, or none at all.
        public static let noAdapter = Code("noAdapter")
        /// The adapter is off, or switched off by rfkill.
        public static let adapterOff = Code("adapterOff")
        /// The system does not allow it.
        public static let permission = Code("permission")
        /// The adapter or bluetoothd has no room for another one.
        public static let exhausted = Code("exhausted")
        /// No such device, service or characteristic.
        public static let notFound = Code("notFound")
        /// The characteristic does not do that: it lacks a property.
        public static let notSupported = Code("notSupported")
        /// The device could not be reached, or went away.
        public static let unreachable = Code("unreachable")
        /// The deadline passed.
        public static let timedOut = Code("timedOut")
        /// The task that waited was cancelled.
        public static let cancelled = Code("cancelled")
        /// What came from the device cannot be right.
        public static let malformed = Code("malformed")
        /// It was closed on this side.
        public static let closed = Code("closed")
        /// Anything else; ``DiscoveryError/busError`` tells.
        public static let failed = Code("failed")
    }

    /// What programs compare.
    public let code: Code
    /// The name of D-Bus's error; empty where there was none.
    public let busError: String
    /// What went wrong and what to do about it, in one line for people.
    public let reason: String

    init(_ code: Code, _ reason: String, busError: String = "") {
        self.code = code
        self.reason = reason
        self.busError = busError
    }

    /// The reason.
    public var description: String { reason }
}

extension DiscoveryError {
    /// What bluetoothd's error means.
    ///
    /// - Parameter doing: what was tried, for the sentence "cannot …".
    init(bus error: BusError, _ doing: String) {
        let (code, remedy): (Code, String) =
            switch error.shortName {
            case "NoReply", "Timeout", "TimedOut": (.timedOut, "no answer came in time")
            case "Disconnected", "ServiceUnknown", "NameHasNoOwner":
                (.noService, "bluetoothd does not run (`systemctl start bluetooth`)")
            case "NotReady": (.adapterOff, "the adapter is off (`bluetoothctl power on`)")
            case "AccessDenied", "NotAuthorized", "NotPermitted":
                (.permission, "the system's D-Bus policy does not allow it")
            case "UnknownObject", "DoesNotExist": (.notFound, "it is not there any more")
            case "ConnectionAttemptFailed", "NotConnected", "NotAvailable":
                (.unreachable, "the device cannot be reached")
            case "": (error == .cancelled ? .cancelled : .failed, error.text)
            default: (.failed, error.text.isEmpty ? error.name : error.text)
            }
        self.init(code, "cannot \(doing): \(remedy)", busError: error.name)
    }

    static func cancelled(_ doing: String) -> DiscoveryError {
        DiscoveryError(.cancelled, "cannot \(doing): the task that waited was cancelled")
    }

    static func noService(_ doing: String) -> DiscoveryError {
        DiscoveryError(
            .noService, "cannot \(doing): bluetoothd does not run (`systemctl start bluetooth`)")
    }

    static func timedOut(_ doing: String) -> DiscoveryError {
        DiscoveryError(.timedOut, "cannot \(doing): it took too long")
    }
}
