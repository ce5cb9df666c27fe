/// What went wrong with a channel, for programs in ``code`` and for people in ``reason``.
///
/// Two errors are equal when their codes are equal. `reason` never holds a secret, and the peer
/// never learns it. What the other side can tell apart is in SECURITY.md, "What a failure shows".
public struct ChannelError: Error, Sendable {
    /// What programs compare. New codes may come, so a `switch` over them needs a `default`.
    public struct Code: RawRepresentable, Hashable, Sendable {
        /// The code's stable name, as it appears in JSON reports.
        public var rawValue: String

        /// Makes a code, for an engine or link of one's own.
        public init(rawValue: String) { self.rawValue = rawValue }
    }

    /// The underlying cause in the terms of whoever reported it.
    public enum Underlying: Hashable, Sendable {
        /// A system call's `errno`.
        case errno(Int32)
        /// OpenSSL's packed error code and its text.
        case openSSL(code: UInt, text: String)
        /// A D-Bus error name.
        case dbus(String)
    }

    /// What programs compare.
    public var code: Code
    /// One sentence for people: what went wrong and, where there is one, the remedy.
    public var reason: String
    /// How far the channel had come.
    public var phase: ChannelPhase?
    /// The underlying cause, if the channel layer was not the one to notice.
    public var underlying: Underlying?
    /// Who the peer claimed to be that the trust policy refused, with the code `untrusted`.
    public var claimed: ClaimedIdentity?

    /// Makes an error.
    public init(
        _ code: Code, _ reason: String, phase: ChannelPhase? = nil, underlying: Underlying? = nil
    ) {
        self.code = code
        self.reason = reason
        self.phase = phase
        self.underlying = underlying
    }

    /// The same error, with the phase filled in where it was not known yet.
    public func during(_ phase: ChannelPhase) -> ChannelError {
        var error = self
        if error.phase == nil { error.phase = phase }
        return error
    }
}

extension ChannelError: Equatable {
    /// Equal when the codes are.
    public static func == (left: ChannelError, right: ChannelError) -> Bool {
        left.code == right.code
    }
}

extension ChannelError: CustomStringConvertible {
    /// The reason.
    public var description: String { reason }
}

extension ChannelError.Code {
    /// The configuration contradicts itself or names something this build does not have.
    public static let configuration = Self(rawValue: "configuration")
    /// A key, a certificate or a fingerprint cannot be read.
    public static let badKey = Self(rawValue: "bad-key")
    /// A file does not exist.
    public static let noSuchFile = Self(rawValue: "no-such-file")
    /// A file could not be made.
    public static let cannotCreate = Self(rawValue: "cannot-create")
    /// The operating system denies it.
    public static let permission = Self(rawValue: "permission")
    /// No device or process answers at the address.
    public static let noSuchPeer = Self(rawValue: "no-such-peer")
    /// No such Bluetooth adapter, or it is switched off.
    public static let noSuchAdapter = Self(rawValue: "no-such-adapter")
    /// The local address, path or PSM is taken.
    public static let addressInUse = Self(rawValue: "address-in-use")
    /// The peer refused, without saying why.
    public static let refused = Self(rawValue: "refused")
    /// The peer has too many channels or handshakes.
    public static let busy = Self(rawValue: "busy")
    /// The two sides share no protocol.
    public static let noCommonProtocol = Self(rawValue: "no-common-protocol")
    /// The local trust policy refused the peer.
    public static let untrusted = Self(rawValue: "untrusted")
    /// A handshake message or a record failed authentication.
    public static let authenticationFailed = Self(rawValue: "authentication-failed")
    /// The handshake ended in direct mode, and the peer did not send the message that proves its key.
    public static let unproven = Self(rawValue: "unproven")
    /// The peer broke the protocol.
    public static let protocolViolation = Self(rawValue: "protocol-violation")
    /// The peer is this very process, or holds this very key.
    public static let selfConnection = Self(rawValue: "self-connection")
    /// A deadline passed.
    public static let timedOut = Self(rawValue: "timed-out")
    /// The link ended before the peer said that it had sent everything.
    public static let truncated = Self(rawValue: "truncated")
    /// The peer ended properly, but the fate of what was sent to it is unknown.
    public static let unacknowledged = Self(rawValue: "unacknowledged")
    /// The channel was closed on this side.
    public static let closed = Self(rawValue: "closed")
    /// The task that waited was cancelled.
    public static let cancelled = Self(rawValue: "cancelled")
    /// A bound on memory, messages or records was reached.
    public static let limitExceeded = Self(rawValue: "limit-exceeded")
    /// The link failed in a way that has no code of its own; see ``ChannelError/underlying``.
    public static let link = Self(rawValue: "link")
    /// Something inside failed that should not: randomness, memory, a library.
    public static let `internal` = Self(rawValue: "internal")
}
