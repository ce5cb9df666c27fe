internal import BLESecLinks
internal import Glibc

/// What D-Bus, or who answered on it, says went wrong.
struct BusError: Error, Sendable, Hashable {
    /// As in `org.bluez.Error.NotReady`; empty where there is none.
    let name: String
    /// In words.
    let text: String

    init(name: String, text: String) {
        self.name = name
        self.text = text
    }

    /// From a negative error number.
    init(_ number: Int32, _ doing: String) {
        let error = LinkError(SystemError(number < 0 ? -number : number), doing)
        self.init(name: "", text: error.reason)
    }

    static func check(_ result: Int32, _ doing: String) throws(BusError) {
        if result < 0 { throw BusError(result, doing) }
    }

    /// The last part of the name: `NotReady`.
    var shortName: String { String(name.split(separator: ".").last ?? "") }

    static let timedOut = BusError(
        name: "org.freedesktop.DBus.Error.NoReply", text: "no answer came in time")
    static let cancelled = BusError(name: "", text: "the call was given up")
    static let ended = BusError(
        name: "org.freedesktop.DBus.Error.Disconnected", text: "the connection to D-Bus ended")
}
