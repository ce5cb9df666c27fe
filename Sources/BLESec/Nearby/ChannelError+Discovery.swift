internal import BLESecChannelCore
internal import BLESecDiscovery

extension ChannelError {
    package init(discovery error: DiscoveryError) {
        let code: Code
        switch error.code {
        case .noService, .noAdapter, .adapterOff: code = .noSuchAdapter
        case .permission: code = .permission
        case .exhausted: code = .limitExceeded
        case .notFound, .unreachable: code = .noSuchPeer
        case .timedOut: code = .timedOut
        case .cancelled: code = .cancelled
        case .malformed, .notSupported: code = .protocolViolation
        case .closed: code = .closed
        default: code = .link
        }
        self.init(
            code, error.reason, underlying: error.busError.isEmpty ? nil : .dbus(error.busError))
    }
}
