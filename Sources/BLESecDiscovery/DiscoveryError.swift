/// The error of discovery, publication and GATT operations.
package struct DiscoveryError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The kind of failure, for a program to compare.
    package struct Code: Sendable, Hashable, CustomStringConvertible {
        /// A stable word for the kind.
        package let description: String
        init(_ description: String) { self.description = description }

        /// bluetoothd, or the message bus, does not run, or libsystemd cannot be loaded.
        package static let noService = Code("noService")
        /// There is no adapter of that name, or none at all.
        package static let noAdapter = Code("noAdapter")
        /// The adapter is off, or blocked by rfkill.
        package static let adapterOff = Code("adapterOff")
        /// The system does not permit the operation.
        package static let permission = Code("permission")
        /// The adapter or bluetoothd has reached a limit.
        package static let exhausted = Code("exhausted")
        /// There is no such device, service or characteristic.
        package static let notFound = Code("notFound")
        /// The characteristic lacks the required property.
        package static let notSupported = Code("notSupported")
        /// The device could not be reached, or it disconnected.
        package static let unreachable = Code("unreachable")
        /// bluetoothd has broken off the attempt to connect, which collided with bluetoothd's own
        /// scan.
        package static let collision = Code("collision")
        /// bluetoothd connects to the device already, for another program.
        package static let inProgress = Code("inProgress")
        /// The device was paired over Bluetooth while it was dialed.
        package static let pairing = Code("pairing")
        /// The deadline passed.
        package static let timedOut = Code("timedOut")
        /// The task that waited was cancelled.
        package static let cancelled = Code("cancelled")
        /// The device sent an invalid value.
        package static let malformed = Code("malformed")
        /// The object was closed on this side.
        package static let closed = Code("closed")
        /// Anything else; see ``DiscoveryError/busError``.
        package static let failed = Code("failed")
    }

    /// The kind of failure, for a program to compare.
    package let code: Code
    /// The name of the D-Bus error; empty where there was none.
    package let busError: String
    /// The loader's message if libsystemd cannot be loaded; otherwise empty.
    package let loaderError: String
    /// What went wrong and what to do about it, in one line of text for people.
    package let reason: String

    init(_ code: Code, _ reason: String, busError: String = "", loaderError: String = "") {
        self.code = code
        self.reason = reason
        self.busError = busError
        self.loaderError = loaderError
    }

    /// The reason.
    package var description: String { reason }
}

extension DiscoveryError {
    /// Translates an error from bluetoothd.
    ///
    /// - Parameter action: what failed: it completes the sentence "cannot …".
    init(bus error: BusError, cannot action: String) {
        let (code, cause): (Code, String) =
            switch error.shortName {
            case _ where error.text.hasSuffix("le-connection-abort-by-local"):
                (.collision, "bluetoothd's own scan came in between")
            // The text of EALREADY, with which bluetoothd refuses a second attempt to connect over LE.
            case _ where error.text == "Operation already in progress":
                (.inProgress, "another program is connecting to it")
            case "Timeout", "TimedOut": (.timedOut, "no answer came in time")
            // The bus answers for bluetoothd if bluetoothd ends during the call.
            case "NoReply":
                (
                    .noService,
                    "bluetoothd ended before it answered (`systemctl start bluetooth`)"
                )
            case "Disconnected", "ServiceUnknown", "NameHasNoOwner":
                (.noService, "bluetoothd does not run (`systemctl start bluetooth`)")
            case "NotReady": (.adapterOff, "the adapter is off (`bluetoothctl power on`)")
            case "AccessDenied": (.permission, "the system's D-Bus policy does not allow it")
            case "NotPermitted" where error.text.hasPrefix("Maximum advertisements"):
                (
                    .exhausted,
                    "the adapter has no room for another advertisement: end a program that advertises"
                )
            // bluetoothd also passes on a refusal by the other device.
            case "NotAuthorized", "NotPermitted":
                (
                    .failed,
                    error.text.isEmpty ? "bluetoothd or the device does not permit it" : error.text
                )
            case "UnknownObject", "DoesNotExist": (.notFound, "it is not there any more")
            case "ConnectionAttemptFailed", "NotConnected", "NotAvailable":
                (.unreachable, "the device cannot be reached")
            case "": (error == .cancelled ? .cancelled : .failed, error.text)
            default: (.failed, error.text.isEmpty ? error.name : error.text)
            }
        self.init(code, "cannot \(action): \(cause)", busError: error.name)
    }

    static func noService(cannot action: String) -> DiscoveryError {
        DiscoveryError(
            .noService, "cannot \(action): bluetoothd does not run (`systemctl start bluetooth`)")
    }
}
