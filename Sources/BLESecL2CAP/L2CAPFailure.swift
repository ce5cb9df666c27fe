internal import BLESecLinks
internal import Glibc

/// Explains kernel errors that have a special meaning on L2CAP.
enum L2CAPFailure {
    /// Returns the value of `body`, or throws its error as translated by `explain`.
    static func translate<Value>(
        _ body: @autoclosure () throws(SystemError) -> Value, _ explain: (SystemError) -> LinkError
    ) throws(LinkError) -> Value {
        do throws(SystemError) { return try body() } catch { throw explain(error) }
    }

    /// The code of an error, and what follows "cannot …: " in its reason.
    typealias Meaning = (code: LinkError.Code, text: String)

    static func explainDial(_ error: SystemError, _ address: L2CAPAddress) -> LinkError {
        let meaning: Meaning? =
            switch error.number {
            case ECONNREFUSED:
                (
                    .refused,
                    "nobody listens on PSM \(address.psm) there, or the device could not be reached"
                )
            case EHOSTUNREACH, EHOSTDOWN, ENETDOWN, ENODEV:
                (
                    .unreachable,
                    "no Bluetooth adapter that is on can dial it (`bluetoothctl power on`)"
                )
            case EACCES: (.permission, "the peer, or bluetoothd on either side, requires pairing")
            case EBUSY: (.unavailable, "the adapter is busy with another connection; try again")
            case EINVAL: noFreePSM
            default: nil
            }
        return explain(error, cannot: "connect to \(address)", meaning)
    }

    static func explainListen(_ error: SystemError, psm: PSM?) -> LinkError {
        let meaning: Meaning? =
            switch error.number {
            case EINVAL: noFreePSM
            case EADDRINUSE: (.addressInUse, "it is taken; PSM 0 picks a free one")
            case EACCES:
                (.permission, "a PSM below 0x80 needs CAP_NET_BIND_SERVICE; use 0x80 to 0xFF")
            default: nil
            }
        let name = psm.map { "PSM \($0)" } ?? "a dynamic PSM"
        return explain(error, cannot: "listen on \(name)", meaning)
    }

    /// Explains an error by `meaning`; if `meaning` is nil, by the usual meaning of its number.
    static func explain(
        _ error: SystemError, cannot action: String, _ meaning: Meaning? = nil
    ) -> LinkError {
        let isUnsupported = error.number == EAFNOSUPPORT || error.number == EPROTONOSUPPORT
        guard let meaning = meaning ?? (isUnsupported ? noBluetooth : nil) else {
            return LinkError(error, cannot: action)
        }
        return LinkError(
            meaning.code, "cannot \(action): \(meaning.text)", systemError: error.number)
    }

    /// The meaning of EINVAL. A PSM that is passed to the kernel is valid or 0, so EINVAL means
    /// that the kernel found no free PSM to bind to. A dialer's socket, too, is bound to a PSM of
    /// this machine.
    private static let noFreePSM: Meaning = (
        .unavailable,
        "all 128 dynamic PSMs of this machine are in use; close some channels"
    )

    private static let noBluetooth: Meaning = (
        .unavailable,
        "the kernel has no Bluetooth here (`modprobe bluetooth` loads it; "
            + "containers often may not use it)"
    )
}
