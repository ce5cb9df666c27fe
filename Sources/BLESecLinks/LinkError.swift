/// Why a link could not be made, or went away.
public struct LinkError: Error, Sendable, Hashable, CustomStringConvertible {
    /// What kind of failure it was: what a program compares.
    public struct Code: Sendable, Hashable, CustomStringConvertible {
        /// A stable word for it.
        public let description: String

        init(_ description: String) {
            self.description = description
        }

        /// The peer is there and nobody listens, or it does not want us.
        public static let refused = Code("refused")
        /// There is no way to the peer.
        public static let unreachable = Code("unreachable")
        /// The deadline passed, or the link was silent for longer than the kernel waits.
        public static let timedOut = Code("timedOut")
        /// The peer, or the link below, ended it while data was under way.
        public static let reset = Code("reset")
        /// One send was larger than ``Link/maximumSDU``, or what came is larger than any peer may
        /// send.
        public static let tooLarge = Code("tooLarge")
        /// Another listener has that address, or a file stands in its place.
        public static let addressInUse = Code("addressInUse")
        /// The kernel or the file system does not allow it.
        public static let permission = Code("permission")
        /// A PSM that cannot be used on LE.
        public static let invalidPSM = Code("invalidPSM")
        /// An address that is not written as its kind demands.
        public static let invalidAddress = Code("invalidAddress")
        /// No adapter of that name or address.
        public static let noSuchAdapter = Code("noSuchAdapter")
        /// No such path.
        public static let notFound = Code("notFound")
        /// The link, the listener or its loop was closed on this side.
        public static let closed = Code("closed")
        /// The task that waited was cancelled.
        public static let cancelled = Code("cancelled")
        /// The machine lacks something it needs: Bluetooth, descriptors, memory.
        public static let unavailable = Code("unavailable")
        /// Anything else; ``LinkError/systemError`` tells.
        public static let system = Code("system")
    }

    /// What programs compare.
    public let code: Code
    /// The kernel's error number, or 0 where there was none.
    public let systemError: Int32
    /// What went wrong and what to do about it, in one line for people.
    public let reason: String

    /// Makes an error of one's own.
    public init(_ code: Code, _ reason: String, systemError: Int32 = 0) {
        self.code = code
        self.reason = reason
        self.systemError = systemError
    }

    /// The reason.
    public var description: String { reason }
}
