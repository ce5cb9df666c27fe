internal import BLESecChannelCore
internal import BLESecDiscovery

extension ChannelError {
    package init(discovery error: DiscoveryError) {
        let code: Code
        switch error.code {
        case .noService, .noAdapter, .adapterOff: code = .noSuchAdapter
        case .permission: code = .permission
        case .exhausted: code = .limitExceeded
        case .notFound, .unreachable, .collision: code = .noSuchPeer
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
