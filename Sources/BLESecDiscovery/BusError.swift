internal import BLESecLinks
internal import Glibc

/// An error from D-Bus, or from the service that answered.
struct BusError: Error, Sendable, Hashable {
    /// The D-Bus name of the error, such as `org.bluez.Error.NotReady`; empty where there is none.
    let name: String
    let text: String
}

extension BusError {
    /// Makes an error from an `errno` value, positive or negative.
    init(_ number: Int32, cannot action: String) {
        self.init(name: "", text: LinkError(SystemError(abs(number)), cannot: action).reason)
    }

    static func check(_ result: Int32, cannot action: String) throws(BusError) {
        if result < 0 { throw BusError(result, cannot: action) }
    }

    /// The last part of the name, such as `NotReady`.
    var shortName: String { String(name.split(separator: ".").last ?? "") }

    /// No answer before this process's own deadline. The bus itself answers with `NoReply` when the
    /// program that was called ends, so this error has another name.
    static let timedOut = BusError(
        name: "org.freedesktop.DBus.Error.Timeout", text: "no answer came in time")
    static let cancelled = BusError(name: "", text: "the call was cancelled")
    static let unknownObject = BusError(
        name: "org.freedesktop.DBus.Error.UnknownObject", text: "no such object")
    static let ended = BusError(
        name: "org.freedesktop.DBus.Error.Disconnected", text: "the connection to D-Bus ended")
}
