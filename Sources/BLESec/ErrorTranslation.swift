internal import BLESecChannelCore
internal import BLESecDiscovery
internal import BLESecLinks
internal import Glibc

// The errors of links and of discovery as channel errors.
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

    /// The error of an attempt to listen. Here `notFound` does not mean that a peer is missing: there
    /// is no folder in which to make the socket's file.
    package init(listening error: LinkError) {
        self.init(link: error)
        if error.code == .notFound { code = .cannotCreate }
    }

    package init(discovery error: DiscoveryError) {
        let code: Code
        switch error.code {
        case .noService, .noAdapter, .adapterOff: code = .noSuchAdapter
        case .permission: code = .permission
        case .exhausted: code = .limitExceeded
        case .notFound, .unreachable, .collision, .inProgress: code = .noSuchPeer
        case .timedOut: code = .timedOut
        case .cancelled: code = .cancelled
        case .malformed, .notSupported: code = .protocolViolation
        case .closed: code = .closed
        default: code = .link
        }
        var underlying: Underlying?
        if !error.busError.isEmpty { underlying = .dbus(error.busError) }
        if !error.loaderError.isEmpty { underlying = .loader(error.loaderError) }
        self.init(code, error.reason, underlying: underlying)
    }
}
