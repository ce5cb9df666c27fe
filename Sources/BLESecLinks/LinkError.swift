import Glibc

/// The error of a link that could not be made, or that ended.
public struct LinkError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The kind of failure, for a program to compare.
    public struct Code: Sendable, Hashable, CustomStringConvertible {
        /// A stable word for the kind.
        public let description: String

        init(_ description: String) { self.description = description }

        /// The peer is reachable, but nothing listens there, or the peer refused the connection.
        public static let refused = Code("refused")
        /// The peer cannot be reached.
        public static let unreachable = Code("unreachable")
        /// The deadline passed, or the peer did not answer before the kernel gave up.
        public static let timedOut = Code("timedOut")
        /// The peer, or the lower layer, ended the link during a transfer.
        public static let reset = Code("reset")
        /// A send was larger than ``Link/maximumSDU``, or a received packet was larger than a peer
        /// may send.
        public static let tooLarge = Code("tooLarge")
        /// Another listener has the address, or another file is at the address's path.
        public static let addressInUse = Code("addressInUse")
        /// The kernel or the file system does not permit the operation.
        public static let permission = Code("permission")
        /// A PSM that is not valid on LE.
        public static let invalidPSM = Code("invalidPSM")
        /// An address in an invalid format.
        public static let invalidAddress = Code("invalidAddress")
        /// There is no adapter with that name or address, or it is off.
        public static let noSuchAdapter = Code("noSuchAdapter")
        /// There is no such path.
        public static let notFound = Code("notFound")
        /// The link, the listener or its loop was closed on this side.
        public static let closed = Code("closed")
        /// The waiting task was cancelled.
        public static let cancelled = Code("cancelled")
        /// The machine lacks something that the link needs: Bluetooth, descriptors, memory.
        public static let unavailable = Code("unavailable")
        /// Anything else; see ``LinkError/systemError``.
        public static let system = Code("system")
    }

    /// The kind of failure, for a program to compare.
    public let code: Code
    /// The `errno` value, or 0 where there was none.
    public let systemError: Int32
    /// What went wrong and what to do about it, in one line of text for people.
    public let reason: String

    /// Makes an error.
    public init(_ code: Code, _ reason: String, systemError: Int32 = 0) {
        self.code = code
        self.reason = reason
        self.systemError = systemError
    }

    /// The reason.
    public var description: String { reason }

    /// Whether the kernel had no memory for a call, which may succeed a little later.
    package var isTemporary: Bool {
        code == .unavailable && (systemError == ENOBUFS || systemError == ENOMEM)
    }
}
