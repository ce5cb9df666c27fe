internal import BLESecLinks
internal import Glibc

/// Explains kernel errors that have a special meaning on L2CAP.
enum L2CAPFailure {
    /// Explains errors of operations other than dialing and listening.
    static func explain(_ error: SystemError, _ doing: String) -> LinkError {
        guard error.number == EAFNOSUPPORT || error.number == EPROTONOSUPPORT else {
            return LinkError(error, doing)
        }
        return LinkError(
            .unavailable,
            "cannot \(doing): the kernel has no Bluetooth here (`modprobe bluetooth` loads it; "
                + "containers often may not use it)",
            systemError: error.number)
    }

    static func explainDial(_ error: SystemError, _ address: L2CAPAddress) -> LinkError {
        let doing = "connect to \(address)"
        let number = error.number
        return switch number {
        case ECONNREFUSED:
            LinkError(
                .refused,
                "cannot \(doing): nobody listens on PSM \(address.psm) there, or the device could "
                    + "not be reached", systemError: number)
        case EHOSTUNREACH, EHOSTDOWN, ENETDOWN, ENODEV:
            LinkError(
                .unreachable,
                "cannot \(doing): no Bluetooth adapter that is on can dial it "
                    + "(`bluetoothctl power on`)", systemError: number)
        case EACCES:
            LinkError(
                .permission,
                "cannot \(doing): the peer, or bluetoothd on either side, asks to pair first",
                systemError: number)
        case EBUSY:
            LinkError(
                .unavailable,
                "cannot \(doing): the adapter is busy with another connection; try again",
                systemError: number)
        case EINVAL: exhausted(doing)
        default: explain(error, doing)
        }
    }

    static func explainListen(_ error: SystemError, psm: PSM?) -> LinkError {
        let doing = "listen on \(psm.map { "PSM \($0)" } ?? "a dynamic PSM")"
        let number = error.number
        return switch number {
        case EINVAL: exhausted(doing)
        case EADDRINUSE:
            LinkError(
                .addressInUse, "cannot \(doing): it is taken; PSM 0 picks a free one",
                systemError: number)
        case EACCES:
            LinkError(
                .permission,
                "cannot \(doing): below 0x80 it takes CAP_NET_BIND_SERVICE; use 0x80 to 0xFF",
                systemError: number)
        default: explain(error, doing)
        }
    }

    /// EINVAL for a valid PSM: the kernel found no free PSM to bind to, which a dialer needs too.
    private static func exhausted(_ doing: String) -> LinkError {
        LinkError(
            .unavailable,
            "cannot \(doing): all 128 dynamic PSMs of this machine are in use; close some channels",
            systemError: EINVAL)
    }
}
