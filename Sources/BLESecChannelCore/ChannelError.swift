/// The error of a channel: ``code`` is for programs, ``reason`` for people.
///
/// Errors are equal if their codes are equal. `reason` contains no secret and is never sent to the
/// peer. SECURITY.md, "What a failure shows", lists which failures the peer can distinguish.
public struct ChannelError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The kind of error, for programs. New codes may be added: a `switch` needs a `default`.
    public struct Code: RawRepresentable, Hashable, Sendable {
        /// The code's stable name, as it appears in JSON reports.
        public var rawValue: String

        /// Makes a code, for example for the errors of an app's own trust store.
        public init(rawValue: String) { self.rawValue = rawValue }
    }

    /// The underlying cause, as the lower layer reported it.
    public enum Underlying: Hashable, Sendable {
        /// A system call's `errno`.
        case errno(Int32)
        /// OpenSSL's packed error code and its text.
        case openSSL(code: UInt, text: String)
        /// A D-Bus error name.
        case dbus(String)
        /// The dynamic loader's message about a library that it could not load.
        case loader(String)
    }

    /// The kind of error.
    public var code: Code
    /// One sentence for people: what went wrong and, if there is one, the remedy.
    public var reason: String
    /// The phase that the channel was in.
    public var phase: ChannelPhase?
    /// The underlying cause, if a lower layer detected the failure.
    public var underlying: Underlying?
    /// With the code `untrusted`: the identity that the refused peer claimed. With `refused` and
    /// `busy`, after the handshake: the identity claimed by the peer that refused this side.
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

    /// A copy of this error. If the error has no phase, the copy has `phase`.
    public func during(_ phase: ChannelPhase) -> ChannelError {
        var error = self
        if error.phase == nil { error.phase = phase }
        return error
    }

    /// Equal if the codes are equal.
    public static func == (left: ChannelError, right: ChannelError) -> Bool {
        left.code == right.code
    }

    /// The reason.
    public var description: String { reason }
}

extension ChannelError.Code {
    /// The configuration contradicts itself, or names something that this build lacks.
    public static let configuration = Self(rawValue: "configuration")
    /// A key, a certificate, a fingerprint or a revocation list cannot be read or used.
    public static let badKey = Self(rawValue: "bad-key")
    /// A file does not exist.
    public static let noSuchFile = Self(rawValue: "no-such-file")
    /// A file could not be made.
    public static let cannotCreate = Self(rawValue: "cannot-create")
    /// The operating system does not permit the operation.
    public static let permission = Self(rawValue: "permission")
    /// No device or process answers at the address.
    public static let noSuchPeer = Self(rawValue: "no-such-peer")
    /// No such Bluetooth adapter, or it is switched off.
    public static let noSuchAdapter = Self(rawValue: "no-such-adapter")
    /// The local address, path or PSM is already in use.
    public static let addressInUse = Self(rawValue: "address-in-use")
    /// The peer refused and gave no reason.
    public static let refused = Self(rawValue: "refused")
    /// The peer, or this side's listener, has too many channels or handshakes. Or, when files are
    /// sent: the same offer is being received already, or is in use there.
    public static let busy = Self(rawValue: "busy")
    /// The two sides share no protocol.
    public static let noCommonProtocol = Self(rawValue: "no-common-protocol")
    /// The local trust policy refused the peer.
    public static let untrusted = Self(rawValue: "untrusted")
    /// A handshake message or a record failed authentication.
    public static let authenticationFailed = Self(rawValue: "authentication-failed")
    /// In direct mode: after the handshake, the peer did not send the message that proves its key.
    public static let unproven = Self(rawValue: "unproven")
    /// The peer broke the protocol.
    public static let protocolViolation = Self(rawValue: "protocol-violation")
    /// The peer is this device itself, or holds this side's own key.
    public static let selfConnection = Self(rawValue: "self-connection")
    /// A deadline passed.
    public static let timedOut = Self(rawValue: "timed-out")
    /// The link ended before the peer's `end` arrived, or the `end` says that the peer has not sent
    /// everything.
    public static let truncated = Self(rawValue: "truncated")
    /// The channel ended before all acknowledgements: the fate of a sent message is unknown, or the
    /// peer does not know that this side has taken all messages.
    public static let unacknowledged = Self(rawValue: "unacknowledged")
    /// The channel was closed on this side.
    public static let closed = Self(rawValue: "closed")
    /// The waiting task was cancelled.
    public static let cancelled = Self(rawValue: "cancelled")
    /// A limit on memory, messages or records was reached.
    public static let limitExceeded = Self(rawValue: "limit-exceeded")
    /// The link failed in a way that has no specific code; see ``ChannelError/underlying``.
    public static let link = Self(rawValue: "link")
    /// A store of messages cannot be opened, or cannot commit.
    public static let store = Self(rawValue: "store")
    /// The peer or this side has reset a direction of a stream.
    public static let streamReset = Self(rawValue: "stream-reset")
    /// A stream ended because one side has begun a new connection, for example after a restart. A
    /// stream outlives links, but not the connection. A whole connection ends with this code if the
    /// peer says that it sends nothing more, and then sends more. That happens when the peer has lost
    /// its state, or uses an older copy of the state.
    public static let sessionLost = Self(rawValue: "session-lost")
    /// There is too little space for a file, or the receiver's quota does not allow it.
    public static let noSpace = Self(rawValue: "no-space")
    /// A file was changed while it was sent.
    public static let fileChanged = Self(rawValue: "file-changed")
    /// Some files of a folder were not stored.
    public static let incomplete = Self(rawValue: "incomplete")
    /// A pairing was interrupted after this side's last confirmation, and the peer may have
    /// completed it. Or the pairing is complete, but the program does not get the channel: its call
    /// was cancelled, its listener or service was closed, or the channel ended before the program
    /// could get it.
    public static let mayBePaired = Self(rawValue: "may-be-paired")
    /// An unexpected internal failure, for example of randomness, memory or a library.
    public static let `internal` = Self(rawValue: "internal")
}
