internal import BLESecChannelCore
internal import BLESecLinks
internal import Glibc

/// Throws `configuration` with `reason` unless `condition` is true.
func require(_ condition: Bool, _ reason: @autoclosure () -> String) throws(ChannelError) {
    guard condition else { throw ChannelError(.configuration, reason()) }
}

extension ChannelError {
    package init(link error: LinkError) {
        let code: Code
        switch error.code {
        case .refused, .unreachable, .notFound: code = .noSuchPeer
        case .timedOut: code = .timedOut
        case .reset: code = .truncated
        // A kernel without Bluetooth support has no adapter either.
        case .unavailable where [EAFNOSUPPORT, EPROTONOSUPPORT].contains(error.systemError):
            code = .noSuchAdapter
        case .tooLarge, .unavailable: code = .limitExceeded
        case .addressInUse: code = .addressInUse
        case .permission: code = .permission
        case .invalidPSM, .invalidAddress: code = .configuration
        case .noSuchAdapter: code = .noSuchAdapter
        case .closed: code = .closed
        case .cancelled: code = .cancelled
        default: code = .link
        }
        self.init(
            code, error.reason,
            underlying: error.systemError == 0 ? nil : .errno(error.systemError))
    }
}
