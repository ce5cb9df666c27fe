package import BLESecChannelCore

/// The exit statuses of the tools, with the numbers of `sysexits.h`.
package enum ExitStatus: Int32, Sendable, CaseIterable {
    case success = 0
    /// Nothing failed, but a comparison found that something became worse. `diff` also uses 1 for a
    /// difference.
    case becameWorse = 1
    case usage = 64
    case badData = 65
    case noInput = 66
    case noPeer = 68
    case refused = 69
    case software = 70
    case cannotCreate = 73
    case inputOutput = 74
    case timedOut = 75
    case protocolError = 76
    case untrusted = 77
    // After a signal, the status is 128 plus the number of the signal.
    case hungUp = 129
    case interrupted = 130
    case terminated = 143

    /// The exit status for an error. Only this function maps error codes to exit statuses.
    package init(_ error: ChannelError) {
        self =
            switch error.code {
            case .becameWorse: .becameWorse
            case .usage, .configuration: .usage
            case .badKey, .badData, .fileChanged: .badData
            case .noSuchFile: .noInput
            case .noSuchPeer, .noSuchAdapter: .noPeer
            case .refused, .busy, .noCommonProtocol: .refused
            case .cannotCreate, .addressInUse, .noSpace: .cannotCreate
            case .inputOutput, .link, .store: .inputOutput
            case .timedOut, .mayBePaired: .timedOut
            case .authenticationFailed, .unproven, .protocolViolation, .truncated, .unacknowledged,
                .limitExceeded, .closed, .cancelled, .incomplete, .streamReset,
                .sessionLost:
                .protocolError
            case .untrusted, .permission, .selfConnection: .untrusted
            case .hungUp: .hungUp
            case .interrupted: .interrupted
            case .terminated: .terminated
            default: .software
            }
    }

    /// The description of the status in a manual page.
    package var meaning: String {
        switch self {
        case .success: "Everything was done."
        case .becameWorse: "What was compared has become worse."
        case .usage: "The command line is wrong."
        case .badData: "A key or another input is invalid."
        case .noInput: "A file does not exist or cannot be read."
        case .noPeer: "No such peer, or no such Bluetooth adapter."
        case .refused: "The peer refused, is busy, or shares no protocol."
        case .software: "An internal error: something failed that should not fail."
        case .cannotCreate: "A file cannot be created, or an address is taken."
        case .inputOutput: "Standard input, standard output, the link or a store failed."
        case .timedOut: "A deadline passed."
        case .protocolError:
            "The protocol was broken, the peer did not prove its key, a limit was reached, or the "
                + "channel ended before both sides had everything."
        case .untrusted: "The peer is not trusted, or the system denies permission."
        case .hungUp: "SIGHUP ended the command."
        case .interrupted: "SIGINT ended the command."
        case .terminated: "SIGTERM ended the command."
        }
    }
}

/// Errors that only the tools report.
extension ChannelError.Code {
    /// A comparison found that something became worse. The output has already reported it.
    package static let becameWorse = Self(rawValue: "worse")
    /// The command line is wrong.
    package static let usage = Self(rawValue: "usage")
    /// An input is invalid.
    package static let badData = Self(rawValue: "bad-data")
    /// Standard input or output failed.
    package static let inputOutput = Self(rawValue: "input-output")
    /// SIGHUP was received.
    package static let hungUp = Self(rawValue: "hung-up")
    /// SIGINT was received.
    package static let interrupted = Self(rawValue: "interrupted")
    /// SIGTERM was received.
    package static let terminated = Self(rawValue: "terminated")
}

extension ChannelError {
    package static func usage(_ reason: String) -> ChannelError { ChannelError(.usage, reason) }
}
